"""Reports of people who profile, rebuilt: instances across ranks. Inputs and right values: shared/public-bugs."""

from pathlib import Path

import pytest

import analyzers

INPUTS = Path(__file__).resolve().parents[3] / "shared" / "public-bugs"
US = 1000
# Name, kind, and by place among the instances: ranks, transfer and waits, us; null where ends lie apart.
ROWS = [
    (
        "one_end_apart",
        "K14",
        [((0, 1), 2000, [0, 0], None), ((0, 1), None, [None, None], "2,500 us apart"), ((0, 1), 2000, [0, 0], None)],
    ),
    ("peers_in_groups", "K18", [((0, 2), 150, [0, 200], None), ((1, 3), 150, [0, 200], None)] * 3),
    (
        "late_profiler_steps",
        "K8",
        [((0, 1), 300, [2_000_000, 0], "before another's profile"), *[((0, 1), 300, [0, 0], None)] * 3],
    ),
    ("nothing_hidden", "K7", [((0, 1), 200, [0, 0], None)] * 12),
]


@pytest.mark.parametrize(("name", "kind", "instances"), ROWS, ids=[f"{kind} {name}" for name, kind, _ in ROWS])
def test_instances_have_their_right_values(name, kind, instances):
    if not (INPUTS / name).is_dir():
        pytest.skip("the input is not at hand")
    found = analyzers.report(analyzers.summarize(INPUTS / name))
    assert not found.unmatched
    assert len(found.collectives) == len(instances)
    for row, (group, transfer_us, waits_us, why) in zip(found.collectives, instances, strict=True):
        assert tuple(row.group) == group
        assert row.transfer_ns == (None if transfer_us is None else transfer_us * US)
        assert [member.wait_ns for member in row.members] == [wait if wait is None else wait * US for wait in waits_us]
        assert row.why is None if why is None else why in (row.why or "")
