"""Layers and the lines that are none, told apart whatever modules are called, and whatever ranks have recorded."""

from dataclasses import replace

import numpy as np
import pytest

import analyzers
from analyzers.arrays import UNKNOWN
from analyzers.layers.bucket_table import HiddenBy
from analyzers.notices import Code
from analyzers.rank.columns.activity import CPU_DEVICE
from analyzers.rank.columns.attribution import NO_LAYERS, is_layer, layer_name
from analyzers.trace.range_names import ROOT
from tests.support.samples import SAMPLES, reported
from tests.support.tiers import quarters

RESNET50 = SAMPLES / "resnet50-ddp4-bf16"


def changed(run, numbers, change):
    """A run in which the traces of some ranks are others."""
    ranks = tuple(change(rank) if rank.rank in numbers else rank for rank in run.ranks)
    return replace(run, ranks=ranks)


def renamed(old, new):
    def change(rank):
        names = [name.replace(f"nn.Module: {old} (", f"nn.Module: {new} (") for name in rank.events.names]
        return replace(rank, events=replace(rank.events, names=names), timed=replace(rank.timed, names=names))

    return change


def without_modules(rank):
    ours = np.array([name.startswith("nn.Module: ") for name in rank.events.names])[rank.events.name]
    return replace(rank, events=rank.events.take(~ours), timed=rank.timed.take(~ours))


@pytest.mark.parametrize("name", quarters(["(x)", "(packing)", "(optimizer)", "(gradients)"]))
def test_a_module_in_brackets_is_a_layer(name):
    run = changed(analyzers.load(RESNET50), (0, 1, 2, 3), renamed("layer1.0.conv1", name))
    found, before = analyzers.report(run), reported(RESNET50)
    (row,) = [row for row in found.summary.layers if row.type == "Conv2d" and row.layer == layer_name(name)]
    (same,) = [row for row in before.summary.layers if row.layer == "layer1.0.conv1"]
    assert is_layer(row.layer)
    assert row.measures["forward_ns"] == same.measures["forward_ns"]
    lines = [row.layer for row in found.summary.layers]
    assert len(lines) == len({row.layer for row in before.summary.layers})
    hidden = {part.layer: part for row in found.buckets for part in row.hidden_by}
    assert all(isinstance(part, HiddenBy) for part in hidden.values())
    assert [advice.text for advice in found.summary.advice] == [advice.text for advice in before.summary.advice]


def test_the_model_itself_is_a_layer_and_no_line_is():
    assert is_layer(ROOT)
    assert is_layer("fc")
    assert {"(packing)", "(buffers)", "(gradients)", "(other)"} <= NO_LAYERS
    assert not any(map(is_layer, NO_LAYERS))


@pytest.mark.parametrize("lacking", quarters([0, 1]))
def test_two_sources_of_layers_are_said_and_no_rank_speaks_for_all(lacking):
    run = changed(analyzers.load(RESNET50), (lacking,), without_modules)
    found = analyzers.report(run)
    (line,) = [warning for warning in found.run.notices if warning.code == Code.LAYERS_OF_SEVERAL_SOURCES]
    assert {"modules", "operators"} <= set(str(line).replace(",", "").replace(":", "").split())
    assert any(f"the trace of rank {lacking} has no ranges of modules" in str(warning) for warning in found.run.notices)
    kept = [row for row in found.layers if row.rank != lacking]
    same = [row for row in reported(RESNET50).layers if row.rank != lacking]
    assert [(row.layer, row.forward_ns, row.bucket) for row in kept] == [
        (row.layer, row.forward_ns, row.bucket) for row in same
    ]


def test_most_ranks_say_where_layers_are_from():
    run = changed(analyzers.load(RESNET50), (0,), without_modules)
    assert analyzers.report(run).summary.layers_from == "modules"


def test_no_device_is_what_a_row_without_a_peer_says():
    assert len({CPU_DEVICE, UNKNOWN}) == len({CPU_DEVICE, UNKNOWN}) == 2
