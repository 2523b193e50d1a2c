"""A SLURM of two nodes on this machine: real daemons, two GPUs a node that are not there.

Without accounting, as small clusters have it: nothing but squeue says how a job ended.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
NAME = "fedgridtest"
NODES = {"n1": 17101, "n2": 17102}  # their ports
CPUS = GPUS = 2
# srun inside a job finds its cluster only here: the plugin takes SLURM_CONF away from it.
CONFIGURATION = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf", "cgroup.conf")

SLURM_CONF = """
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17100
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
# Neither cgroups nor pinning: a container has none to give, and the CPUs are not there either.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SchedulerParameters=bf_interval=2,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
KillWait=5
# After so many seconds a job that was taken from its node begins again; 120 if this is not said.
AuthInfo=cred_expire=30
SlurmdTimeout=10
ReturnToService=2
{nodes}
PartitionName=usual Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=5
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=lowest Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF
"""


def impossible() -> str | None:
    """Why there can be no cluster here, if there can be none."""
    if os.name != "posix" or os.geteuid() != 0:
        return "the daemons of a SLURM cluster run as root, and this is not root"
    there = CONFIGURATION / "slurm.conf"
    if there.exists() and NAME not in there.read_text():
        return f"this machine belongs to a cluster: there is {there}"
    if all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))):
        return None
    if not shutil.which("apt-get"):
        return "SLURM is not installed, and without apt-get it cannot be"
    return install()


def install() -> str | None:
    """Install SLURM's packages; why that failed, if it did."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-qq", *command], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            return f"SLURM could not be installed: {done.stderr.strip() or done.stdout.strip()}"
    return None


class Cluster:
    """The daemons, and what can be done to them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        """All daemons; returns when every node can take jobs."""
        configure(self.folder)
        if not munge_works():
            self.start_munge()
        self.daemon("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: set(self.states().values()) == {"idle"}, 60, "no idle nodes")

    def daemon(self, name: str, *command: str) -> None:
        """Start a daemon that ends with the tests, however they end, and not at a Ctrl-C."""
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def start_munge(self) -> None:
        """The daemon that says who is who to the others; it has a key already, or gets one."""
        for folder, mode in (("/run/munge", 0o755), ("/var/lib/munge", 0o711)):
            Path(folder).mkdir(exist_ok=True)
            Path(folder).chmod(mode)
            shutil.chown(folder, "munge", "munge")
        key = Path("/etc/munge/munge.key")
        if not key.exists():
            key.write_bytes(os.urandom(128))
            key.chmod(0o400)
            shutil.chown(key, "munge", "munge")
        user = ("setpriv", "--reuid", "munge", "--regid", "munge", "--init-groups")
        self.daemon("munged", *user, "--pdeathsig", "TERM", "munged", "--foreground", "--force")
        wait_for(munge_works, 20, "munged does not answer")

    def start_node(self, node: str) -> None:
        """The daemon of a node."""
        self.daemon(node, "slurmd", "-D", "-N", node)

    def fail_node(self, node: str) -> None:
        """As if its power were cut: the daemon, and all that it has started, with SIGKILL."""
        started = [
            process
            for job in self.jobs(node)
            for step in psutil.process_iter(["cmdline"])
            if (step.info["cmdline"] or [""])[0].startswith(f"slurmstepd: [{job}.")
            for process in (step, *step.children(recursive=True))
        ]
        self.daemons[node].kill()
        self.daemons.pop(node).wait()
        for process in started:
            if process.is_running():
                process.send_signal(signal.SIGKILL)

    def jobs(self, node: str) -> list[str]:
        """The ids of the jobs that run on a node."""
        return squeue("%i", "--nodelist", node, "--states", "running")

    def states(self) -> dict[str, str]:
        """What every node is, such as idle."""
        said = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "usual", "-o", "%N %t"], capture_output=True, text=True
        )
        return dict(line.split() for line in said.stdout.splitlines())

    def repair(self) -> None:
        """Every node up and idle again, no job left."""
        subprocess.run(["scancel", "--user", "root"], check=True)
        wait_for(lambda: not squeue("%i"), 60, "jobs that cannot be cancelled")
        for node in NODES.keys() - self.daemons.keys():
            self.start_node(node)
        wait_for(lambda: set(self.states().values()) == {"idle"}, 60, "no idle nodes")

    def stop(self) -> None:
        """End jobs and daemons, the last started first, and take the configuration away."""
        subprocess.run(["scancel", "--user", "root"], capture_output=True)
        if "slurmctld" in self.daemons:
            wait_for(lambda: not squeue("%i"), 30, None)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for file in FILES:
            (CONFIGURATION / file).unlink(missing_ok=True)


def configure(folder: Path) -> None:
    """Write SLURM's files, and make the devices that stand for GPUs."""
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS}"
        f" RealMemory=64000 Gres=gpu:{GPUS}"
        for node, port in NODES.items()
    ]
    for gpu in range(GPUS):  # only a character device counts; these swallow what is written
        os.mknod(folder / f"gpu{gpu}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    CONFIGURATION.mkdir(exist_ok=True)
    values = {"name": NAME, "host": host, "folder": folder, "nodes": "\n".join(nodes)}
    gres = f"AutoDetect=off\nName=gpu File={folder}/gpu[0-{GPUS - 1}]\n"
    texts = (SLURM_CONF.format(**values), gres, "CgroupAutomount=no\n")
    for file, text in zip(FILES, texts, strict=True):
        (CONFIGURATION / file).write_text(text)


def munge_works() -> bool:
    """Whether a munged answers."""
    return subprocess.run(["munge", "-n"], capture_output=True).returncode == 0


def squeue(form: str, *options: str) -> list[str]:
    """A line per job that waits, runs or ends; with `--states all`, also those that have ended."""
    command = ["squeue", "-h", "-o", form, *options]
    return subprocess.check_output(command, text=True).splitlines()


def wait_for(condition: Callable[[], bool], seconds: float, otherwise: str | None) -> None:
    """Until the condition holds; fails with the sentence after so many seconds, if there is one."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            assert otherwise is None, f"{otherwise} within {seconds:.0f} s"
            return
        time.sleep(0.2)


@contextmanager
def up(folder: Path) -> Iterator[Cluster]:
    """A cluster that has its files in `folder`, from now to the end of the block."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
