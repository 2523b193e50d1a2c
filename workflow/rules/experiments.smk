"""Measurements of a study besides its runs: fidelity of maps to images, cost of encoding."""

FIDELITY = f"{plan.experiments_folder}/fidelity"


rule originals:
    input:
        unpack(experiments.images),
    output:
        f"{FIDELITY}/originals.npz",
    log:
        beside("logs", f"{FIDELITY}/originals.log"),
    conda:
        "../../envs/fedgrid.yaml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        setting=experiments.setting("fidelity"),
        inputs=lambda w, input: [f"{n}={Path(p[0]).parent}" for n, p in input.items()],
        code=code_of("experiments.fidelity.originals"),
    message:
        "originals: the images of {wildcards.study}'s fidelity study ({wildcards.scale} scale)"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.originals {params.setting:q} --inputs {params.inputs:q}"
        " --out {output:q} --log {log:q}"


rule maps:
    input:
        unpack(experiments.weights("model")),
        originals=f"{FIDELITY}/originals.npz",
    output:
        f"{FIDELITY}/{{encoder}}-seed{{seed}}.npz",
    log:
        beside("logs", f"{FIDELITY}/{{encoder}}-seed{{seed}}.log"),
    benchmark:
        beside("benchmarks", f"{FIDELITY}/{{encoder}}-seed{{seed}}.tsv")
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(6000),
        runtime=growing(120),
    params:
        setting=experiments.setting("fidelity"),
        inputs=lambda w, input: [f"{n}={p}" for n, p in input.items()],
        code=experiments.code("fidelity.maps", "model"),
    message:
        "maps: {wildcards.encoder}, seed {wildcards.seed} ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.maps {params.setting:q} --encoder {wildcards.encoder:q}"
        " --seed {wildcards.seed} --inputs {params.inputs:q} --out {output:q}"
        " --threads {threads} --log {log:q}"


rule scores:
    input:
        unpack(experiments.weights("judge")),
        originals=f"{FIDELITY}/originals.npz",
        maps=lambda w: experiments.maps(w).values(),
    output:
        scores=f"{FIDELITY}/scores.csv",
        examples=f"{FIDELITY}/examples.csv",
    log:
        beside("logs", f"{FIDELITY}/scores.log"),
    benchmark:
        beside("benchmarks", f"{FIDELITY}/scores.tsv")
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(8000),
        runtime=growing(120),
    params:
        setting=experiments.setting("fidelity"),
        inputs=lambda w, input: [
            f"{'judge' if n == 'weights' else n}={p}"
            for n, p in input.items()
            if n != "maps"
        ],
        maps=experiments.maps_by_name,
        code=experiments.code("fidelity.scores", "judge"),
    message:
        "scores: similarity of maps to images ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.scores {params.setting:q} --inputs {params.inputs:q}"
        " --maps {params.maps:q} --out {output.scores:q} --examples {output.examples:q}"
        " --threads {threads} --log {log:q}"


rule costs:
    output:
        f"{plan.experiments_folder}/costs.csv",
    log:
        beside("logs", f"{plan.experiments_folder}/costs.log"),
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        setting=experiments.setting("costs"),
        code=experiments.code("costs", "model"),
    message:
        "costs: memory and time of encoding ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.costs {params.setting:q} --out {output:q} --threads {threads}"
        " --log {log:q}"
