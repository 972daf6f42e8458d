"""Print setup.cfg's least versions as pip's constraints: `python -m tests.support.lowest > lowest.txt`."""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETUP, WORKFLOW = ROOT / "setup.cfg", ROOT / ".github" / "workflows" / "ci.yml"


def lowest(text: str) -> list[str]:
    """Return `name==version` for each requirement of reading that has a least version."""
    config = configparser.ConfigParser()
    config.read_string(text)
    lines = config["options"]["install_requires"].splitlines()
    found = (re.match(r"([\w-]+)>=([\d.]+)", line) for line in lines)
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest(SETUP.read_text())) + "\n")
