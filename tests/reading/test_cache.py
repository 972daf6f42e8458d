"""The cache: a hit says what reading says, and whatever changed is read anew."""

import os
import random
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

import tracer
from analyzers.errors import TooLarge
from analyzers.rank.summary import summarize, summarize_file
from analyzers.run.layout import find
from tests.support.cached import HOUR_S, RUN, entries, told
from tests.support.exactly import differences
from tests.support.fuzzing import made
from tests.support.fuzzing_cache import fuzz_cache
from tests.support.generator import write_run
from tests.support.mutators import MUTATORS
from tests.support.samples import SAMPLES
from tests.support.tiers import quarters
from tracer.atomic_files import write_text
from tracer.cli import main
from tracer.errors import TracerError
from tracer.reading import Readers, processes, read_lanes, read_run
from tracer.reading.cache import folder as folders
from tracer.reading.cache import identity, store
from tracer.reading.cache.packing import CAUSES, LANES, PARTS
from tracer.reading.cache.store import Cache
from tracer.results import source
from tracer.second_reading import read_twice


@contextmanager
def reading_all(names):
    """All of the run's three ranks are read in the block."""
    names.clear()
    yield
    assert sorted(names) == ["rank0.json", "rank1.json", "rank2.json"]
    names.clear()


def test_the_second_command_reads_no_trace(cache, run, reads, capsys):
    with reading_all(reads):
        first = told(capsys, run)
    assert told(capsys, run) == first
    assert reads == []
    with reading_all(reads):
        assert told(capsys, run, "--no-cache") == first
    assert len(entries(cache)) == RUN.ranks
    assert {entry.stat().st_mode & 0o777 for entry in entries(cache)} == {0o600}
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", quarters(["skew-nvlink", "resnet18-ddp4"]))
def test_samples_say_the_same_with_and_without(cache, capsys, tmp_path, name):
    pages = []
    for number, more in enumerate([["--no-cache"], ["--workers", "2"], [], ["--workers", "1"]]):
        page = tmp_path / f"{number}.html"
        pages.append((told(capsys, SAMPLES / name, "--html", page, *more), page.read_bytes()))
    assert len(set(pages)) == 1


def test_a_part_that_is_missing_is_read_and_the_others_stay(cache, run, reads, capsys):
    by = Readers(cache=cache)
    for wanted, is_read in (
        ({}, True),
        ({"causes": True}, True),
        ({"lanes": True}, True),
        ({"lanes": True, "causes": True}, False),
        ({}, False),
    ):
        summary = read_run(run, **wanted, by=by)
        assert bool(reads) is is_read
        assert not list(differences(summarize(run, **{"causes": False} | wanted).ranks, summary.ranks))
        reads.clear()
    assert len(entries(cache)) == RUN.ranks


def test_ranks_that_are_drawn_later_are_looked_up_too(cache, run, reads):
    by = Readers(cache=cache)
    summary = read_run(run, by=by)
    drawn = read_lanes(summary, run, [1], by=by)
    reads.clear()
    again = read_lanes(read_run(run, by=by), run, [1], by=by)
    assert reads == []
    assert again.ranks[1].timed.tracks is not None and again.ranks[0].timed.tracks is None
    assert not list(differences(drawn, again))


def in_the_middle(file):
    """Other content of the same size, with the old time put back."""
    status, data = file.stat(), file.read_bytes()
    assert data.count(b"void gemm<a>")
    file.write_bytes(data.replace(b"void gemm<a>", b"void hemm<a>"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size


def behind_the_blocks(file):
    """One byte that no block holds, in place, with the old time put back."""
    status = file.stat()
    with file.open("r+b") as opened:
        data = opened.read()
        place = data.rindex(b"void gemm<", 0, len(data) // 2 - 4096)
        opened.seek(place)
        opened.write(b"V")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def another_in_its_place(file):
    status, data = file.stat(), file.read_bytes()
    other = file.with_suffix(".new")
    other.write_bytes(data.replace(b"void gemm<a>", b"void hemm<a>"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)


def cut_short(file):
    os.truncate(file, file.stat().st_size - 200)


def touched(file):
    os.utime(file)


@pytest.mark.parametrize(
    "change", quarters([in_the_middle, touched, behind_the_blocks, another_in_its_place, cut_short])
)
def test_a_file_that_changed_is_read_anew(cache, tmp_path, reads, capsys, change):
    run = write_run(tmp_path / "run", replace(RUN, steps=40))
    told(capsys, run)
    reads.clear()
    change(run / "rank1.json")
    changed = told(capsys, run)
    assert reads == ["rank1.json"]
    assert changed == told(capsys, run, "--no-cache")
    reads.clear()
    assert told(capsys, run) == changed
    assert reads == []


@pytest.mark.slow
def test_another_window_of_a_rank_is_part_of_it(cache, tmp_path, reads, capsys):
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "resnet18-ddp2", run)
    first = told(capsys, run)
    for window in ("light", "nosync"):
        reads.clear()
        (run / window / "rank0.json.gz").write_bytes(b"no trace")
        assert told(capsys, run) != first
        assert reads == ["rank0.json.gz"]
        # What could not be read may be once more: such a rank is not kept.
        assert told(capsys, run) == told(capsys, run, "--no-cache")
        assert reads.count("rank0.json.gz") == 3
        shutil.copy(SAMPLES / "resnet18-ddp2" / window / "rank0.json.gz", run / window)
    assert told(capsys, run) == first


def test_a_file_that_changes_while_it_is_read_is_not_kept(cache, run, monkeypatch, capsys):
    def read(file, **wanted):
        summary = summarize_file(file, **wanted)
        os.utime(file.path)
        return summary

    monkeypatch.setattr(store, "summarize_file", read)
    told(capsys, run)
    assert entries(cache) == []


def test_a_file_that_was_written_just_now_is_not_kept(cache, run, monkeypatch, capsys):
    monkeypatch.setattr(identity, "SETTLED_S", HOUR_S)
    told(capsys, run)
    assert entries(cache) == []
    monkeypatch.setattr(identity, "SETTLED_S", 0.0)
    told(capsys, run)
    assert len(entries(cache)) == RUN.ranks


def test_other_options_and_other_places_have_their_own(cache, run, tmp_path, reads, capsys, monkeypatch):
    told(capsys, run)
    with reading_all(reads):
        told(capsys, run, "--steps", "ProfilerStep")
    with reading_all(reads):
        monkeypatch.chdir(tmp_path)
        told(capsys, "run")
    alone = told(capsys, run / "rank1.json")
    assert reads == ["rank1.json"]
    assert told(capsys, run / "rank1.json") == alone


def test_a_current_folder_that_is_gone_is_none(tmp_path, monkeypatch):
    file = find(SAMPLES / "skew-nvlink").files[0]
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert identity.key_of(file)


def test_another_version_reads_for_itself(cache, run, reads, capsys, monkeypatch):
    told(capsys, run)
    monkeypatch.setattr(store, "_digest_program", lambda: b"another version.")
    with reading_all(reads):
        told(capsys, run)
    assert len(entries(cache)) == 2 * RUN.ranks


def test_a_program_that_was_edited_since_it_began_keeps_nothing(cache, run, capsys, monkeypatch):
    monkeypatch.setattr(store, "_IMPORTED_NS", 1)
    told(capsys, run)
    assert not cache.exists()


def test_an_edit_of_the_program_makes_another_version(tmp_path):
    (tmp_path / "room").mkdir()
    module = tmp_path / "room" / "module.py"
    module.write_text("A = 1")
    os.utime(module, (1, 1))
    before = store._list_sources(str(tmp_path))
    assert [name for name, _, _ in before] == ["/room/module.py"]
    os.utime(module, (2, 2))
    assert store._list_sources(str(tmp_path)) != before
    assert store._list_sources(str(tmp_path / "none")) == []


@pytest.mark.parametrize("name", ["resnet18-ddp2", "resnet18-fsdp4"])
def test_less_memory_than_reading_needs_is_no_hit(cache, name):
    """The budget that is noted is the least with which the rank reads the same."""
    path = SAMPLES / name
    for file in find(path, memory=10**10).files:
        kept = Cache(cache)
        cache.mkdir(exist_ok=True)
        summaries = kept.reading()(file, lanes=False, causes=False)
        enough, less = (replace(file, memory=summaries[0].peak_bytes - count) for count in (0, 1))
        assert not list(differences(summaries, summarize_file(enough)))
        assert not list(differences(summaries, kept.look_up(enough, ())))
        assert kept.look_up(less, ()) is None
        with suppress(TooLarge):
            # A smaller window that does not fit costs itself.
            assert summarize_file(less)[0].peak_bytes is None


def test_commands_refuse_what_is_too_large_from_the_cache_too(cache, tmp_path, capsys):
    run = write_run(tmp_path / "run", replace(RUN, steps=400))
    told(capsys, run)
    for more in ([], ["--no-cache"]):
        assert main(["report", str(run), "--memory", "1MB", *more]) == 1
        assert "1 MB of memory" in capsys.readouterr().err


def test_what_cannot_be_read_is_tried_each_time(cache, run, reads, capsys):
    (run / "rank1.json").write_text("no trace")
    first = told(capsys, run)
    assert len(entries(cache)) == RUN.ranks - 1
    reads.clear()
    assert told(capsys, run) == first
    assert reads == ["rank1.json"]


def test_progress_begins_with_what_is_known(cache, run, capsys):
    begun = []

    @contextmanager
    def progress(done, total):
        begun.append((done(), total))
        yield
        begun.append((done(), total))

    def sizes(count):
        return sum((run / f"rank{rank}.json").stat().st_size for rank in range(count))

    read_run(run, by=Readers(cache=cache, progress=progress))
    os.utime(run / "rank2.json")
    read_run(run, by=Readers(cache=cache, progress=progress))
    read_run(run, by=Readers(cache=cache, progress=progress))
    assert begun == [(0, sizes(3)), (sizes(3), sizes(3)), (sizes(2), sizes(3)), (sizes(3), sizes(3))]


def test_no_process_starts_where_all_is_known(cache, run, monkeypatch):
    first = read_run(run, by=Readers(workers=1, cache=cache))
    monkeypatch.setattr(processes, "ProcessPoolExecutor", None)
    assert not list(differences(first, read_run(run, by=Readers(workers=2, cache=cache))))


def test_an_entry_that_is_damaged_anywhere_is_read_past_and_rewritten(cache, run, reads, capsys):
    first = told(capsys, run)
    entry = entries(cache)[0]
    whole = entry.read_bytes()
    files = find(run, memory=10**10).files
    (file,) = [file for file in files if Cache(cache)._entry(identity.key_of(file)) == entry]
    for place in [*range(0, 400, 5), *range(400, len(whole), len(whole) // 40)]:
        flipped = bytes([whole[place] ^ 1])
        for data in (whole[:place] + flipped + whole[place + 1 :], whole[:place], whole[:place] + whole[place + 1 :]):
            entry.write_bytes(data)
            assert Cache(cache).look_up(file, (CAUSES,)) is None
    entry.write_bytes(whole[:-1])
    reads.clear()
    assert told(capsys, run) == first
    assert len(reads) == 1
    assert told(capsys, run) == first
    assert len(reads) == 1
    assert entry.read_bytes() == whole


def test_entries_broken_anyhow_are_whole_or_nothing(cache, run):
    kept = Cache(cache)
    read_run(run, lanes=True, causes=True, by=Readers(cache=cache))
    files = find(run, memory=10**10).files
    (expected,) = summarize_file(files[0], lanes=True, causes=True)
    entry = kept._entry(identity.key_of(files[0]))
    others = [each for each in entries(cache) if each != entry]
    whole = entry.read_bytes()
    for number in range(400):
        chance = random.Random(number)
        data = bytearray(whole)
        begin = chance.randrange(len(data) if chance.random() < 0.5 else 600)
        end = min(begin + chance.choice([1, 1, 8, 500]), len(data))
        change = chance.randrange(5)
        if change == 0:
            data[begin:end] = chance.randbytes(end - begin)
        elif change == 1:
            del data[begin:end]
        elif change == 2:
            data[begin:begin] = data[begin:end]
        elif change == 3:
            del data[begin:]
        else:
            data = bytearray(others[0].read_bytes())
        entry.write_bytes(data)
        asked = chance.choice([(), (LANES,), (CAUSES,), PARTS])
        found = kept.look_up(files[0], asked)
        if found is not None:
            assert not list(differences(replace(expected, timed=found[0].timed), found[0]))
            assert not list(differences(expected.timed.windows, found[0].timed.windows))


@pytest.mark.slow
def test_commands_at_once_say_the_same(cache, run, capsys):
    expected = told(capsys, run, "--no-cache")
    code = (
        "import sys; from tracer.reading.cache import folder, identity; from tracer.cli import main;"
        "identity.SETTLED_S = 0.0; folder.MOST_BYTES = 200_000;"
        "[main(['report', sys.argv[1], '--json']) for _ in range(6)]"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in started:
        assert process.communicate()[0] == expected * 6
        assert process.returncode == 0
    assert not list(cache.glob("*.partial"))


def test_threads_that_keep_look_up_and_clean_see_whole_entries_or_none(cache, run):
    kept = Cache(cache)
    cache.mkdir()
    file = find(run, memory=10**10).files[0]
    summary = kept.reading()(file, lanes=True, causes=False)
    wrong, hits = [], []

    def keeps():
        for _ in range(40):
            kept.keep(file, identity.identity_of(file), summary, [LANES])

    def looks():
        for _ in range(200):
            found = kept.look_up(file, [LANES])
            hits.append(found is not None)
            wrong.extend([] if found is None else differences(summary, found))

    def cleans():
        for _ in range(200):
            folders.clean(cache, "", most_bytes=1)

    threads = [threading.Thread(target=each) for each in (keeps, keeps, looks, looks, cleans)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert any(hits)


@pytest.mark.slow
def test_damaged_traces_are_kept_as_they_were_read(tmp_path):
    went, wrong = fuzz_cache(made(), 200, 1, tmp_path)
    assert wrong == []
    assert went["kept"] > 50
    assert went["refused"] > 20


@pytest.mark.slow
def test_forged_entries_whose_digests_are_right_are_removed_where_they_make_a_command_fail(cache, tmp_path, capsys):
    run, page = str(SAMPLES / "skew-memory"), str(tmp_path / "run.html")
    commands = [["report", run, "--json", "--html", page, "--force"], ["whatif", run, "--json"]]
    codes = [main(command) for command in commands]
    honest = {entry: entry.read_bytes() for entry in entries(cache)}
    assert len(honest) == 2
    removed = 0
    for number in range(12):
        chance = random.Random(f"forged {number}")
        for entry, data in honest.items():
            entry.write_bytes(data)
        forged = chance.choice(sorted(honest))
        data = MUTATORS["forge"][0](honest[forged], chance)
        forged.write_bytes(data)
        for command, code in zip(commands, codes, strict=True):
            assert main(command) == code, number
        removed += forged.read_bytes() != data
    assert 0 < removed < 12


def test_what_was_written_before_an_entry_made_a_command_fail_is_written_anew(
    cache, run, tmp_path, capsys, monkeypatch
):
    first = told(capsys, run, "--html", tmp_path / "first.html")  # so that all parts are kept
    failed = []

    def fails_once(*_):
        if not failed:
            failed.append(entries(cache))
            raise IndexError("of a column")
        return "page"

    monkeypatch.setattr("tracer.views.html.report_html", fails_once)
    assert told(capsys, run, "--csv", tmp_path / "out", "--html", tmp_path / "run.html") == first
    assert len(failed[0]) == RUN.ranks
    assert (tmp_path / "run.html").read_text() == "page"


def test_a_fault_of_the_programs_own_ends_it_with_and_without_entries(cache, run, monkeypatch, capsys):
    def fails(*_):
        raise IndexError("of a column")

    monkeypatch.setattr("analyzers.reporting.to_json", fails)
    for _ in range(2):
        with pytest.raises(IndexError, match="of a column"):
            main(["report", str(run), "--json"])
    assert len(entries(cache)) == RUN.ranks


def test_a_report_for_python_is_read_anew_where_an_entry_makes_it_fail(cache, run, reads, monkeypatch):
    tracer.report(run, cache=cache)
    reported, failed = source.build, []

    def fails_once(*arguments):
        if not failed:
            failed.append(True)
            raise IndexError("of a column")
        return reported(*arguments)

    monkeypatch.setattr(source, "build", fails_once)
    with reading_all(reads):
        assert tracer.report(run, cache=cache).document.run.ranks == [0, 1, 2]


def test_a_command_that_begins_once_more_replaces_no_file_without_force(cache, run, tmp_path, capsys, monkeypatch):
    told(capsys, run)
    page = tmp_path / "page.html"
    page.write_text("mine")
    read = store.unpack
    monkeypatch.setattr(store, "unpack", lambda *given: replace(read(*given), timed=None))
    assert main(["report", str(run), "--html", str(page)]) == 1
    assert (capsys.readouterr().err.count("--force"), page.read_text()) == (1, "mine")


def test_a_command_that_begins_once_more_may_replace_what_it_wrote_itself(cache, run, tmp_path, capsys):
    told(capsys, run)
    written, failing = tmp_path / "written", [True]

    def fails_once():
        read_run(run, by=Readers(cache=cache))
        write_text(written, "once", force=False)
        if failing:
            raise IndexError(failing.pop())
        return 0

    assert read_twice(fails_once) == 0
    with pytest.raises(TracerError, match="already exists"):
        write_text(written, "again", force=False)


def test_a_fault_of_the_programs_own_is_met_again(cache, run, tmp_path, capsys):
    told(capsys, run)

    def fails():
        read_run(run, by=Readers(cache=cache))
        write_text(tmp_path / "written", "", force=False)
        raise IndexError("ours")

    with pytest.raises(IndexError, match="ours"):
        read_twice(fails)
