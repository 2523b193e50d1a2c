"""What the products of studies are drawn from, where they are, and what makes them stale."""

import itertools
import json
import logging
from collections.abc import Iterator

from fedgrid.plan.asked import Asked, asked, code_of, per_job, shorten
from fedgrid.plan.configuration import Plan
from fedgrid.plan.experiments import Experiments
from fedgrid.plan.tables import Tables
from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_facts
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.products import chooses_methods, list_tuned, product_module
from fedgrid.study.records import Wanted
from fedgrid.study.resolving import remember_answers

# Keys of a study that its products show, besides its runs.
SHOWN = ("title", "main", "published", "reference", "curves", "claims", "labels")
LOOKS = "report/paper.mplstyle"  # no code, and says how figures look


class Products:
    def __init__(self, plan: Plan, tables: Tables, experiments: Experiments):
        self.plan, self.tables, self.experiments = plan, tables, experiments
        self.has_warned = False

    # -- paths -----------------------------------------------------------------------------------

    def path(self, study: str, product: str) -> str:
        return f"{self.plan.folder}/{product}".replace("{study}", study)

    def files(self, study: str, product: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Return each file of a product with its labels in the report."""
        for ext in self.plan.studies[study]["products"][product]["formats"]:
            labels = {"product": product, "scale": "{scale}", "format": ext}
            yield f"{self.path(study, product)}.{ext}", labels

    def all_files(self, study: str, folder: str) -> list[str]:
        return [
            f"{folder}/{name}.{ext}"
            for name in self.plan.grid.products(study, self.plan.config["scale"])
            for ext in self.plan.studies[study]["products"][name]["formats"]
        ]

    @per_job
    def whole_study(self, study: str, wildcards) -> list[str]:
        folder = self.plan.folder.format(study=study, scale=self.plan.config["scale"])
        return self.all_files(study, folder)

    def copied(self, study: str) -> list[tuple[str, str]]:
        """Return the study's products with their paths, once more for those about one claim."""
        of_claims = [(name, f"{name}/{{claim}}") for name in self.plan.grid.judging(study)]
        return [(name, name) for name in self.plan.studies[study]["products"]] + of_claims

    # -- sources ---------------------------------------------------------------------------------

    @per_job
    def sources(self, study: str, product: str, wildcards) -> dict[str, str]:
        """Return the files of a product's sources, or of one claim's, by their names in its file.

        UsageError for a product for which the configuration leaves no runs.
        """
        scale = wildcards.scale
        if not wildcards.get("claim"):
            self.plan.grid.check_product(study, scale, product)
        said = describe_uneven_tries(self.plan.grid, study, scale, product)
        if said and not self.has_warned:
            self.plan.snakemake.say(said, logging.WARNING)
            self.has_warned = True
        return {
            name: f"{self.plan.folder}/{text}.csv".format(study=study, scale=scale)
            if text.partition("/")[0] in COLLECTED
            else self.experiments.file(study, scale, text)
            for name, text in self.find_texts(study, product, wildcards).items()
        }

    def find_texts(self, study: str, product: str, wildcards) -> dict[str, str]:
        """Return the sources of a product by name, or those of the claim that its path names."""
        place = study, wildcards.get("scale", self.plan.config["scale"]), product
        if claim := wildcards.get("claim"):
            return self.plan.grid.sources_of_claim(*place, int(claim))
        return self.plan.grid.sources(*place)

    # -- what makes a product stale --------------------------------------------------------------

    @per_job
    def content(self, study: str, product: str, wildcards) -> str:
        """Return a hash of a product's runs, or of one claim's, with their settings and code.

        Without it, a product would look finished although its sources failed: Snakemake does not
        remake a missing file if a later one looks finished.
        """
        scale = wildcards.get("scale", self.plan.config["scale"])
        texts = self.find_texts(study, product, wildcards).values()
        return hash_facts([self.hash_source(study, scale, text) for text in texts])

    def hash_source(self, study: str, scale: str, text: str) -> str:
        kind, _, grid = text.partition("/")
        if kind in COLLECTED:
            return self.tables.hash_grid(kind, study, scale, grid)
        return self.experiments.hash_source(study, scale, text)

    @remember_answers  # every product of a study asks for it
    def facts(self, study: str) -> str:
        """Return a hash of what products are drawn with, besides runs: parts of a study, looks."""
        looks = (PACKAGE / LOOKS).read_text("utf-8")
        return hash_facts([{key: self.plan.studies[study].get(key) for key in SHOWN}, looks])

    def code(self, study: str, product: str) -> Asked:
        return code_of("report._formats", self.module(study, product))

    # -- entries ---------------------------------------------------------------------------------

    def module(self, study: str, product: str) -> str:
        return product_module(study, product, self.plan.studies[study]["products"][product])

    def category(self, study: str, product: str) -> str:
        return self.plan.studies[study]["products"][product]["category"]

    def about(self, study: str, product: str, path: str) -> dict[str, Asked]:
        """Return the caption of a product as `about`; what is drawn of one claim has none."""
        caption = self.plan.studies[study]["products"][product].get("caption")
        module = self.module(study, product)
        found = asked(lambda wildcards: caption or source.summary(module))
        return {"about": found} if path == product else {}

    @per_job
    def entry(self, study: str, product: str, wildcards) -> str | list[str]:
        about, claim = self.plan.studies[study]["products"][product], wildcards.get("claim")
        shown = {key: about[key] for key in ("draw",) if key in about}
        options = about.get("with", {}) | ({"claim": int(claim)} if claim else {})
        options |= self.whole_grid(study, wildcards.scale, product)
        return shorten(self.plan, json.dumps(shown | {"with": options}, sort_keys=True))

    def whole_grid(self, study: str, scale: str, product: str) -> dict[str, list]:
        """Return the option `grid` of a product about claims, if a part of the study is asked for.

        The product then counts the comparisons that the part lacks.
        """
        runs = self.plan.grid.sources(study, scale, product).get("runs", "")
        grid = runs.partition("/")[2]
        if not (grid and self.plan.grid.part() and product in self.plan.grid.judging(study)):
            return {}
        return {"grid": self.plan.grid.judged_blocks(study, scale, grid)}


# -- tries: more of them find a better best --------------------------------------------------------


def describe_uneven_tries(grid: Grid, study: str, scale: str, name: str) -> str:
    """Return a sentence if a product chooses between more candidates of one method than of another.

    A product without the option `best: {methods: true}` gives an empty text. So does a grid that is
    extended until each choice is between others, because this rule is the same for all methods.
    """
    about = grid.studies[study]["products"][name]
    of = about["from"].get("runs", "").partition("/")[2]
    written = grid.studies[study]["scales"][scale]["grids"].get(of, [])
    if not chooses_methods(about) or any("extend" in block for block in written):
        return ""
    blocks = grid.narrow_blocks(study, scale, of)
    over = list_tuned(about)
    for (dataset, partition, _), families in list_tries(grid, blocks, over).items():
        counts = {family: len(tries) for family, tries in families.items()}
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[few] < counts[many]:
            return (
                f"{name} of {study} takes the best of {counts[few]} for {few} and the best of "
                f"{counts[many]} for {many} ({dataset}, {partition}): give methods that are "
                "compared the same number of tries"
            )
    return ""


def list_tries(grid: Grid, blocks: list[Wanted], over: list[str]) -> dict:
    """Return the candidates of blocks by dataset, partition and setting, and by family.

    The protocols of a setting differ in the fields `over` only. Two names of one thing are one try.
    """
    found: dict[tuple, dict[str, set[str]]] = {}
    for block in blocks:
        names = (block[axis] for axis in ("protocol", "dataset", "partition", "method"))
        for name, dataset, partition, method in itertools.product(*names):
            protocol = grid.protocol(name)
            setting = json.dumps({key: v for key, v in protocol.items() if key not in over})
            families = found.setdefault((dataset, str(partition), setting), {})
            tried = json.dumps([protocol, grid.method(method, dataset)])
            families.setdefault(grid.family(method), set()).add(tried)
    return found
