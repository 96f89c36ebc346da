"""The laws of a federation: totals do not depend on who holds which row, state stays, broken answers are refused by name."""

from typing import NamedTuple

import numpy as np
import pytest
from federations import FEDERATIONS

import unpooled as up
from unpooled import tree
from unpooled.arrays import Array, Float
from unpooled.client import GATHER, STEP, SUM, TELL, Client, client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.federation import Layer
from unpooled.layers.compression import compression_of
from unpooled.layers.faults import Faults
from unpooled.layers.meter import Metered


class Centre(NamedTuple):
    mean: Float[Array, "d"]


class Moments(NamedTuple):
    n: Float[Array, "", ">=0"]
    x: Float[Array, "d"]
    xx: Float[Array, "d d"]


class Note(NamedTuple):
    total: Float[Array, ""]


@client("federation.moments", SUM, adds=True)
def moments(centre: Centre, client: Client) -> Moments:
    x = client.x - centre.mean
    wx = client.w[..., None] * x
    return Moments(client.w.sum(-1), wx.sum(-2), np.swapaxes(wx, -1, -2) @ x)


moments_of_each = client("federation.moments_of_each", GATHER)(moments.answer)


@client("federation.count_visits", SUM)
def count_visits(centre: Centre, client: Client) -> Note:
    seen = client.state.get("visits", np.zeros(client.w.shape[:-1])) + client.w.sum(-1)
    client.state["visits"] = seen
    return Note(seen)


@client("federation.remember", TELL)
def remember(centre: Centre, client: Client) -> None:
    client.state["mean"] = np.broadcast_to(centre.mean, (*client.w.shape[:-1], len(centre.mean)))


@client("federation.read_letter", SUM, batched=False)
def read_letter(centre: Centre, client: Client) -> Note:
    return Note(np.float64(sum(client.letters.get("test", b"")) * len(client.w)))


@client("federation.draw", GATHER, batched=False)
def draw(centre: Centre, client: Client) -> Note:
    return Note(client.rng.normal())


@client("federation.draw_each", GATHER)
def draw_each(centre: Centre, client: Client) -> Note:
    draws = np.array([rng.normal() for rng in client.rngs])
    return Note(draws if client.stacked else draws[0])


def make_clients(n=23, seed=0, sizes=(1, 60)):
    rng = np.random.default_rng(seed)
    return [Client(f"c{i:02}", rng.normal(size=(rng.integers(*sizes), 3))) for i in range(n)]


@pytest.fixture(params=FEDERATIONS, name="build")
def build_(request):
    return FEDERATIONS[request.param]


CENTRE = Centre(np.array([0.5, 0.0, -1.0]))


def assert_close(a, b, rtol=1e-12):
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-12)


def test_sum_is_the_pooled_answer(build):
    clients = make_clients()
    pooled = moments(CENTRE, Client("all", np.concatenate([c.x for c in clients])))
    assert_close(build(clients).sum(moments, CENTRE), pooled)


def test_permuted_split_and_merged_clients_give_the_same_total(build):
    clients = make_clients()
    total = build(clients).sum(moments, CENTRE)
    halves = [
        Client(f"{c.name}{part}", rows)
        for c in clients
        for part, rows in zip("ab", np.array_split(c.x, 2))
        if len(rows)
    ]
    merged = [Client("one", np.concatenate([c.x for c in clients[:9]])), *clients[9:]]
    for other in (clients[::-1], halves, merged):
        assert_close(build(other).sum(moments, CENTRE), total)


def test_the_same_bits_twice(build):
    first, second = (build(make_clients()).sum(moments, CENTRE) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(tree.leaves(first), tree.leaves(second), strict=True))


def test_gather_names_every_answer(build):
    clients = make_clients()
    answers = build(clients).gather(moments_of_each, CENTRE)
    assert sorted(answers) == [c.name for c in clients]
    for c in clients:
        assert_close(answers[c.name], moments(CENTRE, c))


def test_state_is_kept_by_client_and_sums_over_rounds(build):
    clients = make_clients()
    fed = build(clients)
    fed.sum(count_visits, CENTRE)
    total = fed.sum(count_visits, CENTRE)
    assert total.total == 2 * sum(len(c.w) for c in clients)
    assert all(c.state["visits"] == 2 * len(c.w) for c in clients)


def test_tell_changes_state_and_returns_nothing(build):
    clients = make_clients(5)
    assert build(clients).tell(remember, CENTRE) is None
    assert all(np.array_equal(c.state["mean"], CENTRE.mean) for c in clients)


def test_draws_depend_on_seed_round_and_name_alone(build):
    fed = build(make_clients())
    fed.journal.begin(7)
    first, second = fed.gather(draw, CENTRE), fed.gather(draw, CENTRE)
    assert first != second
    few = build(make_clients()[3:5])
    few.journal.begin(7)
    assert few.gather(draw, CENTRE) == {name: first[name] for name in ("c03", "c04")}


def test_stacked_clients_draw_as_they_do_alone(build):
    fed, alone = build(make_clients()), build(make_clients())
    fed.journal.begin(7)
    alone.journal.begin(7)
    assert fed.gather(draw_each, CENTRE) == alone.gather(draw, CENTRE)


def test_a_cohort_is_a_federation_and_shares_the_journal(build):
    clients = make_clients()
    fed = build(clients)
    part = fed.sample(0.5, np.random.default_rng(0))
    assert len(part.names) == 12
    chosen = [c for c in clients if c.name in part.names]
    assert part.sum(moments, CENTRE).n == sum(len(c.w) for c in chosen)
    assert fed.journal.round == 1


@pytest.mark.parametrize("size", [1, 300_000])
def test_every_client_reads_its_own_letter(build, size):
    clients = make_clients(4)
    letters = {c.name: bytes([i]) * size for i, c in enumerate(clients) if i != 2}
    ask = read_letter.telling("test", letters)
    expected = {c.name: sum(letters.get(c.name, b"")) * len(c.w) for c in clients}
    fed = build(clients)
    assert fed.sum(ask, CENTRE).total == sum(expected.values())
    assert fed.sum(read_letter, CENTRE).total == 0, "a letter belongs to one question"


def test_snapshot_brings_state_back(build):
    clients = make_clients(6)
    fed = build(clients)
    fed.sum(count_visits, CENTRE)
    saved = fed.snapshot()
    after = fed.sum(count_visits, CENTRE)
    fed.restore(saved)
    assert_close(fed.sum(count_visits, CENTRE), after)


@pytest.mark.parametrize("kind", ["nan", "shape", "dtype", "parts"])
def test_a_corrupt_answer_is_refused_named_and_counted(build, kind):
    clients = make_clients(6)
    fed = Faults(build(clients), corrupt={1: {"c02": kind}})
    total = fed.sum(moments, CENTRE)
    assert total.n == sum(len(c.w) for c in clients if c.name != "c02")
    (refusal,) = fed.journal.refusals
    assert refusal.client == "c02"
    assert refusal.round == 1
    assert fed.journal.exchanges[-1].answered == 5


def test_a_dropped_client_has_not_moved(build):
    clients = make_clients(6)
    fed = Faults(build(clients), drop={2: ["c04"]})
    fed.sum(count_visits, CENTRE)
    fed.sum(count_visits, CENTRE)
    visits = {c.name: c.state["visits"] / len(c.w) for c in clients}
    assert visits.pop("c04") == 1
    assert set(visits.values()) == {2}


def test_a_late_client_still_counts(build):
    fed = Faults(build(make_clients(3)), delay={1: {"c01": 0.05}})
    fed.sum(moments, CENTRE)
    assert fed.journal.exchanges[-1].answered == 3


def test_too_few_clients_says_what_to_do(build):
    fed = build(make_clients(3))
    everyone = Faults(fed, drop={1: fed.names})
    with pytest.raises(TooFewClients, match=r"0 of 3 clients answered, .*: check the clients' data \(.*as rehearsed"):
        everyone.sum(moments, CENTRE)


def test_a_dropped_client_is_told_in_words(build):
    fed = Faults(build(make_clients(3)), drop={1: ["c01"]})
    fed.sum(moments, CENTRE)
    assert [(r.client, r.reason) for r in fed.journal.refusals] == [("c01", "dropped in round 1, as rehearsed")]


def test_nan_in_one_clients_rows_refuses_that_client_alone(build):
    clients = make_clients(8)
    clients[3].x[0, 0] = np.nan
    fed = build(clients)
    assert fed.sum(moments, CENTRE).n == sum(len(c.w) for c in clients) - len(clients[3].w)
    assert fed.journal.refusals[0].client == "c03"
    assert "NaN" in fed.journal.refusals[0].reason


def test_bytes_are_those_of_the_answers(build):
    fed = build(make_clients(4))
    fed.sum(moments, CENTRE)
    (row,) = fed.journal.exchanges
    if compression_of(fed) is None:
        assert row.bytes_up == 4 * 8 * (1 + 3 + 9)
    else:
        assert row.steps == "compressed.compress"
    assert row.bytes_down == 4 * 8 * 3


def test_large_clients_are_cut_into_slices_and_refused_whole(build):
    big = make_clients(2, sizes=(40_000, 50_000))
    total = build(big).sum(moments, CENTRE)
    assert_close(total, moments(CENTRE, Client("all", np.concatenate([c.x for c in big]))), rtol=1e-10)
    big[1].x[20_000, 1] = np.nan
    fed = build(big)
    assert fed.sum(moments, CENTRE).n == len(big[0].w)
    assert [r.client for r in fed.journal.refusals] == ["c01"]


@pytest.mark.parametrize("layer", [up.Compressed, up.Metered, up.Faults])
def test_a_layer_around_data_says_what_to_put_there(layer):
    with pytest.raises(
        BadParameter, match=rf"{layer.__name__} goes around a federation.*{layer.__name__}\(federate\(data\)\)"
    ):
        layer({"a": np.ones((3, 2))})


def test_a_question_is_asked_as_it_was_registered(build):
    fed = build(make_clients(3))
    for ask, question in ((fed.gather, moments), (fed.tell, moments), (fed.sum, draw), (fed.sum, remember)):
        with pytest.raises(TypeError, match=f"{question.name} is registered as a {question.kind.upper()}"):
            ask(question, CENTRE)
    assert fed.journal.round == 0


@client("federation.double", STEP)
def double(up: Moments, client: Client) -> Moments:
    """Each client sends twice its answer."""
    return tree.map(lambda a: 2 * a, up)


class Doubled(Layer):
    """A layer that acts on the total and learns who is in it."""

    def wrap(self, ask):
        return ask.then(double, undo_total=self.halve)

    def halve(self, total, names):
        self.answered = list(names)
        return tree.map(lambda a: a / 2, total)


def test_a_layer_may_undo_its_half_on_the_total_and_learns_who_answered(build):
    clients = make_clients(5)
    fed = Doubled(Faults(build(clients), drop={1: ["c03"]}))
    if compression_of(fed) is not None:
        with pytest.raises(BadParameter, match="single answers"):
            fed.sum(moments, CENTRE)
        return
    total = fed.sum(moments, CENTRE)
    rest = np.concatenate([c.x for c in clients if c.name != "c03"])
    assert_close(total, moments(CENTRE, Client("all", rest)))
    assert sorted(fed.answered) == ["c00", "c01", "c02", "c04"]
    assert "federation.double" in fed.journal.exchanges[-1].steps
    with pytest.raises(BadParameter, match="a layer hides single answers"):
        fed.gather(moments_of_each, CENTRE)


def test_a_layer_that_reads_single_answers_and_one_that_hides_them_are_refused_together(build):
    fed = build(make_clients(3))
    if compression_of(fed) is not None:
        with pytest.raises(BadParameter, match="compressed already: put one Compressed around it"):
            up.Compressed(Doubled(fed))
        return
    for both in (up.Compressed(Doubled(fed)), Doubled(up.Compressed(fed))):
        with pytest.raises(BadParameter, match="single answers"):
            both.sum(moments, CENTRE)


def test_the_federation_of_nodes_elsewhere_shows_nobody(build):
    fed = build(make_clients(3))
    assert [c.name for c in fed.here()] in ([], ["c00", "c01", "c02"])


MODELS = {
    "FedEM": lambda: up.FedEM(
        {"name": "gaussian", "n_components": 2}, tol=0, max_iter=8, init_params="random", random_state=0
    ),
    "VRFedEM": lambda: up.VRFedEM(
        {"name": "gaussian", "n_components": 2}, tol=0, max_iter=8, init_params="random", random_state=0
    ),
    "fedem": lambda: up.GaussianMixture(2, solver="fedem", tol=0, max_iter=8, init_params="random", random_state=0),
    "vr-fedem": lambda: up.GaussianMixture(
        2, solver="vr-fedem", tol=0, max_iter=8, init_params="random", random_state=0
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("engine", ["merged", "flower", "in memory"])
def test_compressed_lowers_the_bytes_of_every_solver(engine, make):
    rng = np.random.default_rng(0)
    rows = {f"c{i}": rng.normal(size=(40, 6)) + 3 * rng.integers(2, size=(40, 1)) for i in range(3)}
    sent = {}
    for layer in (Metered, up.Compressed):
        fed = layer(FEDERATIONS[engine]([Client(name, x) for name, x in rows.items()]))
        make().fit(fed)
        sent[layer] = sum(e.bytes_up for e in fed.journal.exchanges)
    assert sent[up.Compressed] < 0.6 * sent[Metered]
