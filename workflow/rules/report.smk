"""Collect the results of runs, and draw the tables and figures of the papers."""

# One rule for every kind of collected table: runs_table, partition_table and so on.
for kind in COLLECTED:

    rule:
        name:
            f"{kind}_table"
        input:
            leaves(kind),
        output:
            f"results/studies/{{study}}/{{scale}}/{kind}/{{grid}}.csv",
        log:
            f"results/logs/studies/{{study}}/{{scale}}/{kind}/{{grid}}.log",
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            kind=kind,
            grid=lambda wildcards: json.dumps(GRID.narrowed(*place(wildcards))),
            protocols=lambda wildcards: json.dumps(
                GRID.summed(GRID.narrowed(*place(wildcards)))
            ),
            content=table_content(kind),
            code=source.fingerprint("collect"),
        message:
            f"collect: {kind} of {{wildcards.study}} {{wildcards.scale}} {{wildcards.grid}}"
        shell:
            'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
            " -m fedgrid.collect {params.kind:q} {params.grid:q} --protocols {params.protocols:q}"
            " --out {output:q} --log {log:q}"


# One rule for every product, for all of its formats; `snakemake fedsls` makes all of them.
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
                content=content(study, product),
                about=caption(study, product),
                options=json.dumps(STUDIES[study]["products"][product].get("with", {})),
                code=source.fingerprint("draw", product_file(study, product)),
            message:
                f"draw: {study} {product} ({{wildcards.scale}} scale)"
            shell:
                'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
                " -m fedgrid.draw {params.product:q} --study {params.study:q}"
                " --sources {params.sources:q} --scale {wildcards.scale:q} --out {output:q} --log {log:q}"


# The products of the study and scale in config.yaml, under short names: results_table1 and so on.
# Copying takes less than a tick of the file system's clock (at most 10 ms), so its run time would
# be 0, which the logarithmic axis of the report cannot show. The pause avoids this.
for product in STUDIES[config["study"]]["products"]:

    rule:
        name:
            f"results_{product}"
        input:
            f"results/studies/{config['study']}/{config['scale']}/{product}.{{ext}}",
        output:
            f"results/{product}.{{ext}}",
        log:
            f"results/logs/{product}.{{ext}}.log",
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            content=content(config["study"], product),
        message:
            "{output}: a copy from the study and scale in config.yaml"
        shell:
            "sleep 0.02; cp {input:q} {output:q} 2> {log:q}"
