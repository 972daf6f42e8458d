"""FLOPs from shapes against torch.utils.flop_counter, over profiles that torch.profiler wrote."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from analyzers.trace.collective_calls import Inputs
from analyzers.trace.operator_flops import COUNTED, flops, matrix_dtype
from analyzers.trace.reader import read_trace
from tests.support.kineto_files import small_trace, write

CONVOLUTIONS = {
    1: (functional.conv1d, functional.conv_transpose1d),
    2: (functional.conv2d, functional.conv_transpose2d),
    3: (functional.conv3d, functional.conv_transpose3d),
}


def counts(path: Path) -> dict[str, list[int | None]]:
    """What each call of a counted operator in a trace comes to, by name."""
    events = read_trace(path).events
    calls: dict[str, list[int | None]] = {}
    for row in np.flatnonzero(events.inputs >= 0).tolist():
        name = events.names[events.name[row]]
        if name in COUNTED:
            calls.setdefault(name, []).append(flops(name, events.shapes[events.inputs[row]]))
    return calls


def profiled(work: Callable[[], object], folder: Path) -> dict[str, list[int | None]]:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        work()
    recorded.export_chrome_trace(str(folder / "rank0.json"))
    return counts(folder / "rank0.json")


def counted_by_torch(work: Callable[[], object]) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter:
        work()
    return {str(name).replace(".", "::"): total for name, total in counter.get_flop_counts()["Global"].items()}


def check(work: Callable[[], object], folder: Path, *names: str) -> None:
    ours, theirs = profiled(work, folder), counted_by_torch(work)
    for name in names:
        assert sum(ours[name]) == theirs[name] > 0, name


def test_products_as_torch_counts_them(tmp_path):
    rng = random.Random(1)

    def size() -> int:
        return rng.randint(1, 9)

    shapes = [(size(), size(), size(), size()) for _ in range(8)]

    def work() -> None:
        for batch, m, k, n in shapes:
            left, right = torch.ones(m, k), torch.ones(k, n)
            lefts, rights = torch.ones(batch, m, k), torch.ones(batch, k, n)
            torch.mm(left, right)
            torch.addmm(torch.ones(n), left, right)
            torch.bmm(lefts, rights)
            torch.baddbmm(torch.ones(batch, m, n), lefts, rights)

    check(work, tmp_path, "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_and_their_backwards_as_torch_counts_them(tmp_path, dims, transposed):
    rng = random.Random(dims)
    kinds = CONVOLUTIONS[dims]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(dims)]

    drawn = [
        ((rng.randint(1, 3), rng.randint(1, 4), *each(7, 9)), rng.randint(1, 4), (each(1, 3), each(1, 3), each(0, 2)))
        for _ in range(4)
    ]

    def work() -> None:
        for x_shape, channels, (sizes, stride, padding) in drawn:
            x = torch.ones(x_shape, requires_grad=bool(channels % 2))
            shape = (x_shape[1], channels, *sizes) if transposed else (channels, x_shape[1], *sizes)
            weight = torch.ones(shape, requires_grad=True)
            kinds[transposed](x, weight, None, stride, padding, dilation=channels % 2 + 1).sum().backward()

    check(work, tmp_path, "aten::convolution", "aten::convolution_backward")


def test_each_group_of_a_convolution_has_its_own_channels(tmp_path):
    def work() -> None:
        weight = torch.ones(8, 2, 3, 3, requires_grad=True)
        x = torch.ones(2, 4, 7, 7, requires_grad=True)
        functional.conv2d(x, weight, groups=2).sum().backward()

    ours = profiled(work, tmp_path)
    # 5 x 5 places in 2 images; 8 outputs of 2 channels each meet 3 x 3 of the input.
    assert ours["aten::convolution"] == [2 * 2 * 25 * 8 * 2 * 9]
    assert ours["aten::convolution_backward"] == [2 * ours["aten::convolution"][0]]


def test_attention_as_torch_counts_it(tmp_path):
    def work() -> None:
        for batch, heads, length, keys, inner in ((1, 2, 8, 8, 16), (2, 3, 5, 12, 8)):
            query = torch.ones(batch, heads, length, inner, requires_grad=True)
            key, value = (torch.ones(batch, heads, keys, inner, requires_grad=True) for _ in range(2))
            functional.scaled_dot_product_attention(query, key, value).sum().backward()

    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    ours = profiled(work, tmp_path)
    sizes = [(1, 2, 8, 8, 16), (2, 3, 5, 12, 8)]
    pairs = [batch * heads * length * keys for batch, heads, length, keys, _ in sizes]
    assert ours[name] == [4 * pair * inner for pair, (*_, inner) in zip(pairs, sizes, strict=True)]
    assert ours[f"{name}_backward"] == [10 * pair * inner for pair, (*_, inner) in zip(pairs, sizes, strict=True)]


@pytest.mark.parametrize("name", ["flash_attention", "efficient_attention", "cudnn_attention"])
def test_attention_on_devices_has_torchs_formula(name):
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    query, key, value = [2, 6, 5, 8], [2, 3, 7, 8], [2, 3, 7, 4]
    forward, backward = f"aten::_scaled_dot_product_{name}", f"aten::_scaled_dot_product_{name}_backward"
    assert flops(forward, Inputs((query, key, value), ())) == sdpa_flop_count(query, key, value)
    key[1] = value[1] = 6
    gradient = [2, 6, 5, 4]
    assert flops(backward, Inputs((gradient, query, key, value), ())) == sdpa_backward_flop_count(
        gradient, query, key, value
    )
    # The other library has heads behind the places.
    last = [[batch, length, heads, size] for batch, heads, length, size in (query, key, value)]
    assert flops("flash_attn::_flash_attn_forward", Inputs(tuple(last), ())) == sdpa_flop_count(query, key, value)


@pytest.mark.parametrize(
    ("name", "shapes", "counted"),
    [
        ("aten::linear", ([2, 3, 4], [5, 4], []), 2 * 6 * 4 * 5),
        ("aten::mv", ([3, 4], [4]), 2 * 3 * 4),
        ("aten::_scaled_mm", ([3, 4], [4, 5], [], []), 2 * 3 * 4 * 5),
        ("aten::_grouped_mm", ([6, 4], [3, 4, 5], [3]), 2 * 6 * 4 * 5),
        ("aten::_grouped_mm", ([3, 6, 4], [3, 4, 5]), 3 * 2 * 6 * 4 * 5),
        ("aten::_grouped_mm", ([6, 9], [9, 5], [3]), 2 * 6 * 9 * 5),
        ("aten::mm", ([3, 0], [0, 5]), 0),
        ("aten::mm", ([3, 4], [5, 6]), None),  # no product
        ("aten::mm", ([3, 4],), None),
        ("aten::mm", ([], []), None),  # unsaid
        ("aten::mm", ([[3, 4]], [4, 5]), None),  # a list
        ("aten::mm", ([1 << 40, 1 << 40], [1 << 40, 1]), None),  # larger than any can be
        ("aten::convolution", ([1, 3, 8, 8], [4, 3, 3, 3], []), None),  # stride and padding unsaid (torch 1.8)
        ("aten::relu", ([3, 4],), None),
    ],
)
def test_what_shapes_tell(name, shapes, counted):
    assert flops(name, Inputs(shapes, ())) == counted


def test_the_dtype_is_that_of_what_is_multiplied():
    types = ("float", "c10::BFloat16", "c10::BFloat16")
    assert matrix_dtype("aten::addmm", Inputs(([1], [2, 3], [3, 1]), types)) == "BFloat16"
    assert matrix_dtype("aten::_scaled_mm", Inputs(([2, 3], [3, 1]), ("c10::Float8_e4m3fn",) * 2)) == "Float8_e4m3fn"


def test_odd_inputs_cost_no_event(tmp_path):
    mm, conv = "aten::mm", "aten::convolution"
    rows = [
        (mm, {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"], "Concrete Inputs": 5}),
        (mm, {"Input Dims": "no list"}),
        (conv, {"Input Dims": [[1, 1, 4, 4], [1, 1, 2, 2]], "Concrete Inputs": [None]}),
    ]
    operator = {"ph": "X", "cat": "cpu_op", "pid": 9, "tid": 9, "dur": 1}
    events = [operator | {"name": name, "ts": ts, "args": args} for ts, (name, args) in enumerate(rows)]
    path = write(tmp_path / "rank0.json", small_trace() | {"traceEvents": events})
    assert counts(path) == {mm: [48, None], conv: [None]}
