"""Summaries as bytes: exact for all samples, and for hostile bytes an error."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.rank.summary import summarize
from tests.support.exactly import differences
from tests.support.generator import Run, write_run
from tests.support.samples import REPORTED, summarized
from tests.support.tiers import quarters
from tracer.reading.cache import packing
from tracer.reading.cache.packing import BASE, CAUSES, LANES, PARTS, NotPacked, pack, unpack

SAMPLES = Path(__file__).resolve().parents[2] / "traces"


def joined(sections):
    return {name: bytearray(b"".join(chunks)) for name, chunks in sections.items()}


@pytest.mark.parametrize("path", REPORTED)
def test_a_summary_comes_back_exactly(path):
    for rank in summarized(path).ranks:
        assert not list(differences((rank,), unpack(joined(pack((rank,), PARTS)), rank.path)))


@pytest.mark.parametrize("name", quarters(["resnet18-ddp2", "resnet18-fsdp4"]))
def test_parts_that_are_not_asked_for_are_none(name):
    (rank, *_) = summarize(SAMPLES / name, lanes=True, causes=True).ranks
    sections = joined(pack((rank,), PARTS))
    for asked in ((), (LANES,), (CAUSES,), PARTS):
        expected = summarize(SAMPLES / name, lanes=LANES in asked, causes=CAUSES in asked).ranks[0]
        back = unpack({part: sections[part] for part in (BASE, *asked)}, rank.path)
        assert not list(differences((expected,), back))


@pytest.fixture(scope="module")
def rank(tmp_path_factory):
    run = Run(ranks=2, steps=2, compute="aabb..", comm="..ccc.", copy="z.....")
    return summarize(write_run(tmp_path_factory.mktemp("packed") / "run", run), lanes=True, causes=True).ranks[0]


def test_arrays_that_fields_share_are_packed_once(rank):
    windows = rank.timed.windows
    rank = replace(rank, timed=replace(rank.timed, graph=None, tracks=None))
    shared = replace(rank, timed=replace(rank.timed, windows=replace(windows, comm_ns=windows.span_ns)))
    once, twice = (joined(pack((each,), ())) for each in (shared, rank))
    assert len(twice[BASE]) - len(once[BASE]) >= windows.span_ns.nbytes
    assert not list(differences((shared,), unpack(once, rank.path)))


@pytest.mark.parametrize("value", [np.array([object()]), np.array(["text"]), np.float64(3), object(), 1 << 70])
def test_what_bytes_cannot_hold_is_refused(rank, value):
    with pytest.raises(NotPacked):
        pack((replace(rank, timed=replace(rank.timed, earliest_ns=value)),), ())


@pytest.mark.parametrize(
    "said",
    [
        ["|O", 0, 1],
        ["<i8", -1, 1],
        ["<i8", 0, -1],
        ["<i8", 0, 1 << 62],
        ["<i8", 1 << 62, 1],
        ["<i8", 0, 1 << 40, 1 << 40],
        ["<i8", 0, -1, -1],
        ["<i8", 0, 1.5],
        ["<i8", "0", 1],
        [[], 0, 1],
        ["<i8"],
        [],
        "<i8",
        None,
        {"<i8": 1},
    ],
)
def test_an_array_that_is_not_there_is_refused(said):
    with pytest.raises((ValueError, TypeError)):
        packing._Views(memoryview(bytearray(64))).array(None, said)


def test_any_bytes_are_a_summary_or_an_error(rank):
    """Digests do not count here: whoever can write to the folder can make them, too."""
    whole = joined(pack((rank,), PARTS))
    texts = {name: int.from_bytes(section[:8], "little") for name, section in whole.items()}
    refused = 0
    for number in range(1500):
        chance = random.Random(number)
        sections = {name: bytearray(section) for name, section in whole.items()}
        name = chance.choice([*sections])
        section = sections[name]
        for _ in range(chance.choice([1, 1, 2, 8])):
            # Most of it is arrays, of which any bytes are some.
            place = chance.randrange(8 + texts[name] if chance.random() < 0.9 else len(section))
            section[place] = chance.randrange(256)
        if chance.random() < 0.2:
            del section[chance.randrange(len(section)) :]
        try:
            unpack(sections, rank.path)
        except NotPacked:
            refused += 1
    assert refused > 500
