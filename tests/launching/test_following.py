"""What is heard of ranks while they run."""

from tracer.launching.elastic import _follow
from tracer.recording import PROGRESS


def test_of_a_rank_that_hangs_it_is_said_for_how_long_no_step_has_ended(tmp_path):
    file = tmp_path / PROGRESS
    file.parent.mkdir()
    written = {1: "settling\t5\t14\n", 200: "settling\t6\t14\nsett", 210: "ling\t14\t14\n"}
    clock, heard = [0], []

    def wait(poll_s: float) -> bool:
        clock[0] += 1
        with file.open("a") as lines:
            lines.write(written.get(clock[0], ""))
        return clock[0] == 400

    _follow(file, lambda *report: heard.append((clock[0], *report)), lambda: None, wait, lambda: clock[0])
    silent = "settling: no step has ended for {} min"
    assert heard == [
        (1, "settling", 5, 14),
        *((1 + 60 * minutes, silent.format(minutes), 5, 14) for minutes in (1, 2, 3)),
        (200, "settling", 6, 14),
        (210, "settling", 14, 14),
    ]
