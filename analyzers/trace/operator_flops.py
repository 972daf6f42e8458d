"""FLOPs of matrix products, convolutions and attention, from their inputs' shapes.

    aten::mm                        [m, k] [k, n]                     2 m k n
    aten::convolution               x [n, ...], w [...], stride ...   2 n |w| (places of the output)
    aten::convolution_backward      the same for each gradient that `output_mask` asks for
    attention                       q [.., s, d] k [.., t, d] v [.., t, e]     2 s t (d + e) for each head
    its backward                    scores once more, then four products       2 s t (3 d + 2 e)

A multiplication and an addition are two. A mask counts as if it were not there, as torch.utils.flop_counter has it:
half of a causal attention is work that no kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

from analyzers.trace.collective_calls import Inputs, plausible_count

Shape: TypeAlias = Sequence[int]
_Formula: TypeAlias = Callable[[Inputs], int]
# Which two inputs a product multiplies.
_PRODUCTS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::_scaled_mm", "aten::_int_mm"), (0, 1)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation"), (1, 2)),
}
_GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm")
_CONVOLUTIONS = ("aten::convolution", "aten::_convolution")
_SDPA = "aten::_scaled_dot_product_"
_ATTENTIONS = (
    *("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu"),
    "fused_attention_overrideable",
)


def flops(name: str, inputs: Inputs) -> int | None:
    """Count the floating-point operations of one call of an operator; None where its inputs do not tell.

    What it calls must not be counted again. Formulas are those of torch.utils.flop_counter; but each group of a
    convolution multiplies its own channels alone.
    """
    try:
        counted = plausible_count(_FORMULAS[name](inputs))
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return counted if counted >= 0 else None


def matrix_dtype(name: str, inputs: Inputs) -> str:
    """Return the dtype of what a counted operator multiplies, by ATen's name; empty where none is said."""
    first = _PRODUCTS.get(name, (0, 0))[0]
    return Inputs(inputs.shapes[first:], inputs.dtypes[first:]).dtype


def _product(first: int, second: int, inputs: Inputs) -> int:
    left, right = _shape(inputs, first), _shape(inputs, second)
    batch, inner = left[:-2], left[-1]
    width = right[-1] if len(right) > 1 else 1  # a vector
    same_batch = batch == right[:-2] or len(right) == 1
    if not same_batch or right[-2 if len(right) > 1 else -1] != inner:
        raise ValueError(f"shapes {left} and {right} are no product")
    return 2 * prod(left) * width


def _grouped(inputs: Inputs) -> int:
    """A product for each group, of rows, columns or inner places that are given to groups without a rest."""
    left, right = _shape(inputs, 0), _shape(inputs, 1)
    groups = left[0] if len(left) == len(right) == 3 else 1
    return 2 * groups * left[-2] * left[-1] * right[-1]


def _convolution(inputs: Inputs) -> int:
    x, weight = _shape(inputs, 0), _shape(inputs, 1)
    if _truth(inputs, 6):  # transposed: each place of the input meets the whole filter
        return 2 * x[0] * prod(weight) * prod(x[2:])
    dims = len(weight) - 2
    stride, padding, dilation = (_per_dimension(inputs, index, dims) for index in (3, 4, 5))
    places = [
        (size + 2 * pad - spread * (filter_size - 1) - 1) // step + 1
        for size, pad, spread, filter_size, step in zip(x[2:], padding, dilation, weight[2:], stride, strict=True)
    ]
    return 2 * x[0] * prod(weight) * prod(max(count, 0) for count in places)


def _convolution_backward(inputs: Inputs) -> int:
    gradient, x, weight = (_shape(inputs, index) for index in range(3))
    places = x[2:] if _truth(inputs, 7) else gradient[2:]
    asked = _words(inputs, 10)
    if len(asked) != 3 or set(asked) - {"True", "False"}:
        raise ValueError(f"{asked} is no output_mask")
    return asked[:2].count("True") * 2 * x[0] * prod(weight) * prod(places)


def _attention(first: int, heads_last: bool, inputs: Inputs) -> int:
    """Count the scores and what they weigh; keys' heads that queries share count for each query's."""
    query, key, value = (_shape(inputs, index) for index in range(first, first + 3))
    heads, length = (query[-2], query[-3]) if heads_last else (query[-3], query[-2])
    keys = key[-3] if heads_last else key[-2]
    inner, outer = query[-1], value[-1]
    if len(query) != 4 or len(key) != 4 or inner != key[-1]:
        raise ValueError(f"shapes {query} and {key} are no attention")
    pairs = query[0] * heads * length * keys
    return 2 * pairs * (3 * inner + 2 * outer if first else inner + outer)


_FORMULAS: dict[str, _Formula] = {
    **{name: partial(_product, *places) for name, places in _PRODUCTS.items()},
    **dict.fromkeys(_GROUPED, _grouped),
    "aten::linear": lambda inputs: 2 * prod(_shape(inputs, 0)) * prod(_shape(inputs, 1)[:-1]),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "aten::convolution_backward": _convolution_backward,
    **{f"{_SDPA}{name}": partial(_attention, 0, False) for name in _ATTENTIONS},
    # The gradient of the output comes first.
    **{f"{_SDPA}{name}_backward": partial(_attention, 1, False) for name in _ATTENTIONS},
    "flash_attn::_flash_attn_forward": partial(_attention, 0, True),
    "flash_attn::_flash_attn_backward": partial(_attention, 1, True),
}
# The operators that have a formula.
COUNTED = frozenset(_FORMULAS)


def _shape(inputs: Inputs, index: int) -> Shape:
    """The shape of one tensor. Raises ValueError for a list of tensors, and where none is said."""
    shape = inputs.shapes[index]
    if not shape or any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"{shape} is no shape")
    return tuple(shape)


def _truth(inputs: Inputs, index: int) -> bool:
    value = inputs.concrete[index]
    if value not in ("True", "False"):
        raise ValueError(f"{value} is no truth value")
    return value == "True"


def _words(inputs: Inputs, index: int) -> list[str]:
    return re.findall(r"[\w.]+", inputs.concrete[index])


def _per_dimension(inputs: Inputs, index: int, dims: int) -> list[int]:
    """One whole number for each dimension; a single one is for all."""
    values = [int(word) for word in _words(inputs, index)]
    return values * dims if len(values) == 1 else values
