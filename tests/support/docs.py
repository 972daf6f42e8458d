"""What docs/ and the README are made of, for their tests; and what in docs/ a machine writes.

python -m tests.support.docs             options, what commands print, keys and codes into the pages (make docs)
python -m tests.support.docs pages       the pictures of pages, anew; needs playwright and chromium
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from analyzers.comparison import CHANGES, SWEEP_TABLES
from analyzers.prediction import SCENARIOS
from analyzers.reporting import NAMED_UNITS, TABLES, Table
from tests.support.options import own_options, parsers, shared_options
from tests.support.reference import anchor, codes, reference
from tracer.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMMAND_PAGES = DOCS / "commands"
# Pieces of CHANGELOG.md.
NEWS = DOCS / "news"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "traces/README.md")),
    *sorted(page for page in DOCS.rglob("*.md") if page.parent != NEWS),
]
MAINTAINING, MAP = DOCS / "dev" / "maintaining.md", DOCS / "dev" / "README.md"

# The README with the page of conditions, which it leaves their figures to.
README = "".join((ROOT / page).read_text() for page in ("README.md", "docs/ci.md"))

# Options that several commands have.
SHARED = COMMAND_PAGES / "README.md"
WRITTEN_BEGINS = "<!-- `make docs` writes from here -->"
WRITTEN_ENDS = "<!-- to here -->"
FORMATS, NOTICES, PYTHON = DOCS / "formats.md", DOCS / "dev" / "notices.md", DOCS / "python.md"
# Pictures of samples' pages: the run, and what of its page is seen; where that is nothing, its head and the timeline.
PAGE_PICTURES = {"page": ("resnet18-ddp2-sick", ""), "page-timeline": ("resnet50-ddp4-bf16", "#timeline")}
BETWEEN = ".trust, #advice, .warnings, nav, .tools, .inside { display: none }"


def same_on_all_pythons(text: str) -> str:
    """Help without what versions of argparse differ in: its layout, and `-o FILE, --output FILE` before 3.13."""
    short = re.sub(r"(-\w) \S+(, --[\w-]+ )", r"\1\2", text)
    # Columns have other widths, and lines end behind hyphens too.
    return re.sub(r"\s", "", short)


def written_in(page: str) -> str:
    """What `make docs` wrote in a page, empty where its place is still to be filled.

    Raises ValueError where the page has no place for it.
    """
    return page[page.index(WRITTEN_BEGINS) + len(WRITTEN_BEGINS) : page.index(WRITTEN_ENDS)].strip()


def with_written(page: str, text: str) -> str:
    """A page with this in its place; the page as it was where that says the same already."""
    return page if same_on_all_pythons(written_in(page)) == same_on_all_pythons(text) else _between(page, text)


def _between(page: str, text: str) -> str:
    before, rest = page.split(WRITTEN_BEGINS)
    return f"{before}{WRITTEN_BEGINS}\n\n{text}\n\n{WRITTEN_ENDS}{rest.split(WRITTEN_ENDS)[1]}"


def with_reference(page: str) -> str:
    """The page of formats with all keys in their place."""
    return _between(page, reference())


def with_codes(page: str) -> str:
    """The page of notices with all codes in their place."""
    return _between(page, codes())


def with_frames(page: str) -> str:
    """The page on Python with the frames of a report, and their columns."""
    listed = "\n".join(_listed(result, table) for result, tables in FRAMES for table in tables)
    return _between(page, f"{listed}\n\n{NAMED_UNITS} {INTERVALS}")


# What stands before a result's methods, and its tables. Advice is a list of the report: its frame is no method.
FRAMES = (
    ("", [table for table in TABLES.values() if table.name != "advice"]),
    ("compared.", [CHANGES]),
    ("predicted.", [SCENARIOS]),
    ("swept.", [*SWEEP_TABLES.values()]),
)
INTERVALS = "±: two more columns have the low and the high end, `NAME_low` and `NAME_high`."


def _listed(result: str, table: Table) -> str:
    ends = {f"{name}_{end}" for name in table.columns for end in ("low", "high")} & table.columns.keys()
    columns = (f"`{name}`{'±' * (f'{name}_low' in ends)}" for name in table.columns if name not in ends)
    return f"* `{result}{table.name}()`, {table.about.removeprefix('one row ')}: {', '.join(columns)}"


def blocks(page: str, *languages: str) -> list[str]:
    """The fenced blocks of a page that are in one of these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[list[str]]:
    """The arguments of each `tracer` in a page's examples, also in a job for Actions, behind `srun` or a variable."""
    for block in blocks(page, "sh", "console", "bash", "yaml"):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            found = re.match(r"\s*(?:\$ )?(?:srun |[A-Z_]+=\S+ )*tracer (.*)", line)
            if found:
                yield shlex.split(found[1], comments=True)


def anchors(page: str) -> set[str]:
    """What links into a page may end with: its headings as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {anchor(heading) for heading in headings}


def tables(page: str) -> dict[str, list[list[str]]]:
    """The rows of tables and lists under each heading of a page; without heads, an item's cells parted at its colon."""
    found = {}
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        rows = re.findall(r"^\| (.*) \|$|^\* (.*)$", text, re.MULTILINE)
        cells = [item.split(": ", 1) if item else row.split(" | ") for row, item in rows]
        found[heading] = [[cell.strip() for cell in row] for row in cells if row[0] != "key"]
    return found


def options_pages() -> dict[Path, str]:
    """What stands of options in the page of each command, and in the page of those that several share."""
    return {
        SHARED: shared_options(),
        **{COMMAND_PAGES / f"{command}.md": own_options(command) for command in parsers()},
    }


def write_options() -> None:
    """Rewrite options in pages where they have changed."""
    for page, text in options_pages().items():
        page.write_text(with_written(page.read_text(), text))


@cache
def printed(*arguments: str) -> str:
    """What a command prints, run from the repository's root."""
    said, before = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(said):
            assert main(arguments) == 0
    finally:
        os.chdir(before)
    return said.getvalue()


def write_output() -> None:
    """Rewrite the blocks of text that are no longer what the page's console commands print."""
    for page in PAGES:
        text = page.read_text()
        shown = "".join(f"```console\n{block}```\n" for block in blocks(text, "console"))
        said = [printed(*arguments) for arguments in commands(shown)]
        for block in blocks(text, "text") if said else ():
            if not any(block.rstrip() in output for output in said):
                text = text.replace(block, _nearest(block, said))
        page.write_text(text)


def _nearest(block: str, said: list[str]) -> str:
    """The lines of what commands print that are most like a block's: from its first line's like to its last's.

    Raises ValueError where no line is like its first: the page has to be written anew there.
    """
    old = block.rstrip().splitlines()
    score, piece = max((_piece(old, output.splitlines()) for output in said), key=lambda found: found[0])
    if score < LIKE_ENOUGH:
        raise ValueError(f"no command prints anything like this any more:\n{block}")
    return piece


LIKE_ENOUGH = 0.6


def _piece(old: list[str], new: list[str]) -> tuple[float, str]:
    def likeness(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()

    first = max(range(len(new)), key=lambda place: likeness(old[0], new[place]))
    expected = first + len(old) - 1
    near = [place for place in range(first, len(new)) if abs(place - expected) <= len(old) // 2]
    last = max(near, key=lambda place: (likeness(old[-1], new[place]), -abs(place - expected)), default=first)
    score = (likeness(old[0], new[first]) + likeness(old[-1], new[last])) / 2
    return score, "\n".join(new[first : last + 1]) + "\n"


def draw_pages() -> None:
    """Draw pages of sample runs as a browser shows them."""
    from PIL import Image
    from playwright.sync_api import expect, sync_playwright  # of the extra `browser`

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (run, seen) in PAGE_PICTURES.items():
            page = Path(folder) / f"{name}.html"
            main(["report", str(ROOT / "traces" / run), "--html", str(page)])
            # High enough for what is seen not to be scrolled to, below the page's head.
            size = {"width": 1060, "height": 2000} if seen else {"width": 1180, "height": 700}
            tab = browser.new_page(viewport=size, color_scheme="light")
            tab.goto(page.as_uri())
            # Its own waiting for a script is what the page's policy refuses.
            expect(tab.locator("#extent")).not_to_have_text("")
            if not seen:
                tab.add_style_tag(content=BETWEEN)
            drawn = Image.open(io.BytesIO((tab.locator(seen) if seen else tab).screenshot()))
            drawn.quantize().save(DOCS / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    os.environ["TRACER_CACHE"] = "off"  # pages say what the code says now
    if sys.argv[1:] == ["pages"]:
        draw_pages()
    else:
        write_options()
        FORMATS.write_text(with_reference(FORMATS.read_text()))
        NOTICES.write_text(with_codes(NOTICES.read_text()))
        PYTHON.write_text(with_frames(PYTHON.read_text()))
        write_output()
