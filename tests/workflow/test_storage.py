"""A grid whose results lie in S3, computed on nodes that see no folder of the submitter.

The S3 is moto's server on this machine. A node is a new folder with an environment of its own, into
which Snakemake brings sources and inputs. The first training is killed when the volume of
checkpoints has its first copy, and is given again.
"""

import subprocess
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from conftest import ENVIRONMENT, TABLE, TEX, copied
from workflows import snakemake

pytestmark = pytest.mark.slow

SUBMIT = """#!/bin/bash
# Start a job in a folder of its own, which is the job's id; the first training is killed.
node=$(mktemp -d {nodes}/XXXXXX)
cp "$1" $node/job
cd $node
grep -q -e '--target-jobs .\\?train:' job && mkdir {nodes}/first && kill=yes
(
  setsid env -i HOME=$node {variables} bash -c 'bash job > log 2>&1; echo $? > code' &
  if [ "$kill" ]; then
    until ls {volume}/grids/here/runs/*/*/*/*/*.tar; do sleep 0.1; done
    kill -KILL -- -$!
    echo 1 > code
  fi
) > /dev/null 2>&1 < /dev/null &
echo $node
"""
STATUS = """#!/bin/bash
if [ ! -e $1/code ]; then echo running
elif [ $(cat $1/code) = 0 ]; then echo success; else echo failed; fi
"""
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
FOR_SNAKEMAKE = {f"SNAKEMAKE_STORAGE_S3_{end}_KEY": "key" for end in ("ACCESS", "SECRET")}


@pytest.fixture(scope="module")
def bucket():
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        address = f"http://{host}:{port}"
        found = boto3.resource("s3", endpoint_url=address, region_name="us-east-1").Bucket("grids")
        found.create()
        yield address, found
    server.stop()


def write_commands(folder: Path) -> tuple[Path, Path]:
    """Write the commands by which jobs are submitted and looked after; return their paths."""
    (folder / "nodes").mkdir()
    names = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS", "XDG_CACHE_HOME")
    given = FOR_SNAKEMAKE | {"FEDGRID_SAVE_EVERY": "0"}
    given |= {name: ENVIRONMENT[name] for name in names if name in ENVIRONMENT}
    variables = " ".join(f"{name}={value}" for name, value in given.items())
    places = {"nodes": folder / "nodes", "volume": folder / "volume", "variables": variables}
    paths = folder / "submit", folder / "status"
    for path, text in zip(paths, (SUBMIT.format(**places), STATUS), strict=True):
        path.write_text(text)
        path.chmod(0o755)
    return paths


GRID = ("--configfile", "tiny.yaml", "--config", "protocol=long", "method=fedavg,fedsls")


@pytest.fixture(scope="module")
def done(bucket, tmp_path_factory) -> tuple[Path, str]:
    """A grid that was computed in S3: the folder with its nodes, and what Snakemake said."""
    folder = tmp_path_factory.mktemp("storage")
    submit, status = write_commands(folder)
    (folder / "project").mkdir()
    project = copied(folder / "project")
    for command in ("init -q", "add ."):  # Snakemake sends what git knows of
        subprocess.run(["git", *command.split()], cwd=project, check=True)
    options = [
        *("--executor", "cluster-generic", "--jobs", "2", "--seconds-between-status-checks", "1"),
        *("--cluster-generic-submit-cmd", submit, "--cluster-generic-status-cmd", status),
        *("--job-deploy-sources", "--shared-fs-usage", "none", "--retries", "1"),
        *("--default-storage-provider", "s3", "--default-storage-prefix", "s3://grids/here"),
        *("--storage-s3-endpoint-url", bucket[0], "--storage-s3-region", "us-east-1"),
        *(*GRID, f"checkpoints={folder / 'volume'}", "--", TABLE, TEX),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FOR_SNAKEMAKE.items():
            patch.setitem(ENVIRONMENT, name, value)
        said = snakemake(project, *options)
    return folder, said


def test_tables_and_runs_have_the_bytes_of_those_in_a_folder(done, bucket, tmp_path):
    snakemake(copied(tmp_path / "project"), "--cores", "2", *GRID, "--", TABLE, TEX)
    results = tmp_path / "project/results"
    made = {one.key.removeprefix("here/"): one for one in bucket[1].objects.filter(Prefix="here/")}
    runs = sorted((results / "runs").rglob("*.csv"))
    assert len(runs) == 6
    for path in [results / "table1.csv", results / "table1.tex", *runs]:
        name = path.relative_to(tmp_path / "project").as_posix()
        assert made[name].get()["Body"].read() == path.read_bytes(), name


def test_the_submitter_says_where_the_table_is(done):
    assert f"Open s3://grids/here/{TABLE}" in done[1]


def test_a_killed_run_goes_on_from_the_copy_of_its_checkpoint(done):
    logs = (done[0] / "nodes").rglob("results/logs/runs/**/seed0.log")
    brought = ["was brought from" in log.read_text() for log in logs]
    assert sorted(brought) == [False, False, True]  # of two runs
