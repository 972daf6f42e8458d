"""What small or hostile inputs cost: memory and CPU seconds of a process of its own, and how effort grows with them.

Bounds are generous, for machines differ; growth is counted, and exact.
"""

import gzip
import json
import shutil
import subprocess
import sys

import pytest

from analyzers.errors import UnreadableTrace
from analyzers.trace.decoding import MOST_SENSELESS
from analyzers.trace.reader import read_trace
from tests.support.commands import fails
from tests.support.effort import effort
from tests.support.samples import ROOT, SAMPLES
from tests.support.tiers import quarters

HEAD = '{"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":0,"world_size":1},"traceEvents":['
BUDGET_MB = 50
# What a report takes of these machines at rest, and what more a process may take.
MOST_MB, MOST_CPU_S = 600, 60


def kernel(number, times="3.000"):
    return (
        f'{{"ph":"X","cat":"kernel","name":"k{number % 50}","pid":0,"tid":7,"ts":{1000 + 10 * number}.000,'
        f'"dur":{times},"args":{{"stream":7,"device":0,"correlation":{number}}}}}'
    )


def every_second(count, damage):
    return HEAD + ",\n".join(damage(kernel(number)) if number % 2 else kernel(number) for number in range(count)) + "]}"


DAMAGES = {
    "a time that is no number": lambda text: text.replace('"dur":3.000', '"dur":3.0x00'),
    "a text for a time": lambda text: text.replace('"dur":3.000', '"dur":"x"'),
    "text behind it": lambda text: text + " x",
    "a quote that is not escaped": lambda text: text.replace('"name":"k', '"name":"k"k'),
    "a brace too few": lambda text: text[:-1],
    "an end too few": lambda text: text[:-30],
}
NONSENSE = {"brackets": "[]", "braces": "{}", "numbers": "1", "texts": '"x"', "words": "{x}"}


# A process's most memory is at least that of the one that started it, which therefore is a small one.
MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stderr=subprocess.STDOUT)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)
"""


def spent(folder, *words):
    """Exit status, output, megabytes at most and CPU seconds of `tracer report` on a folder."""
    command = [sys.executable, "-m", "tracer", "report", str(folder), "--no-cache", *words]
    measured = [sys.executable, "-c", MEASURED, *command]
    done = subprocess.run(measured, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout
    said, _, figures = done.rstrip().rpartition("\n")
    code, megabytes, seconds = figures.split()
    return int(code), said, float(megabytes), float(seconds)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("front", ["[", HEAD], ids=["a list", "a document"])
def test_millions_of_what_makes_no_sense_are_refused_before_they_are_read(folder, nonsense, front):
    (folder / "rank0.json").write_text(front + ",".join([NONSENSE[nonsense]] * 12_000_000) + "]")
    code, said, megabytes, seconds = spent(folder)
    assert code == 1
    assert "\n" not in said
    assert "rank0.json" in said
    assert megabytes < MOST_MB
    assert seconds < MOST_CPU_S / 3


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_of_which_every_second_row_is_damaged_is_read(folder, damage):
    (folder / "rank0.json").write_text(every_second(400_000, DAMAGES[damage]))
    code, said, megabytes, seconds = spent(folder)
    assert code == 0, said
    assert megabytes < MOST_MB
    assert seconds < MOST_CPU_S


@pytest.mark.parametrize("damage", quarters([*DAMAGES]))
def test_damage_everywhere_takes_effort_in_proportion(tmp_path, damage):
    path, efforts = tmp_path / "rank0.json", []
    for count in (500, 1_000, 2_000):
        path.write_text(every_second(count, DAMAGES[damage]))
        efforts.append(effort(lambda: read_trace(path)))
    assert efforts[2] - efforts[1] < 2.2 * (efforts[1] - efforts[0])


def test_what_makes_sense_at_times_is_read_however_much_does_not(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(HEAD + ",".join(kernel(number) + ",[]" * 8 for number in range(MOST_SENSELESS // 6)) + "]}")
    trace = read_trace(path)
    assert len(trace.events) == MOST_SENSELESS // 6
    assert f"{8 * len(trace.events):,} events that make no sense" in str(trace.lost[0])
    path.write_text(HEAD + kernel(0) + ",[]" * MOST_SENSELESS + ",[]]}")
    with pytest.raises(UnreadableTrace, match="make no sense"):
        read_trace(path)


def test_rows_beside_communication_count_into_the_budget(folder, capsys):
    """Each of two thousand collectives, on streams of their own, runs until the last of as many kernels has begun."""
    rows = [kernel(number, "99999.000") if number % 2 else kernel(number) for number in range(4_000)]
    for number in range(1, 4_000, 2):
        said = rows[number].replace('"name":"k', '"name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL_')
        rows[number] = said.replace('"stream":7', f'"stream":{number}')
    (folder / "rank0.json").write_text(HEAD + ",".join(rows) + "]}")
    code, said = fails(capsys, "report", str(folder), "--memory", f"{BUDGET_MB}MB", "--no-cache")
    assert code == 1
    assert "rank0.json" in said
    assert "rows that its kernels of communication meet" in said


@pytest.mark.slow
@pytest.mark.parametrize("place", ["header", "text", "tail"])
def test_the_budget_holds_for_what_is_no_event(folder, place):
    fronts = {"header": HEAD[:-15] + '"x":"', "text": HEAD + '{"name":"', "tail": HEAD + kernel(0) + '],"x":"'}
    with gzip.open(folder / "rank0.json.gz", "wb", compresslevel=1) as file:
        file.write(fronts[place].encode())
        for _ in range(600):
            file.write(b"a" * 1_000_000)
        file.write(b'"}]}')
    code, said, megabytes, _ = spent(folder, "--memory", f"{BUDGET_MB}MB")
    assert code == 1
    assert f"more than {BUDGET_MB} MB of memory" in said
    # Beside the budget, what Python and the report's own modules take, and one block of gzip, inflated.
    assert megabytes < BUDGET_MB + 130


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "steps"), [(1, 200_000), (20_000, 1)])
def test_controls_of_any_number_of_steps_take_little(folder, blocks, steps):
    shutil.copytree(SAMPLES / "resnet18-ddp2", folder, dirs_exist_ok=True)
    manifest = json.loads((folder / "run.json").read_text())
    timed = {"steps_ns": {rank: [[8_000_000] * steps] * blocks for rank in ("0", "1")}}
    manifest["controls"] = dict.fromkeys(manifest["controls"], timed)
    (folder / "run.json").write_text(json.dumps(manifest))
    code, said, megabytes, seconds = spent(folder)
    assert code == 0, said
    assert megabytes < MOST_MB
    assert seconds < MOST_CPU_S
