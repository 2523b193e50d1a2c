"""What a study consists of. `schemas/study.schema.yaml` says what each key means.

Of a key that takes one name or several, `listed` gives the list.
"""

from typing import Any, NotRequired, TypedDict

from fedgrid.claim import Claim
from fedgrid.runtime.resolved import Fields, MethodParts

Sweep = dict[str, dict[str, list[Any]]]  # by name and field, the values
Wanted = dict[str, list[Any]]  # the names of a block by axis, after the configuration was applied
Rows = list[dict[str, str]]  # of a CSV file


class Block(TypedDict):
    """A block of a grid: its runs are the product of the axes."""

    protocol: str | list[str]
    dataset: str | list[str]
    partition: str | list[str]
    method: str | list[str]
    seed: int | list[int]
    sweep: NotRequired[Sweep]
    first: NotRequired[str]  # an axis of which only the first remaining name is used
    chosen: NotRequired[str]  # the product whose choices it has (`chosen.py`)
    extend: NotRequired[dict[str, dict[str, list[float]]]]  # by product and field, the bounds


class Scale(TypedDict):
    grids: dict[str, list[Block]]
    awaits: NotRequired[dict[str, str]]  # by grid, the product whose choices are not there yet
    fidelity: NotRequired[dict[str, Any]]
    costs: NotRequired[dict[str, Any]]


# A table or figure of a study. `from` has its sources, and `with` the options of its file.
Product = TypedDict(
    "Product",
    {
        "from": dict[str, str],
        "with": dict[str, Any],
        "formats": list[str],
        "category": str,
        "draw": str,
        "caption": str,
    },
    total=False,
)


class Study(TypedDict):
    title: str
    protocols: dict[str, Fields]
    variants: NotRequired[dict[str, MethodParts]]
    tuned: NotRequired[dict[str, MethodParts]]  # by method and dataset, hyper-parameters
    sweep: NotRequired[Sweep]
    scales: dict[str, Scale]
    products: dict[str, Product]
    published: NotRequired[dict[str, dict[str, Any]]]  # printed tables, and other facts
    reference: NotRequired[Rows]
    curves: NotRequired[dict[str, Rows]]
    labels: NotRequired[dict[str, Any]]
    main: NotRequired[str | list[str]]
    claims: NotRequired[list[Claim]]
    cite: NotRequired[dict[str, Any]]  # the paper: authors, year, venue, url
    headline: NotRequired[dict[str, Any]]  # what was found in one sentence, and its claim
    replies: NotRequired[list[dict[str, Any]]]  # of the paper's authors and others
