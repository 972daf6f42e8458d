"""Least versions of what is installed, and of what CI tests with."""

import configparser
import re

import pytest

from tests.support.lowest import SETUP, WORKFLOW, lowest


def test_each_requirement_has_a_least_version():
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    required = [line for line in config["options"]["install_requires"].splitlines() if line and line[0] != "#"]
    assert len(lowest(SETUP.read_text())) == len(required)


def test_a_bound_is_the_version_that_is_installed():
    text = "[options]\ninstall_requires =\n    # why\n    a-b>=6.31.1,<8\n    c>=3\n"
    assert lowest(text) == ["a-b==6.31.1", "c==3"]


def test_ci_begins_with_the_least_python_and_tries_the_least_torch():
    """And one job runs `.ci/run`, the whole of it."""
    yaml = pytest.importorskip("yaml")
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    (least_torch,) = re.findall(r"^torch>=(.*)$", config["options.extras_require"]["record"], re.MULTILINE)
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    least, *newer = (tuple(map(int, version.split("."))) for version in matrix["python"])
    assert least == tuple(map(int, config["options"]["python_requires"].removeprefix(">=").split(".")))
    assert newer == [(3, least[1] + 1 + place) for place in range(len(newer))]
    assert matrix["include"] == [{"python": matrix["python"][-1], "torch": least_torch}]
    assert [step.get("run") for job in jobs.values() for step in job["steps"]].count("bash .ci/run") == 1
