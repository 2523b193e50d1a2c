"""Every table and figure of the studies in workflow/studies/, from the raw data on.

One Snakemake at a time works in a folder: a second one says so and ends. After one that was killed,
`snakemake --unlock` takes its lock away.
"""

from snakemake.utils import min_version

min_version("9.9")


# As a module of another workflow it takes its configuration from there.
if workflow.modifier.is_main_snakefile():

    configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        products(config["study"], "results"),
