"""From runs to the tables and figures of the papers."""


localrules:
    collect,
    current,


rule collect:
    input:
        leaves,
    output:
        "results/studies/{study}/{scale}/{kind}/{grid}.csv",
    log:
        "results/logs/studies/{study}/{scale}/{kind}/{grid}.log",
    conda:
        "../../envs/fedgrid.yaml"
    params:
        grid=lambda wildcards: json.dumps(GRID.narrowed(*place(wildcards))),
        protocols=lambda wildcards: json.dumps(
            GRID.summed(GRID.narrowed(*place(wildcards)))
        ),
        code=source.fingerprint("collect"),
    message:
        "collect: {wildcards.kind} of {wildcards.study} {wildcards.scale} {wildcards.grid}"
    shell:
        "python -m fedgrid.collect {wildcards.kind:q} {params.grid:q} --protocols {params.protocols:q}"
        " --out {output:q} --log {log:q}"


# A rule for every product, which draws all of its formats; `snakemake fedsls` makes them all.
for study in STUDIES:

    rule:
        name:
            study
        input:
            everything(study),
        localrule: True

    for product in STUDIES[study]["products"]:

        rule:
            name:
                f"{study}_{product}"
            input:
                unpack(sources(study, product)),
            output:
                *drawn(study, product),
            log:
                f"results/logs/studies/{study}/{{scale}}/{product}.log",
            localrule: True
            conda:
                "../../envs/fedgrid.yaml"
            params:
                product=product,
                study=study,
                sources=named,
                facts=facts(study),
                about=source.summary(report_module(study, product)),
                code=source.fingerprint("draw", report_module(study, product)),
            message:
                f"draw: {study} {product} ({{wildcards.scale}} scale)"
            shell:
                "python -m fedgrid.draw {params.product:q} --study {params.study:q}"
                " --sources {params.sources:q} --scale {wildcards.scale:q} --out {output:q} --log {log:q}"


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
