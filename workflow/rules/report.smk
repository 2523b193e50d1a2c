"""Collect the results of runs, and draw the tables and figures of the papers."""

# One rule for every kind of collected table: runs_table, partition_table and so on.
for kind in COLLECTED:

    rule:
        name:
            f"{kind}_table"
        input:
            tables.inputs(kind),
        output:
            f"{plan.folder}/{kind}/{{grid}}.csv",
        log:
            beside("logs", f"{plan.folder}/{kind}/{{grid}}.log"),
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            kind=kind,
            grid=tables.arguments(kind),
            fields=list(SUMMED),
            content=tables.content(kind),
            code=code_of("store.tables"),
        message:
            f"collect: {kind} of {{wildcards.study}} {{wildcards.scale}} {{wildcards.grid}}"
        shell:
            'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
            " -m fedgrid collect {params.kind:q} @{params.grid:q} --out {output:q} --log {log:q}"


# One rule for every product, for all of its formats; `snakemake fedsls` makes all of them.
for study in plan.studies:

    rule:
        name:
            study
        input:
            products.whole_study(study),
        localrule: True

    # A product about claims is there once more for one claim, of which it needs only the runs:
    # results/claims/3.csv.
    for product, path in products.copied(study):

        rule:
            name:
                f"{study}_{product}{'_one' * (path != product)}"
            input:
                unpack(in_one_sentence(products.sources(study, product))),
            output:
                *in_report(study, product, path),
            log:
                beside(
                    "logs",
                    f"{products.path(study, path)}{'.{ext}' * (path != product)}.log",
                ),
            localrule: True
            conda:
                "../../envs/fedgrid.yaml"
            params:
                **products.about(study, product, path),
                product=product,
                study=study,
                sources=name_inputs,
                facts=products.facts(study),
                content=products.content(study, product),
                entry=products.entry(study, product),
                code=products.code(study, product),
            message:
                f"draw: {study} {product}{' of claim {wildcards.claim}' * (path != product)} ({{wildcards.scale}} scale)"
            shell:
                'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
                " -m fedgrid draw {params.product:q} --study {params.study:q} --entry {params.entry:q}"
                " --sources {params.sources:q} --scale {wildcards.scale:q} --out {output:q} --log {log:q}"


# The products of the study and scale in config.yaml, under short names: results_table1 and so on, and
# results_claims_one for one claim. Copying takes less than a tick of the file system's clock (at
# most 10 ms), so its run time would be 0, which the logarithmic axis of the report cannot show. The
# pause avoids this.
for product, path in products.copied(config["study"]):

    rule:
        name:
            f"results_{product}{'_one' * (path != product)}"
        input:
            f"{plan.current_folder}/{path}.{{ext}}",
        output:
            f"results/{path}.{{ext}}",
        log:
            f"results/logs/{path}.{{ext}}.log",
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            content=products.content(config["study"], product),
        message:
            "{output}: a copy of the study's file"
        shell:
            "sleep 0.02; cp {input:q} {output:q} 2> {log:q}"
