"""From runs to the tables and figures of the papers."""


localrules:
    collect,
    product,
    current,


rule collect:
    input:
        collected_runs,
    output:
        "results/studies/{study}/{scale}/grids/{grid}.csv",
    log:
        "results/logs/studies/{study}/{scale}/grids/{grid}.log",
    conda:
        "../../envs/fedgrid.yaml"
    params:
        grid=lambda wildcards: json.dumps(GRID.narrowed(*wildcards)),
        protocols=lambda wildcards: json.dumps(GRID.summed(GRID.narrowed(*wildcards))),
        code=source.fingerprint("collect"),
    message:
        "collect: the runs of {wildcards.study} {wildcards.scale} {wildcards.grid}"
    shell:
        "python -m fedgrid.collect {params.grid:q} --protocols {params.protocols:q}"
        " --out {output:q} --log {log:q}"


rule product:
    input:
        collected,
    output:
        "results/studies/{study}/{scale}/{product}.{ext}",
    log:
        "results/logs/studies/{study}/{scale}/{product}.{ext}.log",
    conda:
        "../../envs/fedgrid.yaml"
    params:
        study=lambda wildcards: WORKFLOW / f"studies/{wildcards.study}.yaml",
        published=lambda wildcards: published(wildcards.study, wildcards.product),
        code=lambda wildcards: source.fingerprint("draw", f"report.{wildcards.product}"),
    message:
        "draw: {wildcards.study} {wildcards.product}.{wildcards.ext} ({wildcards.scale} scale)"
    shell:
        "python -m fedgrid.draw {wildcards.product:q} {input:q} --study {params.study:q}"
        " --scale {wildcards.scale:q} --out {output:q} --log {log:q}"


rule current:
    input:
        lambda w: f"results/studies/{config['study']}/{config['scale']}/{w.product}.{w.ext}",
    output:
        "results/{product}.{ext}",
    log:
        "results/logs/{product}.{ext}.log",
    conda:
        "../../envs/fedgrid.yaml"
    message:
        "{output}: that of the study and scale in config.yaml"
    shell:
        "cp {input:q} {output:q} 2> {log:q}"
