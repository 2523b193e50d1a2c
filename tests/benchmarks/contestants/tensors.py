"""(c) The same loop without DataLoader: batches are gathered from tensors on the device."""

from functools import partial

from tests.benchmarks.contestants.plain import EVALUATION_BATCH, federate


def prepare(task):
    """The loop over index tensors; the images are normalised beforehand."""
    images, labels = task.inputs().to(task.device), task.federation.labels
    tests, test_labels = task.test_inputs().to(task.device), task.federation.test_labels

    def batches(number: int, place: int, turn):
        return ((images[index], labels[index]) for index in turn.batches)

    def test_batches():
        parts = (tests.split(EVALUATION_BATCH), test_labels.split(EVALUATION_BATCH))
        return zip(*parts, strict=True)

    return partial(federate, task, batches, test_batches)
