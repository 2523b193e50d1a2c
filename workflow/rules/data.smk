"""Download the original data once, if missing, and decode them into memory-mapped arrays.

A dataset with writers also has train_writers.npy, which its meta.json names. In a storage, where
every file is an output, a dataset without writers has empty files for them.
The memory is for the datasets of fedgrid, which are decoded whole. Data of one's own are decoded in
parts: they take 200 MB, and 1 kB for each picture.
"""


localrules:
    data,
    weights,


rule data:
    input:
        in_one_sentence(runs.check_data),
    output:
        multiext(
            "results/data/{dataset}/",
            *ARRAYS,
            "meta.json",
            *(WRITERS if runs.has_storage else ()),
        ),
    log:
        "results/logs/data/{dataset}.log",
    conda:
        "../../envs/fedgrid.yaml"
    resources:
        mem_mb=4000,
    params:
        code=dataset_code,
        out=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "data: {wildcards.dataset}"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid data {wildcards.dataset:q} --out {params.out:q} --log {log:q}"
        + (" && touch {output:q}" if runs.has_storage else "")


rule weights:
    output:
        "results/weights/{model}-{weights}.safetensors",
    log:
        "results/logs/weights/{model}-{weights}.log",
    conda:
        "../../envs/fedgrid.yaml"
    resources:
        mem_mb=2000,
    params:
        published=published_weights,
    message:
        "weights: {wildcards.model}, {wildcards.weights}"
    shell:
        'PYTHONPATH="$FEDGRID_CODE" "$FEDGRID_PYTHON"'
        " -m fedgrid weights {wildcards.model:q} --name {wildcards.weights:q}"
        " --out {output:q} --log {log:q}"
