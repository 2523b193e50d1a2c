"""What the products of studies are drawn from, where they are, and what makes them stale."""

import json
import logging
from collections.abc import Iterator

from fedgrid.plan.arguments import shorten
from fedgrid.plan.asked import Asked, asked, code_of
from fedgrid.plan.configuration import Plan
from fedgrid.plan.experiments import Experiments
from fedgrid.plan.tables import Tables
from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_facts
from fedgrid.runtime.names import PACKAGE
from fedgrid.study.paths import COLLECTED
from fedgrid.study.products import product_module
from fedgrid.study.resolving import remember_answers
from fedgrid.study.tries import describe_uneven_tries

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

    def whole_study(self, study: str) -> Asked:
        folder = self.plan.folder.format(study=study, scale=self.plan.config["scale"])
        return asked(lambda wildcards: self.all_files(study, folder))

    def copied(self, study: str) -> list[tuple[str, str]]:
        """Return the study's products with their paths, once more for those about one claim."""
        names = [*self.plan.studies[study]["products"]]
        return [*zip(names, names, strict=True)] + [
            (name, f"{name}/{{claim}}") for name in self.by_claim(study)
        ]

    # -- sources ---------------------------------------------------------------------------------

    def sources(self, study: str, product: str) -> Asked:
        """Return the files of a product's sources, by their names in the product's file.

        UsageError for a product for which the configuration leaves no runs.
        """

        @asked
        def find_sources(wildcards) -> dict[str, str]:
            self.plan.grid.check_product(study, wildcards.scale, product)
            self.warn_of_tries(study, wildcards.scale, product)
            texts = self.plan.grid.sources(study, wildcards.scale, product)
            return self.source_files(study, wildcards.scale, texts)

        return find_sources

    def warn_of_tries(self, study: str, scale: str, product: str) -> None:
        said = describe_uneven_tries(self.plan.grid, study, scale, product)
        if said and not self.has_warned:
            self.plan.snakemake.say(said, logging.WARNING)
            self.has_warned = True

    def sources_of_claim(self, study: str, product: str) -> Asked:

        @asked
        def find_sources(wildcards) -> dict[str, str]:
            given = study, wildcards.scale, product, int(wildcards.claim)
            texts = self.plan.grid.sources_of_claim(*given)
            self.warn_of_tries(*given[:3])
            return self.source_files(study, wildcards.scale, texts)

        return find_sources

    def source_files(self, study: str, scale: str, texts: dict[str, str]) -> dict[str, str]:
        return {
            name: f"{self.plan.folder}/{text}.csv".format(study=study, scale=scale)
            if text.partition("/")[0] in COLLECTED
            else self.experiments.file(study, scale, text)
            for name, text in texts.items()
        }

    # -- what makes a product stale --------------------------------------------------------------

    def content(self, study: str, product: str) -> Asked:
        """Return a hash of a product's runs, their settings and their code.

        Without it, a product would look finished although its sources failed: Snakemake does not
        remake a missing file if a later one looks finished.
        """

        @asked
        def find_content(wildcards) -> str:
            scale = wildcards.get("scale", self.plan.config["scale"])
            return self.hash_sources(study, scale, self.plan.grid.sources(study, scale, product))

        return find_content

    def content_of_claim(self, study: str, product: str) -> Asked:

        @asked
        def find_content(wildcards) -> str:
            scale = wildcards.get("scale", self.plan.config["scale"])
            given = study, scale, product, int(wildcards.claim)
            return self.hash_sources(study, scale, self.plan.grid.sources_of_claim(*given))

        return find_content

    def copied_content(self, study: str, product: str, path: str) -> Asked:
        is_whole = path == product
        return (self.content if is_whole else self.content_of_claim)(study, product)

    def hash_sources(self, study: str, scale: str, texts: dict[str, str]) -> str:
        return hash_facts([self.hash_source(study, scale, text) for text in texts.values()])

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

    def caption(self, study: str, product: str) -> Asked:
        about = self.plan.studies[study]["products"][product]
        module = self.module(study, product)
        return asked(lambda wildcards: about.get("caption") or source.summary(module))

    def is_by_claim(self, study: str, product: str) -> bool:
        return source.literal(self.module(study, product), "BY_CLAIM", False)

    def by_claim(self, study: str) -> list[str]:
        return [
            name for name in self.plan.studies[study]["products"] if self.is_by_claim(study, name)
        ]

    def entry(self, study: str, product: str) -> Asked:
        about = self.plan.studies[study]["products"][product]
        shown = {key: about[key] for key in ("draw",) if key in about}

        @asked
        def find_entry(wildcards) -> str | list[str]:
            claim = wildcards.get("claim")
            options = about.get("with", {}) | ({"claim": int(claim)} if claim else {})
            options |= self.whole_grid(study, wildcards.scale, product)
            return shorten(self.plan, json.dumps(shown | {"with": options}, sort_keys=True))

        return find_entry

    def whole_grid(self, study: str, scale: str, product: str) -> dict[str, list]:
        """Return the option `grid` of a product about claims, if a part of the study is asked for.

        The product then counts the comparisons that the part lacks.
        """
        runs = self.plan.grid.sources(study, scale, product).get("runs", "")
        grid = runs.partition("/")[2]
        if not (grid and self.plan.grid.part() and self.is_by_claim(study, product)):
            return {}
        return {"grid": self.plan.grid.judged_blocks(study, scale, grid)}
