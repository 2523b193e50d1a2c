"""Collected tables: the files of a grid's runs, and the arguments of their command."""

import json
from pathlib import Path

from snakemake.io import ancient, local

from fedgrid.plan.asked import Asked, asked, per_job, write_in_file
from fedgrid.plan.configuration import Plan, path_from_here
from fedgrid.plan.runs import Runs
from fedgrid.runtime.hashes import hash_facts
from fedgrid.store.kept import INDEX, find_changed_code, list_facts, store_folder
from fedgrid.study.jobs import fingerprint_stages
from fedgrid.study.paths import collected_fields, collected_path, collecting_stage
from fedgrid.study.resolving import remember_answers


class Tables:
    def __init__(self, plan: Plan, runs: Runs):
        self.plan, self.runs = plan, runs

    @per_job
    def inputs(self, kind: str, wildcards) -> list[str]:
        """Return the files of one kind of a grid's runs, each file once.

        Instead of the files of kept runs it has the tables that they are kept in. These tables
        count with their content (`hash_grid`), not with their times.
        """
        place = place_of_table(wildcards)
        kept_tables = [INDEX, f"{kind}.csv"] if self.kept_ids(kind, *place) else []
        folder = path_from_here(Path(store_folder(*place[:2])))
        return self.run_files(kind, *place) + [ancient(local(str(folder / n))) for n in kept_tables]

    def run_files(self, kind: str, study: str, scale: str, grid: str) -> list[str]:
        """Return the files of one kind of those of a grid's runs that are not kept.

        The table of metrics reads the summaries beside them. In a storage they must be named.
        """
        protocols = self.plan.grid.list_protocols(self.plan.grid.narrow_blocks(study, scale, grid))
        paths = [
            collected_path(kind, run, protocols[run["protocol"]])
            for run in self.plan.grid.runs(study, scale, grid)
            if not self.runs.kept_entry(kind, study, scale, tuple(run.items()))
        ]
        if self.runs.has_storage and kind == "runs":
            paths += [path.replace("metrics.csv", "summary.json") for path in paths]
        return [f"results/{path}" for path in dict.fromkeys(paths)]

    @remember_answers
    def kept_ids(self, kind: str, study: str, scale: str, grid: str) -> list[str]:
        """Return the ids of what a table takes from the runs that are kept.

        An id is followed by what has changed in the code since the run was made, if anything has.
        """
        found, runs = {}, self.plan.grid.runs(study, scale, grid)
        self.runs.tell_others(kind, study, scale, runs)
        for run in runs:
            names = tuple(run.items())
            if entry := self.runs.kept_entry(kind, study, scale, names):
                found[int(entry["id"])] = find_changed_code(entry, self.runs.resolve_names(names))
        return [f"{number}={found[number]}".removesuffix("=") for number in sorted(found)]

    def arguments(self, kind: str) -> Asked:
        """Return the path of a file with the arguments of the command that are about the grid.

        The file is written when the table is planned, unless nothing is to be run. In a storage the
        inputs are copies, in a folder of results that the output's path tells.
        """

        @asked
        def find(wildcards, output) -> str:
            words = self.words(kind, *place_of_table(wildcards))
            folder = Path(output[0]).parents[len(Path(self.plan.folder).parts)]
            where = [] if folder == Path("results") else ["--results", str(folder)]
            return write_in_file(self.plan, words + where)

        return find

    def words(self, kind: str, study: str, scale: str, grid: str) -> list[str]:
        """Return the blocks of a grid, what the command reads of the protocols, and kept runs."""
        blocks = self.plan.grid.narrow_blocks(study, scale, grid)
        protocols = self.plan.grid.list_protocols(blocks)
        read = {name: collected_fields(kind, protocol) for name, protocol in protocols.items()}
        words = [json.dumps(blocks), "--protocols", json.dumps(read)]
        ids = self.kept_ids(kind, study, scale, grid)
        return [*words, "--kept", f"{study}/{scale}", "--ids", *ids] if ids else words

    @per_job
    def content(self, kind: str, wildcards) -> str:
        return self.hash_grid(kind, *place_of_table(wildcards))

    @remember_answers  # many products share a grid
    def hash_grid(self, kind: str, study: str, scale: str, grid: str) -> str:
        runs = [tuple(run.items()) for run in self.plan.grid.runs(study, scale, grid)]
        return hash_facts([self.facts_of_run(kind, study, scale, run) for run in runs])

    def facts_of_run(self, kind: str, study: str, scale: str, names: tuple) -> str | list[str]:
        """Return `hash_run`; of a kept run what it was made with, and a hash of what is kept."""
        entry = self.runs.kept_entry(kind, study, scale, names)
        if entry:
            changed = find_changed_code(entry, self.runs.resolve_names(names))
            return [*list_facts(entry, kind), changed]
        return self.hash_run(collecting_stage(kind), names)

    @remember_answers  # a run is in several tables
    def hash_run(self, stage: str, names: tuple) -> str:
        """Return a hash of one run's settings, and of its code until a stage."""
        run = self.runs.resolve_names(names)
        facts = [run[key] for key in ("name", "protocol", "method")]
        return hash_facts([*facts, fingerprint_stages(stage, run)])


def place_of_table(wildcards) -> tuple[str, str, str]:
    names = dict(wildcards.items())
    return names["study"], names["scale"], names["grid"]
