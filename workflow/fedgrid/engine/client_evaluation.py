"""Evaluate clients on their own test data: the server's model, and each client's own.

A client's own model is the model that it would use, after the method's `personal` if it has one.
With `evaluate_clients: all` all clients are evaluated, with the server's model and, if clients have
models of their own before local training, with these. With `evaluate_clients: cohort` the clients
of the round are evaluated, each with its model after local training. The server's model of a method
with private parameters is not complete, so it has no numbers.

Of the accuracies over clients these columns join the metrics, once for `server` and once for `own`:

    own_weighted   mean over clients, by their test samples: the accuracy over all test samples
    own_mean       mean over clients
    own_worst      of the worst client
    own_decile1 .. own_decile9
    own_loss       mean cross-entropy over all test samples

If clients have validation data, `validation_own_mean` is `own_mean` on these: of the same models of
the same clients. By it one can choose what is reported as `own_mean`.

Clients without test samples have no part in these. The metrics that the protocol asks for are
computed from the predictions of all clients' own models together: own_macro_f1 and so on. A value
of the method's `evaluate` joins as the mean over clients.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgrid.engine import metrics
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.evaluation import batches_of_pool, join, judge, per_sample
from fedgrid.engine.samples import Samples
from fedgrid.federation.federation import Pool
from fedgrid.method import Client, Method, Model

Found = tuple[Tensor, Tensor]  # logits (n, K) and labels (n,) of a client's test samples
COLUMNS = (
    *("round", "client", "samples"),
    *("server_accuracy", "server_loss", "own_accuracy", "own_loss"),
)


@dataclass
class ClientEvaluation:
    """The evaluation of clients in one round: `see` them one by one, then ask for the results."""

    architecture: Architecture
    samples: Samples
    method: Method
    asked: tuple[str, ...]  # names of metrics
    at_once: int  # samples that are evaluated together
    clients: list[int] = field(default_factory=list)
    own: dict[int, Found] = field(default_factory=dict)
    validated: list[float] = field(default_factory=list)  # own accuracies on validation data
    values: dict[int, dict[str, Any]] = field(default_factory=dict)  # of the method's `evaluate`

    @property
    def tests(self) -> Pool:
        """The clients' own test samples, without which no client is evaluated."""
        pool = self.samples.federation.client_tests
        assert pool is not None
        return pool

    def see(self, number: int, get_client: Callable[[], Client], own: bool = True) -> None:
        """Evaluate a client; unless `own`, its model is the server's, which is evaluated later.

        `get_client` is called only if something of the client itself is evaluated now.
        """
        if not self.tests.sizes[number]:
            return
        self.clients.append(number)
        if not (own or self.validates(number) or self.method.evaluate):
            return
        client = get_client()
        model = evaluated_model(self.method, client)
        if own:
            batches = batches_of_pool(self.tests, self.tests.of_client(number), self.at_once)
            self.own[number] = judge(self.architecture.forward, self.samples, model, batches)
        if self.validates(number):
            self.validate(number, model)
        if self.method.evaluate:
            found = self.method.evaluate(client)
            self.values[number] = {name: metrics.plain(value) for name, value in found.items()}

    def validates(self, number: int) -> bool:
        """Whether a client has validation data of its own."""
        pool = self.samples.federation.validation
        return bool(pool and pool.sizes and pool.sizes[number])

    def validate(self, number: int, model: Model) -> None:
        """Evaluate a client's own model on the client's own validation data."""
        pool = self.samples.federation.validation
        assert pool is not None
        batches = batches_of_pool(pool, pool.of_client(number), self.at_once)
        found = judge(self.architecture.forward, self.samples, model, batches)
        self.validated.append(float(per_sample(*found)[0].mean()))

    def results(self, server: Model) -> dict[str, Any]:
        """Return the columns of this round; `clients` has a row for each client.

        `predicted` is there if the server's model is not complete.
        """
        complete = self.architecture.complete_server
        theirs = self.judge_server(server) if complete else None
        own: Any = theirs
        if self.own:
            own = tuple(map(torch.cat, zip(*self.own.values(), strict=True)))
        rows = self.rows(theirs, own)
        found: dict[str, Any] = spread("server", rows) | spread("own", rows)
        if self.validated:
            found["validation_own_mean"] = float(np.mean(self.validated))
        logits, labels = own
        names = self.samples.federation.class_names
        pooled = metrics.compute(self.asked, logits, labels, names) if self.asked else {}
        found |= {f"own_{name}": value for name, value in pooled.items()}
        found = join(found, self.means())
        if not complete:
            said = logits.argmax(1)[~logits.isnan().any(1)]
            found["predicted"] = said.bincount(minlength=logits.shape[1]).tolist()
        return found | {"clients": rows}

    def judge_server(self, server: Model) -> Found:
        """Evaluate the server's model on the test samples of all clients that were seen."""
        ids = torch.cat([self.tests.of_client(number) for number in self.clients])
        batches = batches_of_pool(self.tests, ids, self.at_once)
        return judge(self.architecture.forward_server, self.samples, server, batches)

    def rows(self, server: Found | None, own: Found) -> list[dict[str, Any]]:
        """Return the clients' rows of clients.csv from the logits and labels of all, in order."""
        federation = self.samples.federation
        sizes = [self.tests.sizes[number] for number in self.clients]
        columns: dict[str, list[Any]] = {"client": self.clients, "samples": sizes}
        if names := federation.client_names:
            columns["client_name"] = [names[number] for number in self.clients]
        columns |= measures("server", server, sizes) | measures("own", own, sizes)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [join(row, self.values.get(row["client"], {})) for row in rows]

    def means(self) -> dict[str, float | None]:
        """Return the means over clients of the method's values."""
        names = dict.fromkeys(name for of in self.values.values() for name in of)
        return {name: self.mean(name) for name in names}

    def mean(self, name: str) -> float | None:
        """Return the mean over clients of one of the method's values; None without any."""
        there = [of[name] for of in self.values.values() if of.get(name) is not None]
        return float(np.mean(there)) if there else None


def evaluated_model(method: Method, client: Client) -> Model:
    """Return the model by which a client is evaluated."""
    return client.model | (method.personal(client) if method.personal else {})


def measures(who: str, of: Found | None, sizes: list[int]) -> dict[str, list[Any]]:
    """Return the clients' accuracies and losses with a model; None for each without the model.

    `of` has the logits and labels of the clients' samples, client after client.
    """
    values = per_sample(*of) if of else ()
    lists: list[list[Any]] = [means_of_parts(tensor, sizes) for tensor in values]
    lists = lists or [[None] * len(sizes)] * 2
    return {f"{who}_accuracy": lists[0], f"{who}_loss": lists[1]}


def means_of_parts(values: Tensor, sizes: list[int]) -> list[float]:
    """Return the mean of each part of values (n,), which has parts of these sizes in order.

    Parts of equal sizes are taken together. The sums are those of each part alone.
    """
    length = torch.tensor(sizes, device=values.device)
    start, order = length.cumsum(0) - length, length.argsort(stable=True)
    found = values.new_empty(len(sizes))
    for some in order.split(length.unique(return_counts=True)[1].tolist()):
        place = torch.arange(sizes[some[0]], device=values.device)
        found[some] = values[start[some][:, None] + place].mean(1)
    return found.tolist()


def spread(who: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return how the accuracy of `who` is spread over clients; empty without accuracies."""
    if rows[0][f"{who}_accuracy"] is None:
        return {}
    right, loss, samples = (
        np.array([row[name] for row in rows])
        for name in (f"{who}_accuracy", f"{who}_loss", "samples")
    )
    found = {"weighted": np.average(right, weights=samples), "mean": right.mean()}
    found |= {"worst": right.min(), "loss": np.average(loss, weights=samples)}
    deciles = np.quantile(right, np.arange(1, 10) / 10)
    found |= {f"decile{i}": value for i, value in enumerate(deciles, start=1)}
    return {f"{who}_{name}": float(value) for name, value in found.items()}
