"""Which forward operator made each of autograd's nodes."""

from analyzers.rank.host.autograd_nodes import autograd
from analyzers.rank.host.host_threads import Host
from tests.support.training import ENGINE, NODE, backward, forward, gradient, host, traced


def makers(folder, *events) -> list[tuple[str, int | None]]:
    """Each node by start, and when its forward operator began, in microseconds."""
    trace = traced(folder, *events)
    found = autograd(Host(trace.events))
    rows, base = trace.events, 1_700_000_000_000_000_000
    return [
        (
            rows.names[rows.name[row]].removeprefix(NODE).rpartition(":")[2],
            (int(rows.start_ns[maker]) - base) // 1000 if maker >= 0 else None,
        )
        for row, maker in zip(found.row.tolist(), found.maker.tolist(), strict=True)
    ]


def test_nodes_are_joined_by_number_and_gradients_to_the_node_before(tmp_path):
    events = [
        *forward(0, "linear", 7),
        *forward(10, "relu", 8),
        *forward(20, "linear", 9),
        *backward(30, "linear", 9, gradients=[(2,), (3,)]),
        *backward(50, "relu", 8),
        *backward(60, "linear", 7, gradients=[(4,)]),
    ]
    assert makers(tmp_path, *events) == [
        *[("LinearBackward0", 20), ("AccumulateGrad", 20), ("AccumulateGrad", 20), ("ReluBackward0", 10)],
        *[("LinearBackward0", 0), ("AccumulateGrad", 0)],
    ]


def test_a_number_of_two_operators_means_the_one_that_is_called_like_the_node(tmp_path):
    # An operator that is no node of its own has the number that comes next: aten::linear that of its aten::t.
    events = [*forward(0, "linear", 7), *forward(10, "t", 7, dur=4), *backward(30, "linear", 7), *backward(40, "t", 7)]
    assert makers(tmp_path, *events) == [("LinearBackward0", 0), ("TBackward0", 10)]
    events = [*forward(0, "linear", 7), *forward(10, "t", 7, dur=4), *backward(30, "view", 7)]
    assert makers(tmp_path, *events) == [("ViewBackward0", 10)]


def test_a_number_that_comes_again_means_the_last_operator_before(tmp_path):
    events = [*forward(0, "relu", 7), *backward(10, "relu", 7), *forward(20, "relu", 7), *backward(30, "relu", 7)]
    assert makers(tmp_path, *events) == [("ReluBackward0", 0), ("ReluBackward0", 20)]


def test_a_node_whose_operator_is_not_in_the_trace_has_no_maker(tmp_path):
    events = [*backward(10, "relu", 7, gradients=[(2,)]), *forward(40, "relu", 7)]
    assert makers(tmp_path, *events) == [("ReluBackward0", None), ("AccumulateGrad", None)]


def test_a_gradient_without_a_node_before_it_has_no_maker(tmp_path):
    assert makers(tmp_path, *forward(0, "relu", 7), *gradient(10, (2,))) == [("AccumulateGrad", None)]


def test_an_unsaid_number_is_the_next_below_of_the_nodes_name(tmp_path):
    events = [
        *forward(0, "linear", 6),
        *forward(10, "linear", 7),
        *forward(20, "relu", 8),
        *backward(30, "relu", 8),
        *backward(40, "linear", None, gradients=[(2,)]),
        *backward(60, "linear", 6),
    ]
    found = makers(tmp_path, *events)
    assert found == [("ReluBackward0", 20), ("LinearBackward0", 10), ("AccumulateGrad", 10), ("LinearBackward0", 0)]


def test_an_unsaid_number_is_that_of_the_nodes_own_function(tmp_path):
    """A tensor's hook takes the number from the node, not from its function: seen with torch 2.15."""
    events = [
        *forward(0, "linear", 6),
        *forward(10, "linear", 7),
        *forward(20, "relu", 8),
        *backward(30, "relu", 8),
        *backward(40, "linear", None, gradients=[(2,)]),
        host("LinearBackward0", 41, 2, tid=ENGINE, **{"Sequence number": 6}),
    ]
    assert makers(tmp_path, *events)[1:] == [("LinearBackward0", 0), ("AccumulateGrad", 0)]
