"""The cache's folder: where it is, its bound, what is kept of remote runs, who keeps at all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import tracer
from analyzers.paths import Remote
from analyzers.rank.summary import summarize
from analyzers.run.layout import find
from tests.support.cached import HOUR_S, RUN, entries, told
from tests.support.generator import write_run
from tests.support.samples import SAMPLES
from tracer import environment
from tracer.cli import main
from tracer.reading.cache import folder as folders
from tracer.reading.cache import identity, store
from tracer.reading.cache.packing import pack


@pytest.mark.parametrize("how", ["a file", "a file above", "open to others", "no room"])
def test_a_folder_that_cannot_be_used_is_done_without(cache, run, capsys, monkeypatch, how):
    expected = told(capsys, run, "--no-cache")
    if how == "a file":
        cache.write_text("no folder")
    if how == "a file above":
        cache.write_text("no folder")
        monkeypatch.setenv("TRACER_CACHE", str(cache / "below" / "it"))
    if how == "open to others":
        cache.mkdir()
        cache.chmod(0o777)
    if how == "no room":
        monkeypatch.setattr(store, "write_entry", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    for _ in range(2):
        assert main(["report", str(run), "--json"]) == 0
        out, err = capsys.readouterr()
        assert (out, err) == (expected, "")
    assert not cache.is_dir() or not list(cache.iterdir())


def entry_name(first, version, partial=""):
    """A name as entries have them, or what is not an entry yet."""
    return f"{first * 32}-{version}" + (f".{partial * 16}.partial" if partial else ".rank")


NEW, OLD = "0e099915", "77777777"
A, B, C, D, E = (entry_name(first, version) for first, version in zip("abcde", [NEW] * 3 + [OLD] * 2, strict=True))
F, G = (entry_name(first, NEW, partial="5") for first in "01")
# In a folder that is not the cache's alone, what has other names is the user's own.
NOT_OURS = ("notes.txt", "film.partial", "league.rank", f"copy of {A}", f"{A}.old")


def test_the_bound_holds_and_what_was_used_last_stays(tmp_path, monkeypatch):
    now_s = 1_000_000_000.0
    monkeypatch.setattr(folders.time, "time", lambda: now_s)
    for name, size, age_s in (
        (A, 40, 10), (B, 40, 30), (C, 40, 20), (D, 1, HOUR_S), (E, 1, 8 * 24 * HOUR_S), (F, 1, 60), (G, 1, 2 * HOUR_S),
        *((name, 9999, 99 * 24 * HOUR_S) for name in NOT_OURS),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(bytes(size))
        os.utime(tmp_path / name, (now_s - age_s, now_s - age_s))
    folders.clean(tmp_path, NEW, most_bytes=1000)
    left = {A, B, C, D, F, *NOT_OURS}
    assert {entry.name for entry in tmp_path.iterdir()} == left
    folders.clean(tmp_path, NEW, most_bytes=100)
    assert {entry.name for entry in tmp_path.iterdir()} == left - {D, B}
    folders.clean(tmp_path / "none", NEW, most_bytes=100)


def test_a_hit_renews_an_entry_once_a_day(cache, run, capsys):
    told(capsys, run)
    first, second, _ = entries(cache)
    os.utime(first, (1, 1))
    an_hour_ago = second.stat().st_mtime - HOUR_S
    os.utime(second, (an_hour_ago, an_hour_ago))
    told(capsys, run)
    assert first.stat().st_mtime > 1
    assert second.stat().st_mtime == an_hour_ago


def test_a_remote_run_is_kept_here(cache, reads, capsys, tmp_path, monkeypatch):
    MemoryFileSystem.store.clear()
    system = MemoryFileSystem()
    run = write_run(tmp_path / "run", RUN)
    system.put(str(run), "/bucket/run", recursive=True)
    first = told(capsys, "memory://bucket/run")
    reads.clear()
    assert told(capsys, "memory://bucket/run") == first
    assert reads == []
    system.pipe("/bucket/run/rank1.json", (run / "rank1.json").read_bytes().replace(b"gemm<a>", b"hemm<a>"))
    assert told(capsys, "memory://bucket/run") == told(capsys, "memory://bucket/run", "--no-cache")
    assert reads[0] == "rank1.json"
    MemoryFileSystem.store.clear()


FACTS = {
    "an ETag": ({"ETag": '"1"', "size": 5}, True, 0.0),
    "a generation": ({"generation": 7, "size": 5}, True, 0.0),
    "a time": ({"mtime": 1_790_857_026.5, "size": 5}, True, 1_790_857_026.5),
    "milliseconds": ({"mtime": 1_790_857_026_500, "size": 5}, True, 1_790_857_026.5),
    "words": ({"LastModified": "Tue", "size": 5}, True, float("inf")),
    "its size alone": ({"size": 5}, False, None),
    "nothing": ({}, False, None),
}


@pytest.mark.parametrize("facts", FACTS)
def test_an_object_is_known_by_its_version_or_its_time(facts, monkeypatch):
    told_of, is_known, changed_s = FACTS[facts]
    monkeypatch.setattr(identity, "facts_of", lambda remote: told_of)
    monkeypatch.setattr(identity, "read_block", lambda remote, begin, length: b"12345")
    file = replace(find(SAMPLES / "skew-nvlink").files[0], path=Remote("s3://bucket/run/rank0.json"))
    found = identity.identity_of(file)
    assert (found is not None) is is_known
    assert found is None or found.changed_s == changed_s


def test_secrets_of_a_url_are_in_no_entry(cache):
    file = replace(find(SAMPLES / "skew-nvlink").files[0], path=Remote("https://me:geheim@host/rank0.json?sig=geheim"))
    other = replace(file, path=Remote("https://me:geheim@host/rank0.json?sig=anders"))
    assert identity.key_of(file) != identity.key_of(other)
    summary = replace(summarize(SAMPLES / "skew-nvlink").ranks[0], path=file.path)
    assert b"geheim" not in b"".join(b"".join(chunks) for chunks in pack((summary,), ()).values())


def test_the_folder_is_the_platforms_own(monkeypatch):
    home = Path.home()
    assert environment.default_folder({}, "linux") == home / ".cache" / "tracer"
    assert environment.default_folder({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/tracer")
    assert environment.default_folder({"XDG_CACHE_HOME": "not/absolute"}, "linux") == home / ".cache" / "tracer"
    assert environment.default_folder({}, "darwin") == home / "Library" / "Caches" / "tracer"
    assert environment.default_folder({"LOCALAPPDATA": "/local"}, "win32") == Path("/local/tracer/cache")
    assert environment.default_folder({}, "win32") is None

    def homeless():
        raise RuntimeError

    monkeypatch.setattr(environment.Path, "home", homeless)
    assert environment.default_folder({}, "linux") is None
    assert environment.default_folder({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/tracer")


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_relative_home_has_no_folder(platform, monkeypatch):
    """It would be another one in each folder, and might be one that came with a run."""
    monkeypatch.setattr(environment.Path, "home", lambda: Path())
    assert environment.default_folder({}, platform) is None


@pytest.mark.parametrize("said", ["", "off"])
def test_the_environment_switches_it_off(run, said, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TRACER_CACHE", said)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(identity, "SETTLED_S", 0.0)
    told(capsys, run)
    assert not (tmp_path / "xdg").exists()
    monkeypatch.delenv("TRACER_CACHE")
    told(capsys, run)
    assert len(entries(tmp_path / "xdg" / "tracer")) == RUN.ranks


def test_a_relative_folder_is_a_usage_error(run, monkeypatch, capsys):
    """It would be another one in each folder, and might be one that came with a run."""
    monkeypatch.setenv("TRACER_CACHE", "cache")
    assert main(["report", str(run)]) == 2
    assert "TRACER_CACHE: 'cache' is neither an absolute path" in capsys.readouterr().err


def test_report_and_compare_of_the_library_keep_where_commands_do_or_where_asked(cache, run, tmp_path, reads):
    tracer.report(run, cache=False)
    assert not cache.exists()
    tracer.report(run)
    reads.clear()
    assert main(["report", str(run)]) == 0
    assert reads == []
    own = tmp_path / "own"
    first = tracer.report(run, cache=own)
    reads.clear()
    assert tracer.report(run, cache=str(own)).json() == first.json()
    tracer.compare(run, run, cache=own)
    assert reads == []
