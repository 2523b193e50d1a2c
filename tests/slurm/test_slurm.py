"""The workflow on a real SLURM cluster, and what is left of a run when its job is disturbed.

    python -m pytest -m slurm                   (make test-slurm)
    python -m pytest -m "slurm and not slow"    (make test-slurm-short)

Takes root, and Debian or a relative of it. The short form has a table, what a job asks for, and one
disturbance. FEDGRID_WHOLE_TABLE=1 makes the whole quick table 1 instead of a part of it: half an
hour more on two cores.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import ClassVar, NamedTuple

import cluster
import psutil
import pytest
import yaml
from cluster import Cluster, squeue, wait_for

from conftest import ENVIRONMENT, copied, saved_round
from fedgrid.study.jobs import memory_mb
from written import blocks

pytestmark = pytest.mark.slurm

HERE = Path(__file__).parent
SNAKEMAKE = ("env", "--default-signal=INT", "snakemake")  # a shell's background jobs ignore Ctrl-C
PROFILE = ("--workflow-profile", "workflow/profiles/slurm")
SOON = ("--slurm-init-seconds-before-status-checks", 5)
TABLE, TEX = "results/table1.csv", "results/table1.tex"
PART = ("--config", "partition=dir0.1", "method=fedavg,fedsls", "seed=0")
CONFIGURED = {"FEDGRID_SAVE_EVERY": "2", "SLURM_CONF": str(cluster.CONFIGURATION / "slurm.conf")}
SAVED = ("metrics.csv", "model.safetensors")
EARLY = 20  # rounds after which a run is disturbed
LASTS = {"long": 60, "longer": 150}  # seconds; SLURM warns of a limit of three minutes in between


@pytest.fixture(scope="module")
def slurm(request, tmp_path_factory) -> Cluster:
    """A cluster for all tests of this file; where there can be none they are skipped."""
    if "slurm" not in request.config.option.markexpr:
        pytest.skip("a SLURM cluster is brought up only when asked for: pytest -m slurm")
    if reason := cluster.impossible():
        pytest.skip(reason)
    with cluster.up(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def idle(slurm) -> Cluster:
    """The cluster with all nodes idle, before a test and after it."""
    yield slurm
    for snakemake in Snakemake.started:
        snakemake.kill()
    slurm.repair()


# -- snakemake ------------------------------------------------------------------------------------


class Snakemake:
    """A Snakemake at work in a project, what it says in a file."""

    started: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, project: Path, *arguments):
        self.said_in = project / f"snakemake{len(list(project.glob('snakemake*.txt')))}.txt"
        with self.said_in.open("w") as file:
            self.process = subprocess.Popen(
                [*SNAKEMAKE, *map(str, arguments)], cwd=project, stdout=file, stderr=file,
                env=ENVIRONMENT | CONFIGURED, start_new_session=True,
            )  # fmt: skip
        self.started.append(self.process)

    def said(self) -> str:
        """All that it has said so far."""
        return self.said_in.read_text()

    def finished(self, seconds: float = 600) -> str:
        """What it has said in the end, if it succeeds."""
        assert self.process.wait(seconds) == 0, self.said()
        return self.said()


def locally(project: Path, *arguments) -> str:
    """What Snakemake says when it makes something without SLURM."""
    return Snakemake(project, "--cores", 2, *arguments).finished(3600)


def run(protocol: str) -> str:
    """The folder of a run of `long.yaml`, under results/runs."""
    return f"{protocol}/digits/dir0.1/fedau/seed0"


def target(protocol: str) -> str:
    """What Snakemake is asked for."""
    return f"results/runs/{run(protocol)}/metrics.csv"


def long_enough(project: Path) -> None:
    """Adds to a project's `long.yaml` runs that take as long as `LASTS` says on this machine."""
    locally(project, "--configfile", "long.yaml", "--", target("short"))
    summary = json.loads((project / f"results/runs/{run('short')}/summary.json").read_text())
    speed = summary["rounds_per_second"]
    config = yaml.safe_load((project / "long.yaml").read_text())
    for name, seconds in LASTS.items():
        config["protocols"][name] = {"base": "short", "rounds": round(seconds * speed)}
    (project / "long.yaml").write_text(yaml.safe_dump(config))


@pytest.fixture(scope="module")
def undisturbed(slurm, tmp_path_factory) -> Path:
    """A project with the run `long`, made without SLURM."""
    project = copied(tmp_path_factory.mktemp("undisturbed"))
    shutil.copy(HERE / "long.yaml", project)
    long_enough(project)
    locally(project, "--configfile", "long.yaml", "--", target("long"))
    return project


@pytest.fixture(scope="module")
def longer(undisturbed) -> None:
    """The run `longer`, made in the same project."""
    locally(undisturbed, "--configfile", "long.yaml", "--", target("longer"))


@pytest.fixture
def project(undisturbed, tmp_path) -> Path:
    """A copy that has the partition and not the runs."""
    folder = shutil.copytree(undisturbed, tmp_path / "project")
    for made in ("runs", "checkpoints"):
        shutil.rmtree(folder / "results" / made)
    return folder


# -- what happens to a run ------------------------------------------------------------------------


class Disturbed(NamedTuple):
    """A run that SLURM makes while something happens to it."""

    project: Path
    protocol: str
    snakemake: Snakemake

    @property
    def log(self) -> str:
        """What the run has said; Snakemake starts its file anew with every job."""
        path = self.project / f"results/logs/runs/{run(self.protocol)}.log"
        return path.read_text() if path.exists() else ""

    def saved_round(self) -> int:
        """The round after which the last checkpoint was saved; 0 if there is none."""
        file = f"results/checkpoints/runs/{run(self.protocol)}.safetensors"
        return saved_round(self.project / file)

    def wait(self, rounds: int = EARLY) -> None:
        """Until so many rounds are in a checkpoint, and the log has said how fast they are."""
        wait_for(lambda: self.saved_round() >= rounds, 120, "no checkpoint")
        wait_for(lambda: " left" in self.log, 60, "no progress in the log")
        assert self.snakemake.process.poll() is None

    def job(self) -> tuple[str, str]:
        """The id of the job that is running, and its node."""
        (line,) = squeue("%i %N", "--states", "running")
        return tuple(line.split())

    def reached(self) -> int:
        """About the round that the run is in, by its log's last line."""
        progress = r"^(\S+ \S+) round (\d+)/(\d+) .* (\d+):(\d+):(\d+) left"
        then, *numbers = re.findall(progress, self.log, re.MULTILINE)[-1]
        done, total, hours, minutes, seconds = map(int, numbers)
        speed = (total - done) / max(3600 * hours + 60 * minutes + seconds, 1)
        ago = time.time() - datetime.strptime(then, "%Y-%m-%d %H:%M:%S").timestamp()
        return done + int(ago * speed)

    def stopped_after(self) -> int | None:
        """The round after which a job stopped in good order, by SLURM's logs, if one did."""
        logs = (self.project / "results/logs/slurm").rglob("*.log")
        logs = sorted(logs, key=lambda path: int(path.stem))
        found = re.findall(r"stopped after round (\d+)", "".join(map(Path.read_text, logs)))
        return int(found[-1]) if found else None

    def summary(self) -> dict:
        path = self.project / f"results/runs/{run(self.protocol)}/summary.json"
        return json.loads(path.read_text())


@pytest.fixture(scope="module")
def report(request):
    """Adds a line to the table that is printed after the last test."""
    rows = ["event | detected as | reached | resumed at | computed again | same bytes | seconds"]
    yield lambda *cells: rows.append(" | ".join(map(str, cells)))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *rows, sep="\n")


@pytest.fixture
def disturb(idle, project, undisturbed, report) -> Callable:
    """Makes a run on the cluster, does something to it, and says what came of it."""

    def play(name: str, act: Callable, *options, protocol: str = "long", early: int = EARLY):
        began = time.monotonic()
        command = (*PROFILE, *SOON, "--configfile", "long.yaml", *options, "--", target(protocol))
        made = Disturbed(project, protocol, Snakemake(project, *command))
        made.wait(early)
        reached = act(made)
        said = made.snakemake.finished()
        seconds = round(time.monotonic() - began)
        detected = re.findall(r"SLURM status is: '(\w+)'", said)
        resumed = made.summary()["resumed_at"]
        reached = max(made.stopped_after() or reached, resumed)  # estimated, and there at least
        same = same_bytes(project, undisturbed, protocol)
        again = f"{reached - resumed} of {made.summary()['rounds']}"
        report(name, ", ".join(detected), reached, resumed, again, same, seconds)
        assert same
        assert resumed >= early
        assert not keepers()
        return made, detected

    return play


def same_bytes(project: Path, undisturbed: Path, protocol: str) -> bool:
    """Whether a run's results are those that a run without SLURM leaves."""
    files = [f"results/runs/{run(protocol)}/{name}" for name in SAVED]
    return all((project / f).read_bytes() == (undisturbed / f).read_bytes() for f in files)


# -- tables ---------------------------------------------------------------------------------------


def of_the_tutorial() -> list[str]:
    """The arguments of the tutorial's first command, with a partition that this cluster has."""
    (command,) = [one for one in blocks("tutorials/slurm.md", "sh") if "slurm" in one.classes]
    text = command.text.replace("\\\n", " ").replace("slurm_partition=gpu", "slurm_partition=high")
    _, *arguments = shlex.split(text)
    return arguments


def test_a_table_is_that_of_a_run_without_slurm(idle, tmp_path, report):
    whole = os.environ.get("FEDGRID_WHOLE_TABLE")
    part = () if whole else PART
    asked = (*PROFILE, "--", TABLE, TEX) if whole else of_the_tutorial()
    here, there = copied(tmp_path / "here"), copied(tmp_path / "there")
    began = time.monotonic()
    locally(here, *part, "--", TABLE, TEX)
    local = time.monotonic() - began
    said = Snakemake(there, *SOON, *asked).finished(3600)
    seconds = time.monotonic() - began - local
    jobs = len(set(re.findall(r"submitted with SLURM jobid (\d+)", said)))
    for table in (TABLE, TEX):
        assert (here / table).read_bytes() == (there / table).read_bytes()
    report(f"none: table 1, {jobs} jobs", "", "", "", "", True, f"{seconds:.0f}, {local:.0f} here")
    assert not list((there / "results/logs/slurm").rglob("*.log"))


# -- several runs in one job ----------------------------------------------------------------------

GROUPED = ("--groups", "train=runs", "--group-components", "runs=4", "--cores", 2)


@pytest.mark.slow
def test_four_runs_share_a_job_a_gpu_and_an_import_of_pytorch(idle, tmp_path, report):
    part = ("--config", "partition=dir0.1", "method=fedavg,moon", "seed=0,1", "device=auto")
    here, there = copied(tmp_path / "here"), copied(tmp_path / "there")
    locally(here, *part, "--", TABLE)
    began = time.monotonic()
    grouped = Snakemake(there, *PROFILE, *SOON, *GROUPED, *part, "--", TABLE)
    wait_for(lambda: len(trainers(there)) == 2, 300, "no two runs side by side")
    (job,) = squeue("%i", "--states", "running")
    asked = subprocess.check_output(["scontrol", "show", "job", "-o", job], text=True)
    seen = {one.environ()["CUDA_VISIBLE_DEVICES"] for one in trainers(there)}
    wait_for(keepers, 300, "no process in the job has imported PyTorch for the runs")
    said = grouped.finished(900)
    fields = dict(field.partition("=")[::2] for field in asked.split())
    # Two runs at a time, and so the cores and the memory of two and the minutes of two turns.
    expected = {"CPUs/Task": "2", "TimeLimit": "16:00:00", "TresPerNode": "gres:gpu:1"}
    assert expected.items() <= fields.items()
    assert int(fields["MinMemoryNode"].rstrip("M")) >= 2 * 4000
    assert len(seen) == 1
    wait_for(lambda: not keepers(), 60, "the process outlives its job")
    jobs = re.findall(r"submitted with SLURM jobid \d+ \(log: .*/slurm/(\w+)", said)
    assert jobs.count("group_runs_train") == 1
    assert not any("train" in one for one in jobs if one != "group_runs_train")
    assert (here / TABLE).read_bytes() == (there / TABLE).read_bytes()
    seconds = time.monotonic() - began
    report(f"none: 4 runs in 1 of {len(jobs)} jobs", "", "", "", "", True, f"{seconds:.0f}")


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_a_group_keeps_what_is_finished_if_one_of_its_runs_is_killed(
    idle, project, undisturbed, report
):
    began = time.monotonic()
    targets = [target(protocol) for protocol in LASTS]
    command = (*PROFILE, *SOON, *GROUPED, "--configfile", "long.yaml", "--", *targets)
    snakemake = Snakemake(project, *command)
    short, killed = (Disturbed(project, protocol, snakemake) for protocol in LASTS)
    killed.wait()
    (victim,) = [p for p in trainers(project) if "longer" in " ".join(p.cmdline())]
    victim.kill()
    said = snakemake.finished(900)
    seconds = round(time.monotonic() - began)
    resumed, same = killed.summary()["resumed_at"], same_bytes(project, undisturbed, "longer")
    report("a run of a group killed", "", "", resumed, "", same, seconds)
    assert len(re.findall(r"submitted with SLURM jobid", said)) == 2
    assert "was finished before" in short.log
    assert resumed >= EARLY
    assert same
    assert same_bytes(project, undisturbed, "long")


def keepers() -> list[psutil.Process]:
    """The processes in SLURM jobs that have imported PyTorch for the runs of a group."""
    found = []
    for process in processes("fedgrid.runtime.warm"):
        with suppress(psutil.NoSuchProcess):  # of two that start, one ends at once
            found += [process] if "SLURM_JOB_ID" in process.environ() else []
    return found


def trainers(project: Path) -> list[psutil.Process]:
    """The processes that train in a project, as Snakemake started them."""
    return [p for p in processes("fedgrid", "train") if p.cwd() == str(project)]


# -- what a job asks for --------------------------------------------------------------------------


def test_the_command_line_says_where_and_the_rules_say_what(idle, project, undisturbed):
    where = ("--default-resources", "slurm_partition=high", "slurm_account=lab")
    longer = ("--set-resources", "train:runtime=2880")
    command = (*PROFILE, *SOON, "--configfile", "long.yaml", "--config", "device=auto")
    snakemake = Snakemake(project, *command, *where, *longer, "--", target("long"))
    made = Disturbed(project, "long", snakemake)
    made.wait()
    job, _ = made.job()
    asked = subprocess.check_output(["scontrol", "show", "job", "-o", job], text=True)
    expected = {"Partition": "high", "Account": "lab", "TimeLimit": "2-00:00:00", "Requeue": "1"}
    summary = json.loads((undisturbed / f"results/runs/{run('long')}/summary.json").read_text())
    megabytes = memory_mb(summary["run"])
    expected |= {"MinMemoryNode": f"{megabytes}M", "TresPerJob": "gres:gpu:1", "CPUs/Task": "1"}
    fields = dict(field.partition("=")[::2] for field in asked.split())
    assert expected.items() <= fields.items()
    assert Path(fields["StdOut"]).is_relative_to(project / "results/logs/slurm/rule_train")
    environment = trainer(project).environ()
    assert environment["CUDA_VISIBLE_DEVICES"] in {"0", "1"}
    assert environment["FEDGRID_WARM"] == ""
    assert not keepers()
    snakemake.process.send_signal(signal.SIGINT)
    snakemake.process.wait(60)
    wait_for(lambda: not squeue("%i"), 60, "a job after Ctrl-C")


def processes(*words: str) -> list[psutil.Process]:
    """Those that run a module, or a command of it."""
    everything, end = psutil.process_iter(["cmdline"]), len(words) + 2
    return [p for p in everything if ["-m", *words] == (p.info["cmdline"] or [])[1:end]]


def trainer(project: Path) -> psutil.Process:
    """The process that trains in a project."""
    (found,) = trainers(project)
    return found


# -- what disturbs a job --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_a_time_limit_is_warned_of_and_the_next_attempt_goes_on(disturb):
    limit = ("--set-resources", "train:runtime=3 * attempt")
    made, detected = disturb("time limit, warned", lambda made: 0, *limit, protocol="longer")
    assert set(detected) == {"FAILED"}  # it saved and ended; twice, on a slow machine
    assert made.stopped_after() == made.summary()["resumed_at"]


@pytest.mark.slow
def test_a_time_limit_without_a_checkpoint_in_time(disturb):
    warned = "train:slurm_extra='--signal=TERM@30 --open-mode=append'"  # of two minutes
    limit = ("--set-resources", "train:runtime=2 * attempt", warned)
    assert disturb("time limit, deaf", deaf, *limit)[1] == ["TIMEOUT"]


def deaf(made: Disturbed) -> int:
    """Nothing but SIGKILL reaches the process that trains any more: SLURM's SIGCONT is undone."""
    reached, process = made.reached(), trainer(made.project)

    def hold() -> None:
        with suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                process.suspend()
                time.sleep(0.005)

    Thread(target=hold, daemon=True).start()
    return reached


def test_scancel(disturb):
    def act(made: Disturbed) -> int:
        job, _ = made.job()
        reached = made.reached()
        subprocess.run(["scancel", job], check=True)
        return reached

    assert disturb("scancel", act)[1] == ["CANCELLED"]


def important(made: Disturbed) -> int:
    """Somebody with priority takes both nodes for a while."""
    reached = made.reached()
    command = ["sbatch", "--partition", "high", "--nodes", "2", "--exclusive", "--output"]
    subprocess.run([*command, "/dev/null", "--wrap", "sleep 15"], check=True)
    return reached


def important_to_the_deaf(made: Disturbed) -> int:
    """The same for a process that must be killed after the grace time."""
    deaf(made)
    return important(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "act", "partition"),
    [
        ("pre-emption, saved", important, "low"),
        ("pre-emption, deaf", important_to_the_deaf, "low"),
        ("pre-emption at once", important, "lowest"),
    ],
)
def test_preemption(name, act, partition, disturb):
    disturb(name, act, "--default-resources", f"slurm_partition={partition}")


@pytest.mark.slow
def test_a_node_that_goes_down(disturb, idle):
    def act(made: Disturbed) -> int:
        reached, (_, node) = made.reached(), made.job()
        idle.fail_node(node)
        return reached

    disturb("node down", act)


@pytest.mark.slow
def test_snakemake_killed_while_a_job_trains(idle, project, undisturbed, report):
    began = time.monotonic()
    command = (*PROFILE, *SOON, "--configfile", "long.yaml")
    made = Disturbed(project, "long", Snakemake(project, *command, "--", target("long")))
    made.wait()
    held = trainer(project)
    held.suspend()  # or it might be through before the second job begins
    orphan, node = made.job()
    made.snakemake.process.kill()
    Snakemake(project, "--unlock", "--configfile", "long.yaml").finished()
    elsewhere = f"train:slurm_extra='--signal=TERM@120 --exclude={node}'"
    again = Snakemake(project, *command, "--set-resources", elsewhere, "--", target("long"))
    wait_for(lambda: "which is working on it" in made.log, 120, "no second job")
    held.resume()
    again.finished()
    states = squeue("%T", "--states", "all", "--jobs", orphan)
    said = made.log
    same = same_bytes(project, undisturbed, "long")
    seconds = round(time.monotonic() - began)
    summary = made.summary()
    report("snakemake killed", states, "", summary["resumed_at"], 0, same, seconds)
    assert "was finished before" in said
    assert states == ["COMPLETED"]
    assert (same, summary["resumed_at"]) == (True, 0)
