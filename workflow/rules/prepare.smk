"""What all methods of a seed share: the partition, and what clients compute before training.

With SNAKEMAKE_OUTPUT_CACHE and --cache, checkouts share the results of the rules with `cache:`.
Snakemake takes them from there for forced jobs, too.
Snakemake identifies these results by params and inputs, not by wildcards, configuration or imported
code; `spec` and `code` contain all of these.
"""


rule partition:
    input:
        unpack(in_one_sentence(runs.inputs_of_partition)),
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
        spec=partition_specification,
        code=partition_code,
        inputs=name_inputs,
    message:
        "partition: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid partition {params.spec:q} --inputs {params.inputs:q}"
        " --out {output:q} --log {log:q}"


rule pretrain:
    input:
        unpack(in_one_sentence(runs.inputs("data", "partition", "weights"))),
    output:
        # Some storages have no folders.
        temp(f"results/pretrain/{CELL}.tar")
        if runs.has_storage
        else temp(directory(f"results/pretrain/{CELL}")),
    log:
        f"results/logs/pretrain/{CELL}.log",
    cache: True
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=runs.own_gpu("pretrain"),
        gres=runs.shared_gpu("pretrain"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(runs.memory("pretrain")),
        runtime=growing(240),
        # As for `train`; the next attempt resumes with the clients that are left.
        slurm_extra="--signal=TERM@120 --open-mode=append",
    params:
        spec=runs.specification("pretrain"),
        code=runs.code("pretrain"),
        inputs=name_inputs,
        checkpoint=f"results/checkpoints/pretrain/{CELL}",
    message:
        "pretrain: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" exec "$FEDGRID_PYTHON"'
        " -m fedgrid pretrain {params.spec:q} --inputs {params.inputs:q} --out {output:q}"
        " --checkpoint {params.checkpoint:q} --threads {threads} --log {log:q}"


rule saliency:
    input:
        unpack(in_one_sentence(runs.inputs("data", "partition", "pretrain"))),
    output:
        multiext(f"results/saliency/{CELL}", npz=".npz", csv=".csv", json=".json"),
    log:
        f"results/logs/saliency/{CELL}.log",
    cache: True
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=runs.own_gpu("saliency"),
        gres=runs.shared_gpu("saliency"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(runs.memory("saliency")),
        runtime=growing(120),
    params:
        spec=runs.specification("saliency"),
        code=runs.code("saliency"),
        inputs=name_inputs,
    message:
        "saliency: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid saliency {params.spec:q} --inputs {params.inputs:q}"
        " --out {output.npz:q} --threads {threads} --log {log:q}"


rule latents:
    input:
        unpack(in_one_sentence(runs.inputs("data", "partition"))),
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
        gpu=runs.own_gpu("latents"),
        gres=runs.shared_gpu("latents"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(runs.memory("latents")),
        runtime=growing(120),
    params:
        spec=runs.specification("latents"),
        code=runs.code("latents"),
        inputs=name_inputs,
    message:
        "latents: {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid latents {params.spec:q} --inputs {params.inputs:q}"
        " --out {output:q} --threads {threads} --log {log:q}"
