"""Any question through `Compressed`: fewer bytes, the same answer in the end, and both ends in step."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.arrays import Array, Float, Int
from unpooled.client import GATHER, SUM, TELL, Client, client
from unpooled.layers.compression import message as parts
from unpooled.layers.compression.layer import Compressed
from unpooled.layers.faults import Faults


class Moments(NamedTuple):
    rows: Int[Array, ""]
    x: Float[Array, "d"]
    xx: Float[Array, "d d"]


@client("compress.moments", SUM, adds=True)
def moments(about: Float[Array, "d"], client: Client) -> Moments:
    z = client.x - about
    return Moments(np.asarray(client.w.sum(-1), np.int64), z.sum(-2), np.einsum("...ni,...nj->...ij", z, z))


single_moments = client("compress.single_moments", GATHER)(moments.answer)


@client("compress.act", TELL)
def act(nothing: None, client: Client) -> None:
    client.state["told"] = np.ones(client.x.shape[:-2])


@client("compress.infinite_at_c1", SUM, batched=False)
def infinite_at_c1(nothing: None, client: Client) -> Float[Array, "m"]:
    return np.full(30, np.inf if client.name == "c1" else 1.0)


DATA = {f"c{i}": np.random.default_rng(i).normal(size=(40, 20)) + i for i in range(4)}
ZERO = np.zeros(20)


def compressed(rounds=1, wrap=lambda fed: fed, **options):
    fed = Compressed(wrap(up.federate(DATA)), **options)
    fed.journal.begin(3)
    answers = [fed.sum(moments, ZERO) for _ in range(rounds)]
    return fed, answers


TRUTH = up.federate(DATA).sum(moments, ZERO)
SETTLING = [
    {"levels": 1},
    {"levels": 7},
    {"quantiser": "cast"},
    {"quantiser": "sparsify"},
    {"quantiser": {"name": "topk", "share": 0.3}},
]


@pytest.mark.parametrize("options", SETTLING, ids=str)
def test_a_question_that_is_asked_again_settles_at_the_exact_answer(options):
    fed, answers = compressed(60, **options)
    assert_allclose(answers[-1].xx, TRUTH.xx, rtol=1e-6)
    assert_allclose(answers[-1].x, TRUTH.x, rtol=1e-6)
    assert not fed.journal.refusals


def test_without_a_memory_it_does_not_settle_but_is_unbiased():
    _, answers = compressed(100, levels=1, memory=False)
    errors = np.array([a.xx - TRUTH.xx for a in answers])
    assert np.abs(errors[-1]).max() > 0.05 * np.abs(TRUTH.xx).max()
    assert (np.abs(errors.mean(axis=0)) < 5 * errors.std(axis=0) / np.sqrt(100) + 1e-9).all()


def test_integers_are_exact_and_bytes_are_counted_as_sent():
    fed, answers = compressed(2, levels=1)
    assert answers[0].rows == answers[1].rows == 160
    plain = 4 * (8 + 8 * 20 + 8 * 400)
    first, second = fed.journal.exchanges
    assert first.bytes_up < plain / 6
    assert second.bytes_up < plain / 20


def test_the_same_seed_sends_the_same_bits():
    (_, a), (_, b) = compressed(3, levels=3), compressed(3, levels=3)
    assert (a[-1].xx == b[-1].xx).all()


def test_a_restored_run_goes_on_to_the_same_bits():
    _, answers = compressed(4, levels=1)
    other, _ = compressed(2, levels=1)
    again = Compressed(up.federate(DATA), levels=1)
    again.restore(other.snapshot())
    again.journal.begin(3, round=2)
    assert (again.sum(moments, ZERO).xx == answers[2].xx).all()
    assert (again.sum(moments, ZERO).xx == answers[3].xx).all()


def test_a_client_that_was_away_is_still_in_step():
    fed, answers = compressed(40, lambda fed: Faults(fed, drop={3: ["c1"], 4: ["c1", "c2"]}), levels=7)
    assert_allclose(answers[-1].xx, TRUTH.xx, rtol=1e-6)
    assert {r.client for r in fed.journal.refusals} == {"c1", "c2"}


def test_a_server_that_lost_its_memory_asks_afresh():
    fed, _ = compressed(3, levels=7)
    fed._memories["c0"].clear()
    fed.sum(moments, ZERO)
    assert [r.client for r in fed.journal.refusals] == ["c0"]
    assert "asked afresh" in fed.journal.refusals[0].reason
    for _ in range(25):
        answer = fed.sum(moments, ZERO)
    assert len(fed.journal.refusals) == 1
    assert_allclose(answer.xx, TRUTH.xx, rtol=1e-6)


def test_a_cohort_shares_the_memory():
    fed, _ = compressed(40, levels=7)
    part = fed.only(["c1", "c3"]).sum(moments, ZERO)
    assert_allclose(part.xx, up.federate(DATA).only(["c1", "c3"]).sum(moments, ZERO).xx, rtol=1e-6)


def test_what_returns_nothing_passes():
    fed = Compressed(up.federate(DATA), levels=1)
    fed.tell(act, None)
    assert all(c.state["told"] == 1 for c in fed.here())


def test_an_answer_that_is_not_finite_is_refused_by_name():
    fed = Compressed(up.federate(DATA), levels=1)
    assert_allclose(fed.sum(infinite_at_c1, None), 3.0, rtol=1e-2)
    assert [r.client for r in fed.journal.refusals] == ["c1"]
    assert "not finite" in fed.journal.refusals[0].reason


def test_an_exact_mixture_fits_through_it():
    x = np.concatenate([DATA["c0"][:, :2], DATA["c3"][:, :2] + 4])
    start = {"means_init": [[0.0, 0.0], [7.0, 7.0]], "weights_init": [0.5, 0.5], "precisions_init": [np.eye(2)] * 2}
    data = {"a": x[::2], "b": x[1::2]}
    plain = up.GaussianMixture(2, tol=1e-6, **start).fit(data)
    sent = up.GaussianMixture(2, tol=1e-6, **start).fit(Compressed(up.federate(data), levels=127))
    assert_allclose(sent.means_, plain.means_, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"levels": 0}, "levels=0"),
        ({"levels": 1, "quantiser": "cast"}, "give one of them"),
        ({"quantiser": "topk", "memory": False}, "error feedback"),
        ({"levels": 1, "alpha": 1.5}, "alpha=1.5"),
        ({"quantiser": {"name": "sparsify", "keep": 2}}, "keep=2"),
    ],
)
def test_what_cannot_work_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Compressed(up.federate(DATA), **options)


@client("compress.halving", SUM)
def halving(about: Float[Array, "d"], client: Client) -> Float[Array, "d", ">=0"]:
    """Counts that fall to nothing, as those of a component that loses its rows."""
    return np.maximum(np.arange(20.0) - about, 0.0) + 0 * client.w.sum(-1)[..., None]


def test_counts_never_arrive_below_nothing():
    fed = Compressed(up.federate(DATA), levels=1)
    fed.journal.begin(3)
    for step in range(12):
        assert (fed.sum(halving, np.full(20, 3.0 * step)) >= 0).all()
    assert not fed.journal.refusals


# ---- a grid, and answers of several entries ----


def test_a_grid_stays_within_a_step_and_then_costs_a_few_bytes():
    fed, answers = compressed(6, quantiser="grid")
    off = np.abs(answers[-1].xx - TRUTH.xx)
    assert (off <= 4 * np.abs(up.federate(DATA).gather(single_moments, ZERO)["c3"].xx).max(axis=0) / 5 * 1.2).all()
    assert (answers[-1].xx == answers[1].xx).all()  # nothing moves
    assert fed.journal.exchanges[-1].bytes_up <= 4 * 16
    assert not fed.journal.refusals


def test_rounding_on_a_grid_is_right_in_the_mean():
    found = []
    for seed in range(200):
        fed = Compressed(up.federate(DATA), quantiser={"name": "grid", "levels": 2})
        fed.journal.begin(seed)
        found.append(fed.sum(moments, ZERO).xx - TRUTH.xx)
    errors = np.array(found)
    assert (np.abs(errors.mean(axis=0)) < 5 * errors.std(axis=0) / np.sqrt(200) + 1e-9).all()
    assert errors.std(axis=0).max() > 0


def test_a_gather_has_a_finer_grid_than_a_sum():
    exact = up.federate(DATA).gather(single_moments, ZERO)
    off = {}
    for kind in ("sum", "gather"):
        fed = Compressed(up.federate(DATA).only(["c1"]), quantiser={"name": "grid", "levels": 1})
        answer = fed.sum(moments, ZERO) if kind == "sum" else fed.gather(single_moments, ZERO)["c1"]
        off[kind] = np.abs(answer.xx - exact["c1"].xx).max()
    assert off["gather"] < off["sum"] / 20


def test_a_restored_run_on_a_grid_goes_on_to_the_same_bits():
    _, answers = compressed(3, quantiser="grid")
    other, _ = compressed(2, quantiser="grid")
    again = Compressed(up.federate(DATA), quantiser="grid")
    again.restore(other.snapshot())
    again.journal.begin(3, round=2)
    assert (again.sum(moments, ZERO).xx == answers[2].xx).all()
    assert not again.journal.refusals


@client("compress.several", SUM)
def several(nothing: None, client: Client, *, asked: list) -> dict[str, Float[Array, "d"]]:
    return {name: client.x.sum(-2) * len(name) for name in asked}


@pytest.mark.parametrize("quantiser", ["grid", "dither"])
def test_an_entry_is_remembered_while_it_rests(quantiser):
    fed = Compressed(up.federate(DATA), quantiser=quantiser)
    fed.journal.begin(3)
    truth = up.federate(DATA).sum(several.using(asked=["a", "bb"]), None)
    for asked in (["a", "bb"], ["a"], ["a"], ["a", "bb"], ["a", "ccc"]):
        found = fed.sum(several.using(asked=asked), None)
        assert sorted(found) == asked
        assert_allclose(found["a"], truth["a"], rtol=0.1, atol=10)
    sent = [e.bytes_up for e in fed.journal.exchanges]
    assert sent[3] < sent[4] < sent[0]  # both are changes; then one is new
    assert not fed.journal.refusals


def test_an_entry_that_is_long_gone_is_forgotten():
    fed = Compressed(up.federate(DATA), quantiser="grid")
    for asked in (["a", "bb"], *[["a"]] * (parts.PATIENCE + 1)):
        fed.sum(several.using(asked=asked), None)
    assert [list(kept[next(iter(kept))]) for kept in fed._memories.values()] == [["a"]] * 4
    assert not fed.journal.refusals


def test_an_empty_dict_and_a_dict_with_one_entry_come_back_as_dicts():
    fed = Compressed(up.federate(DATA), quantiser="grid")
    assert fed.sum(several.using(asked=[]), None) == {}
    assert list(fed.sum(several.using(asked=["a"]), None)) == ["a"]


def test_small_numbers_that_stay_are_not_sent_again():
    held, how = None, parts.How(parts.FINE, 1.0, np.random.default_rng(0), lambda name, shape: np.zeros(shape))
    sizes = []
    for value in (3.25, 3.25, 4.0):
        sent = parts.write(Moments(np.int64(2), np.full(3, value), np.zeros((2, 2))), held, how)
        meant, held = parts.read(sent, held, how)
        assert (meant.x == value).all()
        assert meant.rows == 2
        sizes.append(len(sent))
    assert sizes[2] - sizes[1] == 3 * 8
