"""Several ranks without communication: a warning with suspects, never a fact; and unmatched communication by name."""

from __future__ import annotations

from pathlib import Path

import analyzers
from analyzers.notices import Code
from analyzers.reporting import Report
from tests.support.kineto_files import kernel, step, write
from tracer.views.sections import report_text


def reported(folder: Path, kernels: list[tuple[str, float, int]], ranks: int = 2) -> Report:
    """Ranks that each run kernels of a name, length and stream, one behind another."""
    for rank in range(ranks):
        rows = [step(1, 0, 1000)]
        for number, (name, dur, stream) in enumerate(kernels, 1):
            rows += kernel(name, 10.0 * number, dur, number, stream=stream)
        said = {"distributedInfo": {"rank": rank, "world_size": ranks}}
        write(folder / f"rank{rank}.json", said | {"traceEvents": rows})
    return analyzers.report(analyzers.load(folder))


def silence(report: Report) -> list[str]:
    return [str(warning) for warning in report.run.warnings if warning.code == Code.COMMUNICATION_NOT_FOUND]


def test_ranks_without_communication_are_a_warning_with_suspects(tmp_path):
    mine = [("gemm", 8, 7), ("gemm", 8, 7), ("move_it", 5, 20), ("move_it", 4, 20), ("poll", 3, 21)]
    report = reported(tmp_path, mine)
    assert silence(report) == [
        "no communication was found in a run of 2 ranks: it counts as compute, or was not recorded "
        "(the longest kernels on streams of their own: 'move_it' (0.018 ms), 'poll' (0.006 ms))"
    ]
    assert report.summary.verdict.endswith("; no communication was found.")


def test_where_all_runs_on_one_stream_there_are_no_suspects(tmp_path):
    assert "(no kernel has a stream of its own)" in silence(reported(tmp_path, [("gemm", 8, 7)]))[0]


def test_one_rank_alone_need_not_communicate(tmp_path):
    report = reported(tmp_path, [("gemm", 8, 7)], ranks=1)
    assert not silence(report)
    assert "no communication" not in report.summary.verdict


def test_any_communication_breaks_the_silence(tmp_path):
    assert not silence(reported(tmp_path, [("gemm", 8, 7), ("multimem_all_reduce_kernel<4>(int)", 5, 20)]))


def test_unmatched_communication_has_lines_by_kernel_name(tmp_path):
    names = [("void ns::ep::intranode::dispatch<8>(int*)", 5.0, 20), ("ncclDevKernel_SendRecv(x)", 2.0, 21)]
    report = reported(tmp_path, [("gemm", 8, 7), *names, names[0]])
    unmatched = {(row.name, row.kind, row.why) for row in report.unmatched}
    text = report_text(report, "rank", width=160)
    assert unmatched
    for name in {name.removeprefix("void ").partition("(")[0] for name, _, _ in unmatched}:
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        rows = [row for row in report.unmatched if name in row.name]
        assert line.split()[2] == str(len(rows))
