"""Measurements of a study besides its runs: fidelity of maps to images, cost of encoding."""


rule originals:
    input:
        unpack(
            lambda w: {
                name: f"results/data/{name}/meta.json"
                for name in fidelity_setting(w)["images"]
            }
        ),
    output:
        f"{EXPERIMENT}/fidelity/originals.npz",
    log:
        beside("logs", f"{EXPERIMENT}/fidelity/originals.log"),
    conda:
        "../../envs/fedgrid.yaml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        setting=lambda w: json.dumps(fidelity_setting(w)),
        inputs=lambda w, input: [f"{n}={Path(p).parent}" for n, p in input.items()],
        code=source.fingerprint("experiments.fidelity.originals"),
    message:
        "originals: the images of {wildcards.study}'s fidelity study ({wildcards.scale} scale)"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.originals {params.setting:q} --inputs {params.inputs:q}"
        " --out {output:q} --log {log:q}"


rule maps:
    input:
        unpack(network("model", "weights")),
        originals=f"{EXPERIMENT}/fidelity/originals.npz",
    output:
        f"{EXPERIMENT}/fidelity/{{encoder}}-seed{{seed}}.npz",
    log:
        beside("logs", f"{EXPERIMENT}/fidelity/{{encoder}}-seed{{seed}}.log"),
    benchmark:
        beside("benchmarks", f"{EXPERIMENT}/fidelity/{{encoder}}-seed{{seed}}.tsv")
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(6000),
        runtime=growing(120),
    params:
        setting=lambda w: json.dumps(fidelity_setting(w)),
        inputs=lambda w, input: [f"{n}={p}" for n, p in input.items()],
        code=lambda w: source.fingerprint(
            "experiments.fidelity.maps", f"models.{fidelity_setting(w)['model']}"
        ),
    message:
        "maps: {wildcards.encoder}, seed {wildcards.seed} ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.maps {params.setting:q} --encoder {wildcards.encoder:q}"
        " --seed {wildcards.seed} --inputs {params.inputs:q} --out {output:q}"
        " --threads {threads} --log {log:q}"


rule scores:
    input:
        unpack(network("judge", "judge_weights")),
        originals=f"{EXPERIMENT}/fidelity/originals.npz",
        maps=lambda w: every_map(w).values(),
    output:
        scores=f"{EXPERIMENT}/fidelity/scores.csv",
        examples=f"{EXPERIMENT}/fidelity/examples.csv",
    log:
        beside("logs", f"{EXPERIMENT}/fidelity/scores.log"),
    benchmark:
        beside("benchmarks", f"{EXPERIMENT}/fidelity/scores.tsv")
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(8000),
        runtime=growing(120),
    params:
        setting=lambda w: json.dumps(fidelity_setting(w)),
        inputs=lambda w, input: [
            f"{'judge' if n == 'weights' else n}={p}"
            for n, p in input.items()
            if n != "maps"
        ],
        maps=lambda w: on_line(
            [f"{name}={path}" for name, path in every_map(w).items()]
        ),
        code=lambda w: source.fingerprint(
            "experiments.fidelity.scores", f"models.{fidelity_setting(w)['judge']}"
        ),
    message:
        "scores: similarity of maps to images ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.fidelity.scores {params.setting:q} --inputs {params.inputs:q}"
        " --maps {params.maps:q} --out {output.scores:q} --examples {output.examples:q}"
        " --threads {threads} --log {log:q}"


rule costs:
    output:
        f"{EXPERIMENT}/costs.csv",
    log:
        beside("logs", f"{EXPERIMENT}/costs.log"),
    conda:
        "../../envs/fedgrid.yaml"
    threads: config["threads"]
    resources:
        gpu=int(config["device"] != "cpu"),
        vram_gb=config["vram_gb"],
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        setting=lambda w: json.dumps(costs_setting(w)),
        code=lambda w: source.fingerprint(
            "experiments.costs", f"models.{costs_setting(w)['model']}"
        ),
    message:
        "costs: memory and time of encoding ({wildcards.scale} scale)"
    shell:
        'FEDGRID_VRAM_GB={resources.vram_gb} PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid.experiments.costs {params.setting:q} --out {output:q} --threads {threads}"
        " --log {log:q}"
