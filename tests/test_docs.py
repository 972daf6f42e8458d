"""The pages of docs/ are true: options, examples, what they print, links, names of files; the notebook runs."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from math import comb
from typing import Literal

import msgspec
import pytest

import analyzers
from analyzers.collectives.rows import BandwidthRow, ClockRow, CollectiveRow
from analyzers.comparison.change import LEVEL, enough
from analyzers.notices import Code, Notice
from analyzers.reporting.document import RunFacts
from tests.support import notebooks
from tests.support.commands import remember_samples
from tests.support.docs import (
    COMMAND_PAGES,
    DOCS,
    FORMATS,
    MAINTAINING,
    MAP,
    NEWS,
    NOTICES,
    PAGES,
    PYTHON,
    ROOT,
    SHARED,
    WRITTEN_BEGINS,
    WRITTEN_ENDS,
    anchors,
    blocks,
    commands,
    options_pages,
    printed,
    same_on_all_pythons,
    tables,
    with_codes,
    with_frames,
    with_reference,
    with_written,
    written_in,
)
from tests.support.lowest import WORKFLOW
from tests.support.options import groups_of, parsers
from tests.support.parsed import trees
from tests.support.reference import WHOLE, is_folded, keys, section
from tracer.cli import COMMANDS, parse

NAMED = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]
WITH_OUTPUT = [page for page in NAMED if blocks(page.values[0].read_text(), "text")]
NOTEBOOKS = [pytest.param(path, id=path.name) for path in notebooks.NOTEBOOKS]
PLACES = "analyzers|benchmarks|docs|tests|traces|tracer"
SCREEN_LINES = 60
WORDS = re.findall(r"^\* \*\*([a-z ]+)\*\*: ", MAINTAINING.read_text(), re.MULTILINE)
KINDS_OF_TEXT = {".py", ".md", ".js", ".html", ".css", ".cfg", ".toml", ".ipynb"}
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "setup.cfg", "pyproject.toml")),
    *(ROOT / "traces").glob("*.md"),
    *(file for place in ("analyzers", "benchmarks", "docs", "tests", "tracer") for file in (ROOT / place).rglob("*.*")),
]
TEXTS = [file for file in TEXTS if file.suffix in KINDS_OF_TEXT or file.name == "Makefile"]


def test_every_command_has_a_page_and_every_page_a_command():
    pages = {page.stem for page in COMMAND_PAGES.glob("*.md") if page != SHARED}
    assert pages == set(COMMANDS)
    index = (DOCS / "README.md").read_text()
    for name in pages:
        assert f"(commands/{name}.md)" in index, name


@pytest.mark.parametrize("page", options_pages(), ids=lambda page: page.stem)
def test_what_a_page_says_of_options_is_what_help_says(page):
    written, said = written_in(page.read_text()), options_pages()[page]
    assert same_on_all_pythons(written) == same_on_all_pythons(said), "write it anew: make docs"


@pytest.mark.parametrize("command", parsers())
def test_every_option_is_explained_once_in_its_page_or_in_that_of_shared_options(command):
    pages = [same_on_all_pythons(page.read_text()) for page in (COMMAND_PAGES / f"{command}.md", SHARED)]
    arguments = [words for group in groups_of(command).values() for words in group]
    assert len(arguments) == len(parsers()[command]._actions) - 1
    for words in arguments:
        assert sum(page.count(same_on_all_pythons(words)) for page in pages) == 1, words


@pytest.mark.parametrize("command", parsers())
def test_a_commands_page_begins_with_examples_of_it(command):
    text = (COMMAND_PAGES / f"{command}.md").read_text()
    assert text.startswith(f"# tracer {command}\n")
    assert sum(arguments[:1] == [command] for arguments in commands(text)) >= 2


def test_help_is_the_same_where_argparse_lays_it_out_in_another_way():
    old = "  -o FILE, --output FILE\n                        replace a non-\n                        empty one\n"
    new = "  -o, --output FILE  replace a non-empty one\n"
    assert same_on_all_pythons(old) == same_on_all_pythons(new)
    assert same_on_all_pythons(old) != same_on_all_pythons(new.replace("FILE", "DIR"))
    assert same_on_all_pythons(old) != same_on_all_pythons(new.replace("replace", "keep"))


def test_options_are_written_between_their_marks_and_only_where_they_changed():
    page = f"# tracer x\n\nwords\n\n{WRITTEN_BEGINS}\n{WRITTEN_ENDS}\n\nmore\n"
    filled = with_written(page, "-x: y\n")
    assert written_in(filled) == "-x: y"
    assert filled.startswith("# tracer x\n\nwords\n")
    assert filled.endswith("\n\nmore\n")
    assert with_written(filled, "-x:\n  y\n") == filled
    assert written_in(with_written(filled, "-x: z\n")) == "-x: z"


def test_examples_are_found_behind_whatever_stands_before_them():
    page = (
        "```sh\ntracer view RUN # a\n  A=1 srun tracer plot \\\n    RUN\n```\n```yaml\n- run: |\n    tracer hta\n```\n"
    )
    assert list(commands(page)) == [["view", "RUN"], ["plot", "RUN"], ["hta"]]
    assert {arguments[0] for arguments in commands((ROOT / "README.md").read_text())} >= set(COMMANDS)


@pytest.mark.parametrize("page", NAMED)
def test_every_example_parses(page):
    for arguments in commands(page.read_text()):
        if not {"--help", "--version", "--print-completion"} & set(arguments):
            parse(arguments)


@pytest.mark.parametrize("page", NAMED)
def test_examples_in_python_parse(page):
    for block in blocks(page.read_text(), "python"):
        ast.parse(block)


# A thread of gloo's that frees its last work while Python shuts down asks for the GIL and aborts the process
# (pytorch/pytorch#190489); what the script recorded is written before.
_WITHOUT_SHUTDOWN = "\nimport os\n\nos._exit(0)\n"


def profiled(folder, *changes):
    """The report of what the script of the page, changed, records of two ranks on CPUs; None where that is nothing."""
    (script,) = blocks((DOCS / "own-profiler.md").read_text(), "python")
    for old, new in changes:
        assert old in script
        script = script.replace(old, new)
    (folder / "train.py").write_text(script + _WITHOUT_SHUTDOWN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(launch, cwd=folder, env=alone, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    run = folder / "traces" / "mine"
    return analyzers.report(analyzers.summarize(run, causes=True)) if any(run.iterdir()) else None


def codes(found):
    return {notice.code for notice in (*found.run.warnings, *found.run.notes)}


@pytest.mark.slow
def test_the_pages_own_profiler_records_what_the_report_needs(tmp_path):
    found = profiled(tmp_path)
    assert found.run.ranks == [0, 1]
    assert {window.step for window in found.windows} >= set(range(8, 14))
    assert all(collective.bytes for collective in found.collectives)
    assert Code.STEPS_ARE_NOT_MARKED not in codes(found)
    assert Code.MODULES_NOT_TRACED in codes(found)


@pytest.mark.slow
def test_flags_of_a_profiler_are_for_what_the_page_says(tmp_path):
    found = profiled(tmp_path, ("record_shapes", "with_stack"), ("rank{rank}.json.gz", "{'ab'[rank]}.json"))
    assert found.run.ranks == [0, 1]
    assert not any(collective.bytes for collective in found.collectives)
    assert Code.MODULES_NOT_TRACED not in codes(found)


@pytest.mark.slow
def test_a_schedule_whose_steps_are_not_counted_writes_nothing(tmp_path):
    assert profiled(tmp_path, ("        profiler.step()\n", "")) is None


def test_mfu_of_the_page_is_what_its_formula_says(monkeypatch):
    (script,) = blocks((DOCS / "utilization.md").read_text(), "python")
    monkeypatch.chdir(ROOT)
    names = {}
    exec(script, names)  # what the page shows
    compute = names["compute"]
    per_sample = compute.counted_flops / analyzers.load("traces/resnet18-ddp1").manifest.batch_per_gpu
    assert names["flops_per_sample"] == pytest.approx(per_sample, rel=0.01)
    assert names["mfu"] == pytest.approx(0.0075, rel=0.01)


@pytest.mark.parametrize("page", WITH_OUTPUT)
def test_what_a_page_shows_is_what_its_commands_print(page, monkeypatch):
    """Blocks of text are pieces of what the page's console commands print, to the letter."""
    remember_samples(monkeypatch)
    text = page.read_text()
    shown = "".join(f"```console\n{block}```\n" for block in blocks(text, "console"))
    said = [printed(*arguments) for arguments in commands(shown)]
    for block in blocks(text, "text"):
        assert any(block.rstrip() in output for output in said), block


@pytest.mark.parametrize("page", NAMED)
def test_every_link_leads_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(found.read_text()), target


@pytest.mark.parametrize("page", NAMED)
def test_every_file_of_the_project_that_is_named_exists(page):
    for name in re.findall(rf"`((?:{PLACES})/[\w./-]*(?:\.\w+|/))`", page.read_text()):
        assert (ROOT / name).exists(), name


def test_every_path_of_the_project_that_is_mentioned_anywhere_exists():
    """In pages, docstrings, comments and settings: modules move, and their names are written in many places."""
    path = re.compile(rf"(?<![\w/.-])((?:{PLACES})/[\w./-]*\w\.(?:py|js|css|html|md|json)\b)")
    for file in TEXTS:
        for name in path.findall(file.read_text()):
            beside = file.suffix == ".md" and (file.parent / name).exists()
            assert beside or (ROOT / name).exists(), f"{file.relative_to(ROOT)} names {name}"


def test_every_module_that_is_mentioned_by_its_dotted_name_exists():
    """`tracer.run/1` is a schema, `analyzers.lanes` a name that a package exports."""
    dotted = re.compile(r"(?<![\w/.@-])((?:analyzers|tracer)(?:\.(?!py\b)[a-z_]\w*)+)(?![\w/-])")
    for file in TEXTS:
        for name in dotted.findall(file.read_text()):
            package, *parts = name.split(".")
            assert _is_known(package, parts), f"{file.relative_to(ROOT)} names {name}"


def _is_known(package: str, parts: list[str]) -> bool:
    """Whether a dotted name leads to a room, a module, or a word of the module or room that it leads to."""
    place = ROOT / package
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").exists():
        return len(parts) == 1 or parts[1] in (place / f"{parts[0]}.py").read_text()
    return not parts or parts[0] in (place / "__init__.py").read_text()


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_glossary_is_the_packages_word(word):
    """In a docstring, or in a name as it is defined: what nobody writes any more is no word of ours."""
    assert re.search(rf"\b{word}(s|es)?\b", used_words()), word


@cache
def used_words() -> str:
    """Docstrings and defined names of both packages, names taken apart: `LightWindow` and `light_window` alike."""
    found = []
    for parsed in trees().values():
        for node in ast.walk(parsed):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append(ast.get_docstring(node) or "")
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.append(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", node.name))
            elif isinstance(node, ast.arg | ast.AnnAssign):
                name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
                found.append(name.replace("_", " "))
    return "\n".join(found).lower()


def test_the_glossary_is_in_one_place_and_each_word_once():
    assert 20 <= len(WORDS) <= 36
    assert len(set(WORDS)) == len(WORDS)


def test_every_room_is_on_the_map():
    """Each has a line, in which the rooms inside it are named."""
    page = MAP.read_text()
    for place in ("analyzers", "tracer"):
        for room in (ROOT / place).glob("*/**/__init__.py"):
            package, name, *inside = room.parent.relative_to(ROOT).parts
            (line,) = re.findall(rf"^\| `{package}/{name}/` \|.*", page, re.MULTILINE)
            assert all(f"`{inner}/`" in line for inner in inside), room


def test_the_map_fits_a_screen_and_leads_every_errand_to_files_and_tests():
    page = MAP.read_text()
    assert len(page.splitlines()) <= SCREEN_LINES
    (rows,) = tables(page).values()
    errands = [row[1:] for row in rows if len(row) == 4 and row[0] != "errand"]
    assert len(errands) >= 9
    for cells in errands:
        named = [re.findall(r"`([\w./-]+)`", cell) for cell in cells]
        assert named[0] and named[-1]
        assert all((ROOT / name).exists() for names in named for name in names), cells


@pytest.mark.parametrize("page", NAMED)
def test_every_target_of_make_that_is_named_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`[^`\n]*\bmake (\w+)`", page.read_text()):
        assert f"\n{target}:" in makefile, target


def test_keys_are_written_with_their_types_and_what_is_said_of_them():
    class Base(msgspec.Struct):
        """A thing: docs/measuring.md, Idle time, by cause."""

        name: str
        wait_ns: int | None
        rank: int
        origin_ns: str
        device: int | str
        parts: dict[str, list[int | None]]

    class Row(Base):
        """All that is late.

        Whatever it is. `late`: by how much. `pass`: a, else b.
        """

        late: int | float | None
        rate_gbps: float
        kind: Literal["a", "b"] = msgspec.field(name="pass", default="a")
        whole: Base | None = None

    linked = "[A thing](measuring.md#idle-time-by-cause)."
    assert section(Base) == f"{linked}\n\n`name`, `wait_ns`?, `rank`; `origin_ns`: text; `device`; `parts`: int?[]{{}}."
    own = '`late`? (by how much): int|number; `rate_gbps`; `pass` (a, else b): "a"|"b"; `whole`?: [Base](#base)'
    assert keys(Row) == f"all of [Base](#base); {own}"
    assert section(Row) == f"All that is late.\n\nWhatever it is.\n\n{keys(Row)}."


def test_small_types_that_stand_in_one_place_are_written_there():
    assert is_folded(ClockRow)
    ahead = "ahead of the lowest rank; null if no collective ties them"
    clock = f"`clock`: {{`offsets_ns` ({ahead}), `spread_ns`: int?{{}}; `applied`: bool; `applied_to`: int[]}}"
    assert clock in keys(RunFacts)
    for kind in (Notice, CollectiveRow, BandwidthRow):  # in several places, with more to say, with more keys
        assert not is_folded(kind)


def test_keys_and_codes_are_those_of_the_types():
    page = FORMATS.read_text()
    assert with_reference(page) == page, "write it anew: make docs"
    assert f"{', '.join(f'`{key}`' for key in WHOLE)} are whole numbers" in " ".join(page.split())
    page = NOTICES.read_text()
    assert with_codes(page) == page, "write it anew: make docs"
    page = PYTHON.read_text()
    assert with_frames(page) == page, "write it anew: make docs"


@pytest.mark.parametrize("analysis", ["critical-path", "idle", "queue", "launches", "kernels", "diff"])
def test_every_key_of_htas_tables_stands_in_the_page(analysis):
    pytest.importorskip("hta")
    others = ["traces/resnet18-ddp2"] if analysis == "diff" else []
    document = json.loads(printed("hta", "traces/resnet18-ddp1", analysis, *others, "--json"))
    (item,) = re.findall(
        rf"^\* `{analysis}`: .*(?:\n +.*)*", FORMATS.read_text().split("## HTA's tables")[1], re.MULTILINE
    )
    written = re.findall(r"`(\w+)`", item)
    for name, value in document.items():
        if name not in ("schema", "analysis", "versions", "run", "notes"):
            keys = [name, *(value[0] if isinstance(value, list) else ())]
            assert set(keys) <= set(written), keys


def test_how_many_steps_are_enough_is_what_the_test_of_comparisons_needs():
    page = (DOCS / "measuring.md").read_text()
    rows = [row for row in tables(page)["How many steps are enough"] if row[0].isdecimal()]
    assert len(rows) >= 6
    for steps, least_p, figures in rows:
        count = comb(2 * int(steps), int(steps))
        assert float(least_p) == pytest.approx(2 / count, rel=0.05)
        assert figures == (str(int(LEVEL * count / 2)) if enough(int(steps), int(steps)) else "none: too few steps")


def test_pictures_are_small_and_shown_somewhere():
    texts = [page.read_text() for page in PAGES]
    for picture in DOCS.rglob("*.png"):
        assert picture.stat().st_size < 200_000, picture.name
        assert any(picture.name in text for text in texts), picture.name


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebooks_run_and_are_kept_without_outputs(path):
    """Each cell that ends in a value shows one."""
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebooks.read(path).cells)
    cells = [cell for cell in notebooks.executed(path).cells if cell.cell_type == "code"]
    assert all(cell.outputs[-1].output_type == "execute_result" for cell in cells)
    assert {"text/html", "image/png"} <= {kind for cell in cells for kind in cell.outputs[-1].data}


def test_jobs_in_the_pages_and_our_own_are_workflows():
    """As GitHub reads them: a trigger, and steps that each use an action or run a command."""
    yaml = pytest.importorskip("yaml")
    jobs = blocks((DOCS / "ci.md").read_text(), "yaml")
    assert len(jobs) >= 2
    for text in (*jobs, WORKFLOW.read_text()):
        workflow = yaml.safe_load(text)
        # YAML 1.1 takes `on` for true.
        assert {"name", True, "jobs"} <= workflow.keys()
        for job in workflow["jobs"].values():
            assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
            assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_every_piece_of_news_is_of_a_kind_that_is_known_and_says_something():
    kinds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["fragment"]
    for piece in NEWS.glob("*.md"):
        name, _, kind = piece.stem.partition(".")
        assert name and kind in kinds, f"{piece.name}: name it NAME.KIND.md, KIND one of {', '.join(kinds)}"
        assert piece.read_text().strip(), piece.name


def test_every_command_answers_a_question():
    page = (DOCS / "which-command.md").read_text()
    assert all(f"`tracer {command}" in page for command in COMMANDS)
