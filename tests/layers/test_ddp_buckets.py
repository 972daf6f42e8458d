"""DDP's buckets where rows are missing, or run.json says otherwise than the traces."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.layers.layer_table import _share_out
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report

SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "resnet18-ddp2"
Row = dict[str, Any]


def altered(
    folder: Path, rows: Callable[[list[Row]], list[Row]], manifest: Callable[[Row], None] | None = None
) -> Report:
    """The report of the sample with other rows in its full windows, and its run.json, altered, where asked for."""
    for file in sorted(SAMPLE.glob("rank*.json.gz")):
        document = json.loads(gzip.decompress(file.read_bytes()))
        document["traceEvents"] = rows(document["traceEvents"])
        (folder / file.name.removesuffix(".gz")).write_text(json.dumps(document))
    if manifest is not None:
        said = json.loads((SAMPLE / "run.json").read_text())
        manifest(said)
        (folder / "run.json").write_text(json.dumps(said))
    return report(summarize(folder))


def as_they_are(rows: list[Row]) -> list[Row]:
    return rows


@pytest.fixture(scope="module")
def intact(tmp_path_factory) -> Report:
    return altered(tmp_path_factory.mktemp("intact"), as_they_are)


def layout(found: Report) -> list[tuple[int | None, int]]:
    assert found.summary.layout is not None
    return [(bucket.bytes, len(bucket.parameters or ())) for bucket in found.summary.layout.buckets]


def exposed(found: Report) -> list[int]:
    return [row.exposed_ns for row in found.buckets]


def test_a_reduction_whose_call_is_missing_is_a_bucket_all_the_same(tmp_path, intact):
    """Without c10d's rows the kernel's launch stands for the call."""
    names = ("c10d::allreduce_", "record_param_comms", "nccl:all_reduce")
    found = altered(tmp_path, lambda rows: [row for row in rows if row.get("name") not in names])
    assert (layout(found), exposed(found)) == (layout(intact), exposed(intact))


def without_numbers(rows: list[Row]) -> list[Row]:
    for row in rows:
        row.get("args", {}).pop("Sequence number", None)
    return rows


def test_without_numbers_packing_is_the_same_and_the_backward_is_said_to_be_lost(tmp_path, intact):
    found = altered(tmp_path, without_numbers)
    assert [window.packing_ns for window in found.windows] == [window.packing_ns for window in intact.windows]
    assert any("much of the backward of rank 0, 1 belongs to no layer" in str(warning) for warning in found.run.notices)
    assert layout(found) == layout(intact)


def test_without_gradients_nodes_buckets_and_packing_are_the_same(tmp_path, intact):
    """DDP's own spans on the thread of the backward tell of both; run.json has the parameters."""
    found = altered(
        tmp_path, lambda rows: [row for row in rows if "AccumulateGrad" not in row.get("name", "")], lambda said: None
    )
    assert [window.packing_ns for window in found.windows] == [window.packing_ns for window in intact.windows]
    assert (layout(found), exposed(found)) == (layout(intact), exposed(intact))


def test_without_shapes_run_json_tells_the_elements(tmp_path, intact):
    def shapeless(rows: list[Row]) -> list[Row]:
        for row in rows:
            row.get("args", {}).pop("Input Dims", None)
        return rows

    found = altered(tmp_path, shapeless, lambda said: None)
    assert layout(found) == layout(intact)
    assert sum(row.gradient_bytes or 0 for row in found.layers) == sum(row.gradient_bytes or 0 for row in intact.layers)
    assert not any(row.layer == "(gradients)" for row in found.layers)


def shifted_by_one(said: Row) -> None:
    for bucket in said["buckets"]:
        bucket["parameters"] = [(index + 1) % len(said["parameters"]) for index in bucket["parameters"]]


def negative(said: Row) -> None:
    said["buckets"][0]["parameters"][0] = -1


@pytest.mark.parametrize(
    ("change", "why"),
    [(shifted_by_one, "their sizes are not those of the all-reduces"), (negative, "each once")],
)
def test_a_run_json_that_does_not_fit_is_left_aside_and_said(tmp_path, intact, change, why):
    found = altered(tmp_path, as_they_are, change)
    assert found.summary.layout is not None
    assert found.summary.layout.source == "trace"
    assert layout(found) == layout(intact)
    assert any(
        "run.json's buckets are not used" in str(warning) and why in str(warning) for warning in found.run.notices
    )


def test_parameters_in_another_order_within_a_bucket_are_named_only_where_shapes_tell(tmp_path):
    def sort(said: Row) -> None:
        for bucket in said["buckets"]:
            bucket["parameters"].sort()

    found = altered(tmp_path, as_they_are, sort)
    names = {row.layer for row in found.layers}
    assert "fc" in names
    assert "batch_norm_19" in names


def test_a_module_called_like_a_loss_keeps_its_layer(tmp_path, intact):
    """Of a class whose name has `loss` inside; torch.nn's losses end with it."""
    assert intact.summary.layers_from == "operators"

    def ranged(rows: list[Row]) -> list[Row]:
        convolutions = [row for row in rows if row.get("name") == "aten::conv2d"]
        more = [
            row
            | {"cat": "user_annotation", "name": "nn.Module: conv (GlossyConv2d)", "ts": row["ts"] - 0.001, "args": {}}
            for row in convolutions
        ]
        return [*rows, *more]

    found = altered(tmp_path, ranged)
    assert any(row.layer == "conv" and row.forward_ns for row in found.layers)


def test_a_reduction_that_is_no_bucket_of_run_json_has_none(tmp_path, intact):
    """What a user reduces in a gradient's hook stands between DDP's buckets, and does not move their numbers."""

    def joined(rows: list[Row]) -> list[Row]:
        # The buffers' broadcast of 160 B becomes an all-reduce launched within the first gradient's node of its step.
        steps = [
            row for row in rows if row.get("name", "").startswith("ProfilerStep#") and row["cat"] == "user_annotation"
        ]
        for step in steps:
            inside = [row for row in rows if step["ts"] <= row.get("ts", 0) < step["ts"] + step["dur"]]
            node = next(row for row in inside if row["name"].endswith("AccumulateGrad") and "evaluate" in row["name"])
            reduce = next(row for row in inside if row["name"] == "c10d::allreduce_")
            kernels = {row["args"]["correlation"]: row for row in rows if row.get("cat") == "kernel"}
            launch = next(
                row
                for row in inside
                if row.get("cat") in ("cuda_runtime", "cuda_driver")
                and reduce["ts"] <= row["ts"] < reduce["ts"] + reduce["dur"]
                and row["args"].get("correlation") in kernels
            )
            kernel = kernels[launch["args"]["correlation"]]
            number = 10**9 + step["ts"]
            at = node["ts"] + 0.001
            args = kernel["args"] | {
                "correlation": int(number) % 10**9 + 2 * 10**9,
                "In msg nelems": 7,
                "Out msg nelems": 7,
            }
            rows = [
                *rows,
                reduce | {"ts": at, "dur": 0.002},
                launch | {"ts": at, "dur": 0.001, "args": {"correlation": args["correlation"]}},
                kernel | {"ts": kernel["ts"] - 60, "dur": 1.0, "args": args},
            ]
        return rows

    found = altered(tmp_path, joined, lambda said: None)
    assert layout(found) == layout(intact)
    strange = [row for row in found.buckets if row.bucket is None]
    assert {row.bytes for row in strange} == {28}
    assert any("fit no bucket of the layout" in str(warning) for warning in found.run.notices)
    kept = [row.exposed_ns for row in found.buckets if row.bucket is not None]
    assert kept == exposed(intact)


@given(
    st.lists(st.integers(1, 10**7), min_size=1, max_size=9),
    st.lists(st.integers(0, 10**6), min_size=3, max_size=3).map(lambda lengths: sorted(lengths, reverse=True)),
)
def test_no_layer_has_more_of_a_reductions_parts_than_of_its_length_and_they_add_up(elements, lengths_ns):
    names = [f"layer{place}" for place in range(len(elements))]
    lines = {}
    _share_out(lines, dict(zip(names, elements, strict=True)), dict.fromkeys(names, "Linear"), tuple(lengths_ns), 4)
    shares = [total for name in names for total in lines[name].comm.values()]
    assert [sum(getattr(share, part) for share in shares) for part in ("dur_ns", "exposed_ns", "wait_ns")] == lengths_ns
    assert all(0 <= share.exposed_ns <= share.dur_ns and 0 <= share.wait_ns <= share.dur_ns for share in shares)
