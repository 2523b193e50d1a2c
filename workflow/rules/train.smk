"""One job trains one run: a method on a partition of a dataset, by a protocol, with one seed.

After a run with a shared and a private branch, another job evaluates mixtures of both.
"""


rule train:
    input:
        unpack(in_one_sentence(runs.inputs("data", "partition", "weights", "needs"))),
    output:
        **FILES,
    log:
        f"results/logs/runs/{RUN}.log",
    benchmark:
        f"results/benchmarks/runs/{RUN}.tsv"
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=runs.own_gpu("train"),
        gres=runs.shared_gpu("train"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(runs.memory("train")),
        runtime=growing(480),
        # A signal before the time limit, to save a checkpoint; one log for all attempts of a job.
        slurm_extra="--signal=TERM@120 --open-mode=append",
    params:
        spec=runs.specification("train"),
        code=runs.code("train"),
        inputs=name_inputs,
        # Not an output: Snakemake deletes outputs of a failed job, and the job resumes from this.
        checkpoint=f"results/checkpoints/runs/{RUN}.safetensors",
        out=lambda wildcards, output: Path(output.metrics).parent,
    message:
        "train: {wildcards.method} on {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" exec "$FEDGRID_PYTHON"'
        " -m fedgrid train {params.spec:q} --inputs {params.inputs:q} --out {params.out:q}"
        " --checkpoint {params.checkpoint:q} --threads {threads} --log {log:q}"


rule interpolation:
    input:
        unpack(
            in_one_sentence(
                runs.inputs("metrics", "data", "partition", "weights", "needs")
            )
        ),
    output:
        f"results/interpolation/{RUN}.csv",
    log:
        f"results/logs/interpolation/{RUN}.log",
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=runs.own_gpu("interpolation"),
        gres=runs.shared_gpu("interpolation"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(runs.memory("interpolation")),
        runtime=growing(120),
    params:
        spec=runs.specification("interpolation"),
        code=runs.code("interpolation"),
        inputs=name_inputs,
        checkpoint=f"results/checkpoints/runs/{RUN}.safetensors",
    message:
        "interpolation: {wildcards.method} on {wildcards.dataset} {wildcards.partition} seed {wildcards.seed}"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid interpolation {params.spec:q} --inputs {params.inputs:q} --out {output:q}"
        " --checkpoint {params.checkpoint:q} --threads {threads} --log {log:q}"
