"""Every table and figure of the studies in workflow/studies/, starting from the raw data.

Only one Snakemake can work in a folder: a second one reports the lock and ends. If Snakemake was
killed, `snakemake --unlock` removes its lock.
"""

from snakemake.utils import min_version

min_version("9.19")


# A module of another workflow gets its configuration from that workflow.
if workflow.modifier.is_main_snakefile():

    configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/report.smk"


# Snakemake runs this once, after the last job; neither in jobs nor with --dry-run.
onsuccess:
    if not invocation.is_silent and not invocation.has_storage:
        from fedgrid.report._shown import print_made

        print_made(invocation.targets, plan.studies, config["study"])
    invocation.say(describe_made(plan, invocation.targets))


rule all:
    default_target: True
    input:
        products.all_files(config["study"], "results"),
