"""Measurements of a study besides its runs: fidelity of maps to images, cost of encoding."""

import json
from typing import Any

from snakemake.io import ancient

from fedgrid.plan.arguments import shorten
from fedgrid.plan.asked import Asked, asked
from fedgrid.plan.configuration import Plan
from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_facts

# The modules of experiments, which do not belong to a grid.
MODULES = {
    "fidelity": tuple(f"experiments.fidelity.{part}" for part in ("originals", "maps", "scores")),
    "costs": ("experiments.costs",),
}
NETWORKS = {"model": "weights", "judge": "judge_weights"}  # the weights of a setting's networks


class Experiments:
    """The experiments of a plan."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def setting(self, kind: str) -> Asked:
        """Return the setting of an experiment as JSON."""
        return asked(lambda wildcards: json.dumps(self.find_setting(kind, wildcards)))

    def find_setting(self, kind: str, wildcards) -> dict[str, Any]:
        """Return the setting of an experiment of a path's study and scale."""
        return self.setting_of(kind, wildcards.study, wildcards.scale)

    def setting_of(self, kind: str, study: str, scale: str) -> dict[str, Any]:
        """Return the setting of an experiment of a study and scale."""
        if kind == "fidelity":
            return self.plan.grid.fidelity(study, scale)
        found: dict[str, Any] = {**self.plan.studies[study]["scales"][scale]}
        return found[kind]

    def code(self, module: str, network: str) -> Asked:
        """Return a hash of the code of an experiment and of a network that its setting names."""
        kind = module.partition(".")[0]

        @asked
        def find_code(wildcards) -> str:
            model = self.find_setting(kind, wildcards)[network]
            return source.fingerprint(f"experiments.{module}", f"models.{model}")

        return find_code

    def images(self, wildcards) -> dict[str, str]:
        """Return the datasets of the fidelity study."""
        names = self.find_setting("fidelity", wildcards)["images"]
        return {name: f"results/data/{name}/meta.json" for name in names}

    def weights(self, network: str) -> Asked:
        """Return the published weights of a network of the fidelity study, if it has any."""

        @asked
        def find_weights(wildcards) -> dict[str, str]:
            setting = self.find_setting("fidelity", wildcards)
            weights = setting[NETWORKS[network]]
            path = f"results/weights/{setting[network]}-{weights}.safetensors"
            return {} if weights == "none" else {"weights": ancient(path)}

        return find_weights

    def maps(self, wildcards) -> dict[str, str]:
        """Return the maps of every encoder and seed of the fidelity study."""
        folder = self.plan.experiments_folder.format(**wildcards)
        return {
            f"{encoder}/{seed}": f"{folder}/fidelity/{encoder}-seed{seed}.npz"
            for encoder, seeds in self.find_setting("fidelity", wildcards)["encoders"].items()
            for seed in range(seeds)
        }

    def maps_by_name(self, wildcards) -> str | list[str]:
        """Return the maps as NAME=PATH, for the command line."""
        pairs = self.maps(wildcards).items()
        return shorten(self.plan, [f"{name}={path}" for name, path in pairs])

    def hash_experiment(self, kind: str, study: str, scale: str) -> str:
        """Return a hash of an experiment's setting and of its code."""
        setting = self.setting_of(kind, study, scale)
        networks = {f"models.{setting[key]}" for key in NETWORKS if key in setting}
        return hash_facts([setting, source.fingerprint(*MODULES[kind], *sorted(networks))])
