"""Least versions of what is installed, and of what CI tests with."""

import configparser
import re

import pytest
from packaging.requirements import Requirement

from tests.support.environments import BEGINS, ENDS, changed, rows_in, with_rows
from tests.support.lowest import JOBS, ROOT, SETUP, WORKFLOW, lowest
from tracer.commands.options.workload_checks import LEAST_OF_WORKLOAD
from tracer.doctor.software import TRIED_TORCH

MAKEFILE = ROOT / "Makefile"


def test_each_requirement_has_a_least_version():
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    required = [line for line in config["options"]["install_requires"].splitlines() if line and line[0] != "#"]
    assert len(lowest(SETUP.read_text())) == len(required)


def test_each_requirement_of_an_extra_has_a_least_version_and_is_tried():
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    extras = config["options.extras_require"]
    assert set(extras) - set(JOBS) == {"all", "workload", "benchmarks", "dev"}
    for extra in {*JOBS, "workload"}:
        for line in words(extras[extra]):
            assert any(bound.operator == ">=" for bound in Requirement(line).specifier), line
    assert re.search(r"^TRIED = (.*)$", MAKEFILE.read_text(), re.MULTILINE)[1].split() == [*JOBS]


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


def test_what_pip_would_change_is_what_is_there_in_another_version():
    before = {"numpy": "1.26.4", "pandas": "2.1.4", "torch": "2.8.0"}
    assert changed(before, {"numpy": "2.4.6", "pandas": "2.1.4", "rich": "15.0.0"}) == ["numpy 1.26.4 to 2.4.6"]


def test_a_row_of_the_table_of_environments_is_written_in_its_place():
    page = f"before\n{BEGINS}\n\n| torch | GB |\n| --- | --- |\n| 2.8.0 | 4 |\n| 2.11.0 | 5 |\n\n{ENDS}\nafter"
    assert rows_in(page) == [["2.8.0", "4"], ["2.11.0", "5"]]
    written = with_rows(page, [["2.8.0", "6"], ["2.9.1", "3"]])
    assert rows_in(written) == [["2.8.0", "6"], ["2.9.1", "3"], ["2.11.0", "5"]]
    assert (written.split(BEGINS)[0], written.split(ENDS)[1]) == ("before\n", "\nafter")


def test_ci_begins_with_the_least_python_and_records_with_the_least_torch():
    """One job runs `.ci/run`, the whole of it, and one records with the least torch of all."""
    yaml = pytest.importorskip("yaml")
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    least, *newer = (tuple(map(int, version.split("."))) for version in matrix["python"])
    assert least == tuple(map(int, config["options"]["python_requires"].removeprefix(">=").split(".")))
    assert newer == [(3, least[1] + 1 + place) for place in range(len(newer))]
    (older,) = matrix["include"]
    assert older["python"] == matrix["python"][-1]
    assert f"{older['torch']}.0" in TRIED_TORCH
    assert jobs["elsewhere"]["strategy"]["matrix"]["os"] == ["windows-latest", "macos-latest"]
    ran = [step.get("run") for job in jobs.values() for step in job["steps"]]
    assert ran.count("bash .ci/run") == ran.count(f"make environments TORCH={TRIED_TORCH[0]}") == 1
