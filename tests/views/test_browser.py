"""The report's page driven in a browser: hover, zoom, pan, click, sort, search, dark; silent, and off the network."""

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from analyzers.reporting.device_lanes import lanes
from analyzers.reporting.document import from_json
from tests.support.hostile import EVIL, SHOWN_EVIL, lanes_named, named
from tests.support.samples import SAMPLES, reported, summarized
from tests.support.saved import saved
from tracer.views.html.report_page import report_html

sync = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'tracer-toolkit[browser]'")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or name it: CHROMIUM=")

RUN = SAMPLES / "resnet50-ddp4-bf16"


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
    words = tab.inner_text("#extent").replace(",", "").split()
    return float(words[0]), float(words[3])


def settled(tab: Any) -> None:
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


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


def brightness(tab: Any) -> float:
    """Of the timeline's corner, where nothing is drawn: 0 to 1."""
    settled(tab)
    box = tab.locator("#canvas").bounding_box()
    picture = tab.screenshot(clip={"x": box["x"] + 2, "y": box["y"] + 2, "width": 1, "height": 1}, full_page=True)
    return float(imread(io.BytesIO(picture))[0, 0, :3].mean())


def test_the_timeline_answers_to_pointer_and_keys(opened):
    tab = opened(document())
    found = reported(RUN)
    tab.evaluate("document.getElementById('timeline').scrollIntoView()")
    canvas = tab.locator("#canvas").bounding_box()
    whole = extent(tab)
    windows = [row for row in found.windows if row.step == found.summary.representative.step]
    end_ns = max(row.start_ns + row.span_ns for row in windows)
    assert whole == (0, (end_ns - min(row.start_ns for row in windows)) / 1000)

    tab.mouse.move(canvas["x"] + 600, canvas["y"] + 40)
    assert tab.inner_text("#tip").startswith("rank 0\ncompute\nfrom ")
    at_ns = tab.evaluate("timeline.rows[0].device.starts[timeline.rows[0].device.states.search(/[KD]/)]")
    tab.evaluate(f"show({at_ns}, {at_ns} + 400)")
    tab.mouse.move(canvas["x"] + 120, canvas["y"] + 40)
    assert re.match(r"rank 0\nidle: (kernel gap|dependency) \(launched by \S+\)\nfrom ", tab.inner_text("#tip"))
    tab.evaluate("fit()")
    tab.mouse.move(canvas["x"] + 600, canvas["y"] + 40)
    tab.mouse.wheel(0, -300)
    sync.expect(tab.locator("#extent")).not_to_have_text(re.compile(r"^0\.000"))
    zoomed = extent(tab)
    assert zoomed[1] - zoomed[0] < 0.6 * whole[1]

    tab.mouse.down()
    tab.mouse.move(canvas["x"] + 500, canvas["y"] + 40)
    tab.mouse.up()
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
    sync.expect(tab.locator("#extent")).not_to_contain_text(f"of {whole[1]:,.3f}")


def test_a_click_on_a_collective_shows_its_members(opened):
    tab = opened(document())
    found = reported(RUN)
    (row,) = [row for row in found.collectives if row.step == 5 and row.bucket == 3]
    tab.focus("#canvas")
    for _ in range(20):
        tab.keyboard.press("n")
        if tab.inner_text("#collective h3") == f"all_reduce {row.index} of bucket 3":
            break
    tab.keyboard.press("f")
    tab.keyboard.press("Escape")
    assert tab.inner_text("#collective") == ""
    # Zoomed to, it is in the middle; the strip of communication lies under that of states.
    tab.locator("#canvas").click(position={"x": 118 + 530, "y": 24 + 4 + 20 + 8})
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


def test_a_copied_cell_is_no_formula(opened):
    tab = opened(document())
    words = {"=1+1": "'=1+1", "-": "", "-1,204.5": "-1204.5", "a,b": '"a,b"', '@"x"': '"\'@""x"""', "5.0 %": "5.0 %"}
    assert {cell: tab.evaluate("(cell) => csvCell(cell)", cell) for cell in words} == words


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


def test_the_trace_for_perfetto_holds_every_stretch(opened):
    tab = opened(document())
    events = json.loads(tab.evaluate("chromeTrace()"))["traceEvents"]
    windows = [row for row in reported(RUN).windows if row.step == 5]
    (row,) = [row for row in windows if row.rank == 2]
    begin_us = (row.start_ns - min(row.start_ns for row in windows)) / 1000
    own = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    for name, idle_ns in (("kernel gap", row.idle.kernel_gap_ns), ("dependency", row.idle.dependency_ns)):
        idle = [event for event in own if event["name"] == f"idle: {name}" and event["ts"] >= begin_us]
        assert round(1000 * sum(event["dur"] for event in idle)) == idle_ns
        assert all(event["args"]["operator_or_module"] for event in idle)


PERFETTO = """<title>waits</title><script>addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", "*");
  else document.title = `${event.data.perfetto.title}: ${event.data.perfetto.buffer.byteLength} bytes`;
});</script>"""


def test_perfetto_is_handed_the_step_when_it_listens(opened):
    tab = opened(document())
    # A stand-in for the site, since no test asks the network for anything.
    tab.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html")
    )
    with tab.expect_popup() as caught:
        tab.click("#perfetto")
    sync.expect(caught.value).to_have_title(re.compile(rf"^{RUN.name}: tracer report, step 5: \d{{6,}} bytes$"))


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
    canvas = tab.locator("#canvas").bounding_box()
    tab.mouse.move(canvas["x"] + 600, canvas["y"] + 40)
    assert SHOWN_EVIL in tab.inner_text("#tip")
    tab.keyboard.press("Tab")
    tab.focus("#canvas")
    tab.keyboard.press("n")
    assert SHOWN_EVIL in tab.inner_text("#collective")
    assert EVIL not in tab.content()
    assert tab.locator("img").count() == 0
