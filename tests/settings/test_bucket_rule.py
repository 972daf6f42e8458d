"""DDP's rule for buckets, against DDP's own code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.settings.bucket_rule import MB, assign, limits

CAPS = st.sampled_from([None, 0.25, 1.0, 5.0, 25.0])


def cut(*megabytes, cap):
    return assign(np.array([round(size * MB) for size in megabytes]), cap).tolist()


def test_a_bucket_closes_with_the_gradient_that_reaches_its_cap():
    assert cut(4, 9, 30, 2, 1, cap=10) == [0, 0, 1, 2, 2]


def test_the_first_bucket_is_small_by_default_and_as_large_as_others_when_told():
    assert cut(2, 20, 10, 1, cap=None) == [0, 1, 1, 2]
    assert cut(2, 20, 10, 1, cap=25) == [0, 0, 0, 1]


def test_dtypes_are_cut_apart_and_come_as_they_close():
    sizes = np.array([4, 1, 4, 4]) * MB
    assert assign(sizes, 6, ["float32", "bfloat16", "float32", "float32"]).tolist() == [0, 1, 0, 2]
    assert assign(sizes, 4, ["float32", "bfloat16", "float32", "float32"]).tolist() == [0, 3, 1, 2]


@given(st.lists(st.tuples(st.integers(1, 3_000_000), st.sampled_from(["float32", "float16"])), min_size=1), CAPS)
def test_the_rule_is_ddps_own(gradients, cap):
    torch = pytest.importorskip("torch")
    dist = pytest.importorskip("torch.distributed")
    tensors = [torch.empty(count, dtype=getattr(torch, dtype), device="meta") for count, dtype in gradients]
    indices = list(range(len(tensors)))
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, list(limits(cap)), [False] * len(tensors), indices)
    nbytes = np.array([tensor.nbytes for tensor in tensors])
    found = assign(nbytes, cap, [dtype for _, dtype in gradients])
    ours = [np.flatnonzero(found == number).tolist() for number in range(found.max() + 1)]
    # What never closes comes in no order that DDP promises.
    closed = len(ours) - 2
    assert ours[:closed] == buckets[:closed]
    assert sorted(ours) == sorted(buckets)
