"""Other options of FSDP2: what is asked of communicators, and laws that hold on recorded runs."""

import numpy as np
import pytest

from analyzers.notices import Code
from analyzers.settings.link_model import Affine, LinkModel
from analyzers.settings.sharded import FsdpSettings, Sharding, _in_turn
from analyzers.trace import Collective
from tests.support.causal import model_of
from tests.support.samples import SAMPLES, summary_of

FSDP = SAMPLES / "resnet18-fsdp4"
SLOW = LinkModel({4: Affine(4, 10_000, 0.5)}, "given")


def settings(links: LinkModel | None = None) -> FsdpSettings:
    return FsdpSettings.of(summary_of(FSDP), model_of(FSDP), links)


def steps_ns(of: FsdpSettings, *asked: Sharding) -> list[float]:
    return of.step_lengths(asked)[..., 0].mean(axis=0).tolist()


def test_nothing_changed_takes_what_it_took():
    found = settings().step_lengths([Sharding(4)])
    assert found[:, 0] == pytest.approx(model_of(FSDP).step_lengths, rel=1e-9)


def test_less_to_do_never_takes_longer():
    for of in (settings(), settings(SLOW)):
        own, kept, halved, both = steps_ns(
            of,
            Sharding(4),
            Sharding(4, reshard_after_forward=False),
            Sharding(4, param_itemsize=2, reduce_itemsize=2),
            Sharding(4, reshard_after_forward=False, param_itemsize=2, reduce_itemsize=2),
        )
        assert both <= min(kept, halved) + 1
        assert max(kept, halved) <= own + 1
    assert kept < own


def test_over_slow_links_prefetching_matters_and_more_gpus_cost():
    of = settings(SLOW)
    own, in_turn, apart, many = steps_ns(
        of,
        Sharding(4),
        Sharding(4, prefetch=False),
        Sharding(4, separate_reduce_scatter_group=True),
        Sharding(64),
    )
    assert in_turn > own
    assert apart <= own + 1
    assert many > own


def test_each_all_gather_of_the_backward_comes_in_its_turn():
    called = settings().called
    for rows in called.parts():
        order = _in_turn(called, rows)
        assert sorted(order.tolist()) == sorted(rows.tolist())
        moved = order[called.ahead[order] & called.backward[order]]
        assert len(moved)
        scatters = called.of(Collective.REDUCE_SCATTER)[order]
        # No two all-gathers of the backward stand side by side once its reductions have begun.
        begun = np.flatnonzero(scatters)[0]
        is_gather = ~scatters[begun:]
        assert not (is_gather[:-1] & is_gather[1:]).any()


def test_words_are_pytorchs_and_doubts_say_what_is_not_known():
    asked = Sharding(4, False, False, True, 2, 2)
    assert asked.words == (
        "no prefetching in the backward, reshard_after_forward=False, a process group for reduce-scatters, "
        "all-gathers and reduce-scatters of 2 bytes per element"
    )
    of = settings()
    assert {notice.code for notice in of.doubts(asked, None)} == {Code.SHARED_LINKS, Code.CASTS_NOT_COUNTED}
    assert [each.words for each in of.usual()] == [
        "reshard_after_forward=False",
        "a process group for reduce-scatters",
        "reduce-scatters of 2 bytes per element",
        "all-gathers and reduce-scatters of 2 bytes per element",
    ]
    halved, own = of.reduced_bytes(Sharding(4, reduce_itemsize=2)), of.reduced_bytes(Sharding(4))
    assert [2 * each for each in halved] == own
