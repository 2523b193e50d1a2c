"""What all methods of a seed share: the partition, and what clients compute before training.

With SNAKEMAKE_OUTPUT_CACHE and --cache, checkouts share the results of the rules with `cache:`.
Snakemake takes them from there for forced jobs, too.
Snakemake identifies these results by params and inputs, not by wildcards, configuration or imported
code; `spec` and `code` contain all of these.
"""


rule partition:
    input:
        data="results/data/{dataset}/meta.json",
    output:
        f"results/partition/{PARTITION}.npz",
    log:
        f"results/logs/partition/{PARTITION}.log",
    cache: True
    conda:
        "../../envs/fedgrid.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        spec=partition_spec,
        code=partition_code,
        inputs=named,
    message:
        "partition: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid partition {params.spec:q} --inputs {params.inputs:q}"
        " --out {output:q} --log {log:q}"


rule pretrain:
    input:
        unpack(inputs("data", "partition", "weights")),
    output:
        temp(directory(f"results/pretrain/{CELL}")),
    log:
        f"results/logs/pretrain/{CELL}.log",
    cache: True
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=own_gpu("pretrain"),
        gres=shared_gpu("pretrain"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(memory),
        runtime=growing(240),
        # As for `train`; the next attempt resumes with the clients that are left.
        slurm_extra="--signal=TERM@120 --open-mode=append",
    params:
        spec=run_spec("pretrain"),
        code=run_code("pretrain"),
        inputs=named,
        checkpoint=f"results/checkpoints/pretrain/{CELL}",
    message:
        "pretrain: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" exec "$FEDGRID_PYTHON"'
        " -m fedgrid pretrain {params.spec:q} --inputs {params.inputs:q} --out {output:q}"
        " --checkpoint {params.checkpoint:q} --threads {threads} --log {log:q}"


rule saliency:
    input:
        unpack(inputs("data", "partition", "pretrain")),
    output:
        multiext(f"results/saliency/{CELL}", npz=".npz", csv=".csv", json=".json"),
    log:
        f"results/logs/saliency/{CELL}.log",
    cache: True
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=own_gpu("saliency"),
        gres=shared_gpu("saliency"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(memory),
        runtime=growing(120),
    params:
        spec=run_spec("saliency"),
        code=run_code("saliency"),
        inputs=named,
    message:
        "saliency: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid saliency {params.spec:q} --inputs {params.inputs:q}"
        " --out {output.npz:q} --threads {threads} --log {log:q}"


rule latents:
    input:
        unpack(inputs("data", "partition")),
    output:
        f"results/latents/{CELL}.npz",
    log:
        f"results/logs/latents/{CELL}.log",
    benchmark:
        f"results/benchmarks/latents/{CELL}.tsv"
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=own_gpu("latents"),
        gres=shared_gpu("latents"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(memory),
        runtime=growing(120),
    params:
        spec=run_spec("latents"),
        code=run_code("latents"),
        inputs=named,
    message:
        "latents: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid latents {params.spec:q} --inputs {params.inputs:q}"
        " --out {output:q} --threads {threads} --log {log:q}"
