import json

import pytest

from analyzers.run.manifest import MANIFEST, Manifest, read_manifest
from analyzers.trace.range_names import Module, module_of, own_name, range_name
from tests.support.kineto_files import write
from tests.support.training import kernel, ranged, step, traced


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("nn.Module: layer1.0.conv1 (Conv2d)", Module("layer1.0.conv1", "Conv2d")),
        ("nn.Module: (model) (ResNet)", Module("(model)", "ResNet")),
        ("nn.Module: Conv2d_0", Module("Conv2d_0", "Conv2d")),
        ("nn.Module: my_layer_12", Module("my_layer_12", "my_layer")),
        ("nn.Module: Model", Module("Model", "Model")),
        ("nn.Module: ", None),
        ("torch/nn/modules/conv.py(1): forward", None),
        ("aten::conv2d", None),
    ],
)
def test_a_range_names_its_module(name, module):
    assert module_of(name) == module


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("layers.0._checkpoint_wrapped_module.attention.wq", "layers.0.attention.wq"),
        ("layers.0._fsdp_wrapped_module._checkpoint_wrapped_module", "layers.0"),
        ("_orig_mod.layers.0._orig_mod.weight", "layers.0.weight"),
        ("_checkpoint_wrapped_module", ""),
        ("nn.Module: layers.0._checkpoint_wrapped_module (Block)", "nn.Module: layers.0 (Block)"),
        ("FSDP::pre_forward (_orig_mod.layers.0)", "FSDP::pre_forward (layers.0)"),
        ("layers.0._orig_model.x", "layers.0._orig_model.x"),
        ("layers.my_orig_mod.x", "layers.my_orig_mod.x"),
    ],
)
def test_a_name_is_the_modules_own(name, own):
    assert own_name(name) == own


@pytest.mark.parametrize(("name", "kind"), [("layer1.0", "Linear"), ("", "ResNet")])
def test_what_is_written_is_what_is_read(name, kind):
    assert module_of(range_name(name, kind)) == Module(name or "(model)", kind)


def test_a_trace_has_the_modules_own_names(tmp_path):
    wrapped = "nn.Module: layers.0._checkpoint_wrapped_module (Block)"
    rows = [ranged(wrapped, 0, 10), ranged("nn.Module: layers.0 (Block)", 20, 10), ranged("_orig_mod.mine", 40, 10)]
    events = traced(tmp_path, step(1, 0, 60), *rows, *kernel("a", 1, 2, 3)).events
    shown = [events.names[code] for code in events.name.tolist()]
    assert shown.count("nn.Module: layers.0 (Block)") == 2
    assert len(set(events.names)) == len(events.names)
    # A range of the user's is what they called it.
    assert "_orig_mod.mine" in shown


def test_a_manifest_has_the_modules_own_names(tmp_path):
    module = "layers.0._checkpoint_wrapped_module.wq"
    parameter = {"name": f"{module}.weight", "shape": [1], "dtype": "float32", "module": module}
    write(tmp_path / MANIFEST, json.dumps({"schema": Manifest().schema, "parameters": [parameter]}))
    manifest, _ = read_manifest(tmp_path)
    assert manifest is not None
    assert [(each.name, each.module) for each in manifest.parameters] == [("layers.0.wq.weight", "layers.0.wq")]
