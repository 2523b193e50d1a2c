"""Runs that share a SLURM job: what Snakemake asks of SLURM, of which there is only a pretence.

`tests/slurm` runs such jobs.
"""

import shlex
import shutil
import subprocess

import pytest

from conftest import ENVIRONMENT

METHODS = ("fedavg", "moon")
TARGETS = [f"results/runs/tiny/digits/dir0.1/{name}/seed0/metrics.csv" for name in METHODS]
# It notes what it is asked for, and takes no job.
SBATCH = """#!/bin/sh
printf '%s\\n' "$*" >> "{calls}"
exit 1
"""


@pytest.fixture
def asked(project, tmp_path):
    """Returns a function: the words of each `sbatch` that a Snakemake with options gives."""
    for made in ("runs", "checkpoints"):
        shutil.rmtree(project / "results" / made)
    programs, calls = tmp_path / "programs", tmp_path / "calls"
    programs.mkdir()
    for name in ("sbatch", "sacct", "squeue", "sinfo", "scontrol", "scancel", "sacctmgr"):
        text = SBATCH.format(calls=calls) if name == "sbatch" else "#!/bin/sh\n"
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def asked(*options: str) -> list[list[str]]:
        profile = ("--workflow-profile", "workflow/profiles/slurm", "--retries", "0")
        command = ["snakemake", *profile, "--configfile", "tiny.yaml", *options, "--", *TARGETS]
        environment = ENVIRONMENT | {"PATH": f"{programs}:{ENVIRONMENT['PATH']}"}
        subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=300)
        return [shlex.split(line) for line in calls.read_text().splitlines()]

    return asked


def after(words: list[str], *names: str) -> list[str]:
    """The words that follow others."""
    return [words[words.index(name) + 1] for name in names]


@pytest.mark.slow
def test_without_groups_every_run_has_a_job_and_a_gpu(asked):
    calls = asked("--config", "device=auto")
    assert len(calls) == 2
    for words in calls:
        assert {"--gpus=1", "--cpus-per-task=1"} <= {*words}
        assert not [word for word in words if word.startswith(("--gres", "--group"))]


def memory(words: list[str]) -> int:
    return int(after(words, "--mem")[0])


@pytest.mark.slow
def test_runs_of_a_group_have_one_job_and_one_gpu_and_the_memory_of_all(asked):
    grouped = ("--groups", "train=runs", "--group-components", "runs=2", "--config", "device=auto")
    (words,) = asked(*grouped)
    assert {"--gres=gpu:1", "--cpus-per-task=2"} <= {*words}
    assert not [word for word in words if word.startswith("--gpus")]
    assert (memory(words) > 2 * 2000, after(words, "-t")) == (True, ["480"])
    # The Snakemake in the job knows of the group.
    assert after(words, "--groups", "--group-components") == ["train=runs", "runs=2"]


@pytest.mark.slow
def test_runs_that_take_turns_need_more_time_and_not_more_memory(asked):
    (words,) = asked("--groups", "train=runs", "--group-components", "runs=2", "--cores", "1")
    assert {"--cpus-per-task=1"} <= {*words}
    assert after(words, "-t") == ["960"]
    assert memory(words) < 2 * 4000
    assert not [word for word in words if word.startswith(("--gres", "--gpus"))]
