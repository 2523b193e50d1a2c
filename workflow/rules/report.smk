"""Collect the results of runs, and draw the tables and figures of the papers."""

from functools import partial

# One rule for every kind of collected table: runs_table, partition_table and so on.
for kind in COLLECTED:

    rule:
        name:
            f"{kind}_table"
        input:
            leaves(kind),
        output:
            f"{HERE}/{kind}/{{grid}}.csv",
        log:
            beside("logs", f"{HERE}/{kind}/{{grid}}.log"),
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            kind=kind,
            grid=collected_grid(kind),
            fields=list(SUMMED),
            content=table_content(kind),
            code=source.fingerprint("store.tables"),
        message:
            f"collect: {kind} of {{wildcards.study}} {{wildcards.scale}} {{wildcards.grid}}"
        shell:
            'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
            " -m fedgrid collect {params.kind:q} @{params.grid:q} --out {output:q} --log {log:q}"


# One rule for every product, for all of its formats; `snakemake fedsls` makes all of them.
for study in STUDIES:

    rule:
        name:
            study
        input:
            everything(study),
        localrule: True

    rule:
        name:
            f"{study}_front"
        input:
            unpack(front_files(study)),
        output:
            front_page(study),
        log:
            beside("logs", f"{front_page(study)}.log"),
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            study=study,
            facts=facts(study),
            parts=front_options(study),
            code=source.fingerprint("page.front"),
        message:
            f"front: the first page of the report of {study} ({{wildcards.scale}} scale)"
        shell:
            'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
            " -m fedgrid front --study {params.study:q} --scale {wildcards.scale:q}"
            " {params.parts:q} --out {output:q} --log {log:q}"

    for product in STUDIES[study]["products"]:

        rule:
            name:
                f"{study}_{product}"
            input:
                unpack(sources(study, product)),
            output:
                *drawn(study, product),
            log:
                beside("logs", f"{product_path(study, product)}.log"),
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
                entry=entry(study, product),
                code=source.fingerprint("report._formats", product_file(study, product)),
            message:
                f"draw: {study} {product} ({{wildcards.scale}} scale)"
            shell:
                'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
                " -m fedgrid draw {params.product:q} --study {params.study:q} --entry {params.entry:q}"
                " --sources {params.sources:q} --scale {wildcards.scale:q} --out {output:q} --log {log:q}"

    # A product about one claim needs only the runs of this claim: results/claims/3.csv.
    for product in filter(partial(is_by_claim, study), STUDIES[study]["products"]):

        rule:
            name:
                f"{study}_{product}_one"
            input:
                unpack(sources_of_claim(study, product)),
            output:
                f"{product_path(study, product)}/{{claim}}.{{ext}}",
            log:
                beside("logs", f"{product_path(study, product)}/{{claim}}.{{ext}}.log"),
            localrule: True
            conda:
                "../../envs/fedgrid.yaml"
            params:
                product=product,
                study=study,
                sources=named,
                facts=facts(study),
                content=claim_content(study, product),
                entry=entry(study, product),
                code=source.fingerprint("report._formats", product_file(study, product)),
            message:
                f"draw: {study} {product} of claim {{wildcards.claim}} ({{wildcards.scale}} scale)"
            shell:
                'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
                " -m fedgrid draw {params.product:q} --study {params.study:q} --entry {params.entry:q}"
                " --sources {params.sources:q} --scale {wildcards.scale:q} --out {output:q} --log {log:q}"


# The products of the study and scale in config.yaml, under short names: results_table1 and so on, and
# results_claims_one for one claim. Copying takes less than a tick of the file system's clock (at
# most 10 ms), so its run time would be 0, which the logarithmic axis of the report cannot show. The
# pause avoids this.
for product, path in copied_products(config["study"]):

    rule:
        name:
            f"results_{product}{'_one' * (path != product)}"
        input:
            f"{CURRENT}/{path}.{{ext}}",
        output:
            f"results/{path}.{{ext}}",
        log:
            f"results/logs/{path}.{{ext}}.log",
        localrule: True
        conda:
            "../../envs/fedgrid.yaml"
        params:
            content=(content if path == product else claim_content)(
                config["study"], product
            ),
        message:
            "{output}: a copy of the study's file"
        shell:
            "sleep 0.02; cp {input:q} {output:q} 2> {log:q}"
