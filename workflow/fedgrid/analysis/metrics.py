"""Say what the name of a metric tells: whether it is in percent, whether lower is better, words.

Fedgrid's own metrics between 0 and 1 (SHARE) are shown in percent. All others, such as those that a
method records itself, are shown as they were recorded. Only the name decides, so that a metric has
the same unit in all tables.
"""

import re

SHARE = re.compile(  # the names of metrics between 0 and 1
    r"(averaged_)?accuracy|balanced_accuracy|macro_f1|auroc|calibration_error|recall_.+"
    r"|validation_((averaged_)?accuracy|own_mean)"
    r"|(server|own)_(weighted|mean|worst|decile[1-9])"
)
OF_CLIENTS = re.compile("own_|server_")  # how the names of metrics over clients' tests begin
OF_CLASS = re.compile("(own_)?recall_.+")  # they end with the name of a class
WORDS = {
    "accuracy": "test accuracy",
    "balanced_accuracy": "balanced test accuracy",
    "macro_f1": "macro F1",
    "auroc": "area under the ROC curve",
    "calibration_error": "calibration error",
    "loss": "test loss",
    "averaged_accuracy": "test accuracy of the mean of the last models",
    "averaged_loss": "test loss of the mean of the last models",
    "validation_averaged_accuracy": "validation accuracy of the mean of the last models",
    "validation_averaged_loss": "validation loss of the mean of the last models",
    "train_loss": "training loss",
    "validation_accuracy": "validation accuracy",
    "validation_loss": "validation loss",
    "validation_own_mean": "validation accuracy of clients' own models (mean over clients)",
    "effective_clients": "effective number of clients",
}
MODELS = {"server": "accuracy of the server's model", "own": "accuracy of clients' own models"}
OVER = {"weighted": "mean over test samples", "mean": "mean over clients", "worst": "worst client"}
VALIDATION = "validation_"  # how the names of metrics on validation data begin
OWN, AVERAGED = "own_", "averaged_"  # of clients' own models, and of the mean of the last models


def find_model(metric: str) -> str:
    """Return OWN or AVERAGED for a metric of such models, and "" for one of the server's model."""
    name = metric.removeprefix(VALIDATION)
    return next((model for model in (OWN, AVERAGED) if name.startswith(model)), "")


def validation_of(metric: str) -> str:
    """Return the metric on validation data by which to choose runs for a table of `metric`.

    Both measure the same models: clients' own models, the mean of the server's last models, or its
    last model. On validation data the server's models have accuracy and loss only.
    """
    if (model := find_model(metric)) == OWN:
        return f"{VALIDATION}own_mean"
    return f"{VALIDATION}{model}{'loss' if metric == f'{model}loss' else 'accuracy'}"


def in_percent(metric: str) -> bool:
    """Whether a metric is a share that tables show in percent."""
    return bool(SHARE.fullmatch(metric))


def lower_is_better(metric: str) -> bool:
    return metric.endswith(("loss", "error")) and not OF_CLASS.fullmatch(metric)


def describe_metric(metric: str) -> str:
    """Return a metric in words; one that a method records itself keeps its name."""
    model, _, over = metric.partition("_")
    if over.startswith("decile") and model in MODELS:
        return f"{MODELS[model]} (decile {over.removeprefix('decile')} of clients)"
    if over in OVER and model in MODELS:
        return f"{MODELS[model]} ({OVER[over]})"
    if model == "recall" and over:
        return f"recall of class {over}"
    return WORDS.get(metric, metric)


def write_unit(metric: str) -> str:
    """Return the text ` (%)` to write after a metric in percent, and "" after any other."""
    return " (%)" if in_percent(metric) else ""
