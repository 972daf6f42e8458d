"""The least versions that setup.cfg allows, as pip's constraints, and the job of each extra.

python -m tests.support.lowest [EXTRA] > lowest.txt
python -m tests.support.lowest EXTRA --try
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETUP, WORKFLOW = ROOT / "setup.cfg", ROOT / ".github" / "workflows" / "ci.yml"
RUN = str(ROOT / "traces" / "resnet18-ddp2")
TRACER = ("-m", "tracer")
CLUSTER = """
import sys
from distributed import LocalCluster
from tracer.cli import main
if __name__ == "__main__":  # its workers run this, too
    with LocalCluster(n_workers=1, dashboard_address=None) as cluster:
        sys.exit(main(["report", sys.argv[1], "--scheduler", cluster.scheduler_address, "--no-cache"]))
"""
REMOTE = """
import sys, gcsfs, s3fs
from tracer.cli import main
sys.exit(main(["report", f"file://{sys.argv[1]}", "--no-cache"]))
"""
# What Python does with each extra that is installed alone, besides importing what it names. `workload` is tried with
# the torch of each environment that docs/installing.md has, `all` and those for work on the project are sums.
JOBS: dict[str, tuple[str, ...]] = {
    "record": ("-c", "import pynvml, llvmlite.binding"),
    "perfetto": (*TRACER, "export", RUN, "-o", "out.pftrace", "--force"),
    "tensorboard": (*TRACER, "tensorboard", RUN, "--logdir", "out", "--force"),
    "parquet": (*TRACER, "export", RUN, "-o", "out.parquet", "--force"),
    "hta": (*TRACER, "hta", RUN, "idle"),
    "mcp": ("-c", "from mcp.server import MCPServer"),
    "browser": ("-c", "import playwright.sync_api"),
    "cluster": ("-c", CLUSTER, RUN),
    "remote": ("-c", REMOTE, RUN),
    "offline": ("-c", "import viztracer"),
    "isal": (*TRACER, "report", RUN, "--no-cache"),
}


def lowest(text: str, extra: str | None = None) -> list[str]:
    """Return `name==version` for each requirement, of reading or of an extra alone, that has a least version.

    Of all at once pip finds no set: what an extra needs has bounds of its own on what reading needs.
    """
    config = configparser.ConfigParser()
    config.read_string(text)
    options = config["options.extras_require"][extra] if extra else config["options"]["install_requires"]
    lines = options.splitlines()
    found = (re.match(r"([\w-]+)>=([\d.]+)", line) for line in lines)
    return [f"{match[1]}=={match[2]}" for match in found if match]


def main(extra: str | None = None, mode: str | None = None) -> int:
    """Print constraints, or do an extra's job; its exit code."""
    if extra is not None and mode is not None:
        return subprocess.run([sys.executable, *JOBS[extra]], check=False, stdout=subprocess.DEVNULL).returncode
    sys.stdout.write("\n".join(lowest(SETUP.read_text(), extra)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
