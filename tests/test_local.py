"""What is special to clients in one process: a question that only works one by one is told of, not hidden."""

from typing import NamedTuple

import numpy as np
import pytest

from unpooled.arrays import Array, Float
from unpooled.client import GATHER, SUM, Client, client
from unpooled.data.federate import federate


class Total(NamedTuple):
    n: Float[Array, ""]


@client("local.fails_together", SUM)
def fails_together(down: None, client: Client) -> Total:
    if client.stacked:
        raise ValueError("axes swapped")
    return Total(client.w.sum())


@client("local.by_turns", SUM)
def by_turns(down: None, client: Client) -> Total:
    """States of another make at every other client."""
    odd = np.asarray(client.w.sum(-1) % 2).reshape(-1)[0] == 1
    client.state["kept"] = np.zeros((*client.w.shape[:-1], 3 if odd else 2))
    return Total(client.w.sum(-1))


def rows(*sizes, **engine):
    rng = np.random.default_rng(0)
    return federate([rng.normal(size=(n, 2)) for n in sizes], mode="stacked", **engine)


@client("local.stacked_totals", GATHER)
def stacked_totals(down: None, client: Client) -> Total:
    return Total((client.x.sum(-1) * client.w).sum(-1))


def test_a_question_that_fails_for_clients_together_is_answered_and_told_of():
    with pytest.warns(RuntimeWarning, match=r"fails_together fails for clients together .*axes swapped"):
        assert rows(3, 4, 5).sum(fails_together, None).n == 12


def test_states_of_another_make_are_no_fault():
    fed = rows(3, 4)
    for c, size in zip(fed.clients, (3, 2)):
        c.state = {"kept": np.zeros(size)}
    assert fed.sum(by_turns, None).n == 7


@pytest.mark.parametrize(("padding", "stacks"), [(0.125, 4), (1.0, 2)])
def test_more_padding_makes_fewer_stacks_and_the_same_answers(padding, stacks):
    sizes = (70, 90, 110, 130, 65)  # widths 72, 96, 112 and 144 by eighths, 128 and 256 by doubling
    fed = rows(*sizes, stack_padding=padding)
    alone = [c.x.sum() for c in fed.clients]
    found = fed.gather(stacked_totals, None)
    np.testing.assert_allclose([found[name].n for name in fed.names], alone)
    assert len(fed._jobs["stacked"]) == stacks


@client("local.needy", SUM, batched=False)
def needy(down: None, client: Client) -> Total:
    import a_module_that_nobody_has  # noqa: F401

    return Total(client.w.sum())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_module_that_is_missing_here_is_no_fault_of_the_clients(threads):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        rows(3, 4, threads=threads).sum(needy, None)
