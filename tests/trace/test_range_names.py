import pytest

from analyzers.trace.range_names import Module, module_of, range_name


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


@pytest.mark.parametrize(("name", "kind"), [("layer1.0", "Linear"), ("", "ResNet")])
def test_what_is_written_is_what_is_read(name, kind):
    assert module_of(range_name(name, kind)) == Module(name or "(model)", kind)
