"""Least versions of what is installed, and of what CI tests with."""

import configparser
import re

import pytest
from packaging.requirements import Requirement

from tests.support.lowest import SETUP, WORKFLOW, lowest
from tracer.commands.options.trainable import LEAST_OF_WORKLOAD


def test_each_requirement_has_a_least_version():
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    required = [line for line in config["options"]["install_requires"].splitlines() if line and line[0] != "#"]
    assert len(lowest(SETUP.read_text())) == len(required)


def test_a_bound_is_the_version_that_is_installed():
    text = "[options]\ninstall_requires =\n    # why\n    a-b>=6.31.1,<8\n    c>=3\n"
    assert lowest(text) == ["a-b==6.31.1", "c==3"]


def requirements(*extras: str) -> dict[str, Requirement]:
    """What an installation with these extras brings, by name."""
    options = configparser.ConfigParser()
    options.read_string(SETUP.read_text())
    found, left = {}, ["tracer-toolkit", *(f"tracer-toolkit[{extra}]" for extra in extras)]
    while left:
        requirement = Requirement(left.pop())
        if requirement.name != "tracer-toolkit":
            found[requirement.name] = requirement
        for extra in requirement.extras if requirement.name == "tracer-toolkit" else ():
            left += words(options["options.extras_require"][extra])
    for line in words(options["options"]["install_requires"]):
        found[Requirement(line).name] = Requirement(line)
    return found


def words(section: str) -> list[str]:
    return [line for line in section.splitlines() if line and not line.startswith("#")]


def test_what_is_installed_where_people_train_leaves_their_versions_as_they_are():
    """Of what is there already: pip's own answer, with each torch, is the table of docs/installing.md."""
    theirs = {"numpy": "1.26.0", "pandas": "2.1.0", "protobuf": "5.29.0", "torch": "2.4.0", "llvmlite": "0.43.0"}
    for name, requirement in requirements("record").items():
        assert name not in theirs or requirement.specifier.contains(theirs[name]), requirement
        assert all(bound.operator == ">=" for bound in requirement.specifier), requirement


def test_torch_and_protobuf_are_named_by_the_extras_that_need_them_alone():
    named = {name: requirements(name).keys() for name in ("record", "all", "dev", "benchmarks", "workload", "perfetto")}
    assert {name for name, found in named.items() if "torch" in found} == {"dev", "benchmarks", "workload"}
    assert {name for name, found in named.items() if "perfetto" in found} == {"all", "dev", "perfetto"}
    assert {name for name, found in named.items() if "protobuf" in found} == {"all", "dev", "perfetto"}
    (bound,) = requirements("workload")["torch"].specifier
    assert (bound.operator, bound.version) == (">=", ".".join(map(str, LEAST_OF_WORKLOAD)))


def test_ci_begins_with_the_least_python_and_tries_the_least_torch():
    """And one job runs `.ci/run`, the whole of it."""
    yaml = pytest.importorskip("yaml")
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    (least_torch,) = re.findall(r"^torch>=(.*)$", config["options.extras_require"]["workload"], re.MULTILINE)
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    least, *newer = (tuple(map(int, version.split("."))) for version in matrix["python"])
    assert least == tuple(map(int, config["options"]["python_requires"].removeprefix(">=").split(".")))
    assert newer == [(3, least[1] + 1 + place) for place in range(len(newer))]
    assert matrix["include"] == [{"python": matrix["python"][-1], "torch": least_torch}]
    assert [step.get("run") for job in jobs.values() for step in job["steps"]].count("bash .ci/run") == 1
