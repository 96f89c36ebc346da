"""Clients in one process: a question that works one by one only raises a warning, and padding changes no answer."""

import threading
from typing import NamedTuple

import numpy as np
import pytest

import unpooled as up
from unpooled.arrays import Array, Float
from unpooled.client import GATHER, SUM, Client, client
from unpooled.data.federate import federate
from unpooled.errors import BadParameter


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


def test_a_question_that_fails_for_stacked_clients_is_answered_with_a_warning():
    with pytest.warns(RuntimeWarning, match=r"fails_together fails for stacked or merged clients .*axes swapped"):
        assert rows(3, 4, 5).sum(fails_together, None).n == 12


def test_states_of_different_structure_are_not_an_error():
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
def test_a_missing_module_is_raised_and_not_counted_as_a_refusal(threads):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        rows(3, 4, threads=threads).sum(needy, None)


def test_any_number_of_jobs_gives_the_same_bits():
    x = np.random.default_rng(0).normal(size=(60_000, 3))  # several blocks of rows, so that threads have work
    found = [up.GaussianMixture(2, random_state=0, max_iter=3, tol=0).fit(federate(x, n_jobs=n)) for n in (1, 3, -1)]
    assert len({model.covariances_.tobytes() for model in found}) == 1


@pytest.mark.parametrize("brief", [False, True])
def test_brief_questions_are_asked_in_one_thread(brief):
    seen = set()

    def where(down: None, client: Client) -> Total:
        seen.add(threading.get_ident())
        return Total(client.w.sum())

    ask = client(f"local.brief_{brief}", SUM, adds=True, brief=brief)(where)
    x = np.arange(1_200_000.0).reshape(-1, 3)
    assert federate([x], n_jobs=2).sum(ask, None).n == len(x)
    assert (seen == {threading.get_ident()}) == brief


def test_n_jobs_counts_as_in_scikit_learn():
    cores = rows(3).threads
    assert rows(3, n_jobs=-1).threads == cores
    assert rows(3, n_jobs=-2).threads == max(1, cores - 1)
    assert rows(3, n_jobs=5).threads == rows(3, threads=5).threads == 5


@pytest.mark.parametrize("wrong", [0, True, 1.5, "all"])
def test_an_impossible_n_jobs_is_refused(wrong):
    with pytest.raises(BadParameter, match=r"n_jobs=.* must be a whole number other than 0"):
        rows(3, n_jobs=wrong)


def test_cross_validation_takes_n_jobs_but_not_beside_a_federation():
    x = np.random.default_rng(0).normal(size=(40, 2))
    one, two = (up.cross_validate(up.LinearRegression(), x[:, :1], x[:, 1], cv=2, n_jobs=n) for n in (1, 2))
    assert one.mean == two.mean
    with pytest.raises(BadParameter, match="n_jobs= was given together with a federation"):
        up.cross_validate(up.LinearRegression(), rows(3, 4), n_jobs=2)
