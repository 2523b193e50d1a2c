"""Measurements of a study besides its runs: fidelity of maps to images, cost of encoding."""

import json
from pathlib import Path
from typing import Any

from snakemake.io import ancient, local

from fedgrid.plan.asked import per_job, shorten
from fedgrid.plan.configuration import Plan, path_from_here
from fedgrid.runtime.code import source
from fedgrid.runtime.files import checksum
from fedgrid.runtime.hashes import hash_facts
from fedgrid.store.measured import find_measured

# The modules of experiments, which do not belong to a grid.
MODULES = {
    "fidelity": tuple(f"experiments.fidelity.{part}" for part in ("originals", "maps", "scores")),
    "costs": ("experiments.costs",),
}
NETWORKS = {"model": "weights", "judge": "judge_weights"}  # the weights of a setting's networks


class Experiments:
    def __init__(self, plan: Plan):
        self.plan = plan

    @per_job
    def setting(self, kind: str, wildcards) -> str:
        return json.dumps(self.find_setting(kind, wildcards))

    def find_setting(self, kind: str, wildcards) -> dict[str, Any]:
        return self.plan.grid.experiment(wildcards.study, wildcards.scale, kind)

    @per_job
    def code(self, module: str, network: str, wildcards) -> str:
        model = self.find_setting(module.partition(".")[0], wildcards)[network]
        return source.fingerprint(f"experiments.{module}", f"models.{model}")

    def images(self, wildcards) -> dict[str, list[str]]:
        names = self.find_setting("fidelity", wildcards)["images"]
        return {name: self.plan.data_files(name) for name in names}

    @per_job
    def weights(self, network: str, wildcards) -> dict[str, str]:
        setting = self.find_setting("fidelity", wildcards)
        weights = setting[NETWORKS[network]]
        path = f"results/weights/{setting[network]}-{weights}.safetensors"
        return {} if weights == "none" else {"weights": ancient(path)}

    def maps(self, wildcards) -> dict[str, str]:
        folder = self.plan.experiments_folder.format(**wildcards)
        return {
            f"{encoder}/{seed}": f"{folder}/fidelity/{encoder}-seed{seed}.npz"
            for encoder, seeds in self.find_setting("fidelity", wildcards)["encoders"].items()
            for seed in range(seeds)
        }

    def maps_by_name(self, wildcards, input) -> str | list[str]:
        """Return the maps as NAME=PATH, for the command line."""
        named = zip(self.maps(wildcards), input.maps, strict=True)
        return shorten(self.plan, [f"{name}={path}" for name, path in named])

    def file(self, study: str, scale: str, text: str) -> str:
        """Return the table of a source, such as fidelity/scores: a kept one if none is made yet."""
        if kept := self.kept_file(study, scale, text):
            return ancient(local(str(path_from_here(kept))))
        return f"{self.plan.experiments_folder}/{text}.csv".format(study=study, scale=scale)

    def kept_file(self, study: str, scale: str, text: str) -> Path | None:
        """Return the kept table of a source with today's setting that is not in results/."""
        made = f"{self.plan.experiments_folder}/{text}.csv".format(study=study, scale=scale)
        if (study, scale) not in self.plan.kept or self.plan.snakemake.is_here(made):
            return None
        setting = self.plan.grid.experiment(study, scale, text.partition("/")[0])
        return find_measured(study, scale, text, setting)

    def hash_source(self, study: str, scale: str, text: str) -> str:
        """Return a hash of a source: of a kept table, or of its experiment's setting and code."""
        if kept := self.kept_file(study, scale, text):
            return checksum(kept)
        kind = text.partition("/")[0]
        setting = self.plan.grid.experiment(study, scale, kind)
        networks = {f"models.{setting[key]}" for key in NETWORKS if key in setting}
        return hash_facts([setting, source.fingerprint(*MODULES[kind], *sorted(networks))])
