"""The environment of the tests, without what a person has set. Import it before fedgrid.

Variables that set fedgrid, Snakemake or matplotlib are removed. Folders of caches and of settings
are new ones, which the processes of the tests share. `REAL_DATA` names the folder of real data.
"""

import os
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SET = ("FEDGRID_", "SNAKEMAKE_", "MPL", "MATPLOTLIBRC")
OURS = ("FEDGRID_EXAMPLES", "FEDGRID_SITE")  # they set the tests themselves

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has what its first process left
    shared = REPOSITORY / "../shared/data"
    os.environ["REAL_DATA"] = os.path.abspath(os.environ.get("FEDGRID_DATA") or shared)
    own = tempfile.TemporaryDirectory(prefix="tests-of-fedgrid-")  # it goes when the process ends
    os.environ |= {f"XDG_{what}_HOME": f"{own.name}/{what}" for what in ("CACHE", "CONFIG")}

for name in [name for name in os.environ if name.startswith(SET) and name not in OURS]:
    del os.environ[name]
REAL_DATA = Path(os.environ["REAL_DATA"])
