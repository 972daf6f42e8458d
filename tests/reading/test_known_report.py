"""What is known of a report: the next screen reads no rank, says the same, and whatever changed is made anew."""

import json
import shutil

import pytest

from analyzers.json_documents import encoded
from analyzers.lazy_fields import completed, computed, evaluated
from analyzers.reporting import Report, Summary
from tests.support.cached import RUN, entries, told
from tests.support.samples import OWN, REPORTED, SAMPLES, reported
from tests.support.tiers import quarters
from tracer.cli import main
from tracer.reading import known_report
from tracer.reading.cache import store
from tracer.reading.cache.report_packing import pack_report, unpack_report


@pytest.fixture
def unpacked(monkeypatch):
    """The names of the files whose ranks are taken from the cache."""
    names = []
    unpack = store.unpack

    def noted(sections, path):
        names.append(path.name)
        return unpack(sections, path)

    monkeypatch.setattr(store, "unpack", noted)
    return names


def screen(capsys, *arguments):
    assert main(["report", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def reports(cache):
    return sorted(cache.glob("*.report"))


def test_the_second_screen_takes_no_rank_from_the_cache(cache, run, reads, unpacked, capsys):
    first = screen(capsys, run)
    reads.clear()
    assert screen(capsys, run) == first == screen(capsys, run, "--no-cache")
    assert len(reads) == RUN.ranks  # by --no-cache alone
    assert unpacked == []
    assert {entry.stat().st_mode & 0o777 for entry in reports(cache)} == {0o600}


@pytest.mark.parametrize("name", quarters(sorted(run.name for run in OWN)))
def test_samples_say_the_same_screen(cache, capsys, name):
    words = (SAMPLES / name, "--notes")
    first = screen(capsys, *words)
    assert len(reports(cache)) == 1
    assert screen(capsys, *words) == first == screen(capsys, *words, "--no-cache")


@pytest.mark.parametrize("path", REPORTED)
def test_what_comes_back_is_what_json_writes(path):
    whole = evaluated(reported(path))
    sections = {name: bytearray(b"".join(chunks)) for name, chunks in pack_report(whole).items()}
    found = unpack_report(sections)
    assert encoded(found[Summary]) == encoded(computed(whole.summary))
    assert encoded(found[Report]) == encoded({name: getattr(whole, name) for name in found[Report]})


def test_a_link_to_a_folder_says_what_that_is_called_now(cache, run, tmp_path, capsys):
    link = tmp_path / "latest"
    link.symlink_to(run)
    assert screen(capsys, link).startswith("run ")
    run.rename(tmp_path / "moved")
    link.unlink()
    link.symlink_to(tmp_path / "moved")
    assert screen(capsys, link).startswith("moved ")


def test_a_run_that_changes_while_it_is_read_is_not_kept(cache, run, monkeypatch, capsys):
    find = known_report.located

    def changed_behind(*words):
        layout = find(*words)
        change_the_manifest(run)
        return layout

    monkeypatch.setattr(known_report, "located", changed_behind)
    screen(capsys, run)
    assert reports(cache) == []


@pytest.mark.parametrize("words", [("--by", "rank"), ("--json",), ("--json", "--summary"), ("--full",)])
def test_what_a_screen_does_not_need_is_made_from_the_ranks(cache, run, reads, capsys, words):
    screen(capsys, run)
    reads.clear()
    assert screen(capsys, run, *words) == screen(capsys, run, *words)
    assert reads == []
    assert screen(capsys, run, *words) == screen(capsys, run, *words, "--no-cache")


def test_more_of_a_report_is_kept_once_it_is_computed(cache, run, unpacked, capsys):
    screen(capsys, run)
    first = told(capsys, run)
    assert len(unpacked) == RUN.ranks
    (entry,) = reports(cache)
    with entry.open("rb") as file:
        known = unpack_report(store.read_sections(file, store.read_head(file), ("Report", "Summary")))
    assert known[Summary].keys() == set(Summary.__struct_fields__)
    assert told(capsys, run) == first


def change_a_rank(run):
    path = run / "rank1.json"
    path.write_text(path.read_text().replace('"ncclDevKernel', '"renamed', 1))


def change_the_manifest(run):
    (run / "run.json").write_text(json.dumps({"schema": "tracer.run/1", "model": "another", "world_size": 3}))


def change_the_links(run):
    row = {"collective": "all_reduce", "group_size": 3, "bytes": 1 << 20, "time_ns": 1000}
    (run / "links.json").write_text(json.dumps({"schema": "tracer.calibration/1", "rows": [row]}))


@pytest.mark.parametrize("change", [change_a_rank, change_the_manifest, change_the_links])
def test_what_changed_is_made_anew(cache, run, capsys, change):
    first = screen(capsys, run, "--notes")
    change(run)
    changed = screen(capsys, run, "--notes")
    assert changed == screen(capsys, run, "--notes") == screen(capsys, run, "--notes", "--no-cache")
    assert changed != first or change is change_a_rank


def test_links_that_are_named_are_part_of_it(cache, run, tmp_path, capsys):
    change_the_links(run)
    links = shutil.move(run / "links.json", tmp_path / "links.json")
    screen(capsys, run)
    named = screen(capsys, run, "--notes", "--links", links)
    assert named == screen(capsys, run, "--notes", "--links", links, "--no-cache")


def test_with_a_rank_that_is_not_read_nothing_is_kept(cache, run, capsys):
    (run / "rank1.json").write_text("none")
    screen(capsys, run)
    assert len(entries(cache)) == RUN.ranks - 1
    assert reports(cache) == []


@pytest.mark.parametrize("at", [0, 20, 60, -20, -1])
def test_a_damaged_entry_is_made_anew(cache, run, capsys, at):
    first = screen(capsys, run)
    (entry,) = reports(cache)
    whole = entry.read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 0xFF
    entry.write_bytes(damaged)
    assert screen(capsys, run) == first
    assert entry.read_bytes() == whole


def test_a_whole_entry_that_says_something_else_is_not_believed(cache, run, capsys):
    first = screen(capsys, run)
    (entry,) = reports(cache)
    with entry.open("rb") as file:
        head = store.read_head(file)
        sections = store.read_sections(file, head, ("Report", "Summary"))
    with entry.open("wb") as file:
        store.write_entry(file, head, {"Report": [sections["Summary"]], "Summary": [sections["Report"]]})
    assert screen(capsys, run) == first


def test_only_fields_that_are_computed_are_kept():
    told = []
    summary = completed(Summary, {"verdict": "known"}, lambda: told.append(1) or Whole())
    assert computed(summary) == {"verdict": "known"}
    assert summary.headline == "of the whole"
    assert told == [1]
    assert computed(summary) == {"verdict": "known", "headline": "of the whole"}


class Whole:
    headline = "of the whole"
