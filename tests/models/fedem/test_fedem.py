"""FedEM: plain EM to the last digits when nothing is random; with noise, memory and absences it still gets there."""

import json
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

import unpooled as up
from unpooled import tree
from unpooled.choices import describe
from unpooled.client import STEP, Client, client
from unpooled.federation import Journal, Layer
from unpooled.layers.compression import blocks
from unpooled.layers.compression.codec import Scheme
from unpooled.layers.compression.quantisers import Cast, Dither, Identity, Sparsify, TopK
from unpooled.layers.faults import Faults
from unpooled.maths import mixture
from unpooled.maths.gaussian import pack_covs
from unpooled.maths.mixture import Params
from unpooled.models.fedem import compression, families
from unpooled.models.fedem import steps as fedem
from unpooled.models.fedem.client import Down, contribute
from unpooled.tree import Tree

RNG = np.random.default_rng(0)
X = np.concatenate(
    [
        RNG.normal(size=(120, 3)) @ np.diag([1.0, 2.0, 0.5]),
        RNG.normal(size=(180, 3)) + np.array([4.0, 3.0, 0.0]),
        0.5 * RNG.normal(size=(150, 3)) + [-3.0, 2.0, 7.0],
    ]
) * [1.0, 10.0, 0.1] + [100.0, 0.0, 3.0]
SHARES = np.repeat(np.arange(6), [20, 40, 60, 80, 100, 150])  # unequal clients
BY_PLACE = SHARES  # rows are in the order of their components: clients are unlike
BY_CHANCE = RNG.permutation(SHARES)
START = Params(
    np.full(3, 1 / 3),
    np.array([[100.0, 0.0, 3.0], [103.0, 25.0, 3.1], [98.0, 18.0, 3.5]]),
    pack_covs(np.tile(np.diag([2.0, 200.0, 0.05]), (3, 1, 1)), "full"),
)
FAMILY = families.GaussianMixture(3, "full", reg=1e-6)


def fit(by=BY_PLACE, family=FAMILY, **options):
    options = {"params_init": START, "tol": 0, "max_iter": 20, "random_state": 0} | options
    return up.FedEM(family, **options).fit(X, by=by)


def pooled(rounds):
    params = START
    for _ in range(rounds):
        params = mixture.m_step(params, mixture.e_step(params, X, np.ones(len(X)), "full"), "full", 1e-6)
    return params


def relative(a, b):
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in zip(a, b))


@pytest.mark.parametrize("by", [BY_PLACE, BY_CHANCE, np.zeros(len(X), int)], ids=["unlike", "alike", "one"])
def test_with_nothing_random_it_is_pooled_em(by):
    assert relative(fit(by).params_, pooled(20)) < 1e-12


@pytest.mark.parametrize("memory", ["statistics", "field", "none"])
def test_the_memory_plays_no_role_without_compression(memory):
    assert relative(fit(memory=memory).params_, pooled(20)) < 1e-12


def test_it_agrees_with_the_exact_solver():
    exact = up.GaussianMixture(
        3,
        tol=0,
        max_iter=20,
        weights_init=START.weights,
        means_init=START.means,
        precisions_init=[np.diag(1 / np.array([2.0, 200.0, 0.05]))] * 3,
    ).fit(X, by=BY_PLACE)
    assert relative(fit().params_, exact.params()) < 1e-12


@pytest.mark.parametrize("shape", ["tied", "diag", "spherical"])
def test_every_shape_is_pooled_em_in_any_split(shape):
    family = families.GaussianMixture(3, shape)
    few, one = (
        up.FedEM(family, tol=0, max_iter=8, params_init=_start(shape)).fit(X, by=by) for by in (BY_PLACE, BY_CHANCE)
    )
    assert relative(few.params_, one.params_) < 1e-12


def _start(shape):
    covs = {
        "tied": np.diag([2.0, 200.0, 0.05]),
        "diag": np.tile([2.0, 200.0, 0.05], (3, 1)),
        "spherical": np.full(3, 50.0),
    }
    return START._replace(covs=pack_covs(covs[shape], shape))


LIKELY = float(mixture.log_density(pooled(400), X, "full").mean())

NOISY = {
    "one level": {"levels": 1},
    "seven levels, half of the clients": {"levels": 7, "fraction": 0.5},
    "fixed cohort": {"levels": 7, "fraction": 0.5, "cohort": "fixed"},
    "sparsified": {"omega": 1.0, "step_size": 0.5},
    "the paper's memory": {"levels": 7, "memory": "field"},
}


@pytest.mark.parametrize("options", NOISY.values(), ids=NOISY)
def test_with_memory_it_arrives_where_exact_em_does(options):
    assert fit(max_iter=80, **options).score(X) > LIKELY - 1e-4


def test_without_memory_it_stays_away_where_clients_are_unlike():
    with_memory, without = (
        [LIKELY - fit(max_iter=40, levels=1, memory=m, random_state=s).score(X) for s in range(2)]
        for m in ("statistics", "none")
    )
    assert np.mean(without) > 10 * max(np.mean(with_memory), 1e-5)


def test_minibatches_get_near_and_variance_reduction_nearer():
    options = {"batch_size": 10, "max_iter": 60, "step_size": 0.3}
    plain = fit(**options).score(X)
    reduced = (
        up.VRFedEM(FAMILY, epoch=10, params_init=START, tol=0, random_state=0, **options).fit(X, by=BY_PLACE).score(X)
    )
    assert LIKELY - reduced < 0.1 * (LIKELY - plain)
    assert LIKELY - plain < 0.3


def test_variance_reduction_is_fedem_with_an_epoch():
    options = {"batch_size": 10, "epoch": 5, "levels": 7, "max_iter": 8, "params_init": START}
    options |= {"tol": 0, "random_state": 0}
    one, other = (kind(FAMILY, **options).fit(X, by=BY_CHANCE) for kind in (up.FedEM, up.VRFedEM))
    assert one.get_params() == other.get_params()
    assert all((a == b).all() for a, b in zip(one.params_, other.params_))
    work = [row["expectations"] for row in other.history_]
    assert work[0] == work[5] == len(X)
    assert work[1] == 2 * 10 * 6


def test_the_first_rounds_may_use_all_rows():
    options = {"epoch": 5, "max_iter": 4, "params_init": START, "tol": 0, "random_state": 0}
    warm = up.VRFedEM(FAMILY, batch_size=10, warm_up=4, **options).fit(X, by=BY_CHANCE)
    assert [row["expectations"] for row in warm.history_] == [len(X)] * 4
    exact = fit(max_iter=4)
    for a, b in zip(warm.params_, exact.params_):
        assert_allclose(a, b, rtol=1e-10)


def test_history_says_what_was_sent_and_how_far_it_is():
    model = fit(levels=1, max_iter=6, exact_every=2)
    rows = model.history_
    assert [("exact_field" in row) for row in rows] == [True, False, True, False, True, False]
    assert all(row["field"] >= 0 and row["step_size"] > 0 for row in rows)
    assert rows[1]["bytes_up"] < 6 * (21 + 3 * 10 * 8) / 3
    assert rows[0]["bytes_up"] > rows[1]["bytes_up"]  # the first message is finer
    assert rows[1]["expectations"] == len(X)
    exact = fit(max_iter=2).history_
    assert exact[1]["field"] == exact[1]["exact_field"]


def test_the_likelihood_in_the_history_is_that_of_the_data():
    model = fit(max_iter=1)
    assert_allclose(model.history_[0]["loglik"], mixture.log_density(START, X, "full").mean(), rtol=1e-12)


def test_absent_clients_change_nothing_at_home():
    fed = Faults(up.federate(X, by=BY_PLACE), drop={6: ["1"]})
    rounds = up.FedEM(FAMILY, levels=1, params_init=START, tol=0, max_iter=6, random_state=0).rounds(fed)
    seen = {}
    for moment in rounds:
        if moment.history:
            seen[fed.journal.round] = fed.snapshot()["1"]["memory"]
    assert [r.round for r in fed.journal.refusals] == [6]
    assert all((a == b).all() for a, b in zip(seen[6], seen[5]))
    assert not all((a == b).all() for a, b in zip(seen[7], seen[6]))


def test_memories_of_clients_add_up_to_the_servers():
    fed = up.federate(X, by=BY_CHANCE)
    *_, last = up.FedEM(FAMILY, levels=1, fraction=0.6, params_init=START, tol=0, max_iter=9, random_state=1).rounds(
        fed
    )
    held = fed.snapshot()
    for i, leaf in enumerate(last.state.memory):
        assert_allclose(sum(held[name]["memory"][i] for name in fed.names), leaf, rtol=1e-9, atol=1e-9)


def test_the_same_seed_gives_the_same_bits_and_a_resumed_run_too():
    model = up.FedEM(
        FAMILY, levels=1, fraction=0.5, batch_size=15, params_init=START, tol=0, max_iter=8, random_state=3
    )
    moments = list(model.rounds(up.federate(X, by=BY_CHANCE)))
    final = model.params_
    fresh = up.FedEM(**model.get_params())
    list(fresh.rounds(up.federate(X, by=BY_CHANCE), saved=moments[4]))
    assert all((a == b).all() for a, b in zip(final, fresh.params_))


def test_it_is_saved_and_loaded(tmp_path):
    model = up.FedEM({"name": "poisson", "n_components": 2}, tol=0, max_iter=3, random_state=0)
    model.fit(np.random.default_rng(0).poisson(3.0, size=(60, 2)).astype(float), by=np.arange(60) % 3)
    back = up.load(model.save(tmp_path / "model"))
    assert (back.params_.rates == model.params_.rates).all()
    assert back.get_params()["family"] == model.family


def test_any_family_fits_over_clients():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 2))
    slope = np.where(rng.random(300) < 0.5, 2.0, -2.0)
    y = 5.0 + slope * x[:, 0] + 0.1 * rng.normal(size=300)
    model = up.FedEM(families.RegressionMixture(2), max_iter=60, levels=7, random_state=1).fit(
        x, y, by=np.arange(300) % 4
    )
    assert_allclose(np.sort(model.params_.coefs[:, 0]), [-2.0, 2.0], atol=0.05)
    assert_allclose(model.params_.coefs[:, 2], 5.0, atol=0.05)


def test_a_step_that_waits_for_everyone_is_pooled_em(monkeypatch):
    monkeypatch.setattr(fedem, "MAX_STALE_CHANGE", 0.0)
    model = fit(fraction=0.5, step_size=1.0, patience=1000, guard=None, max_iter=40)
    moved = sum(row["step_size"] > 0 for row in model.history_)
    assert 5 < moved < 20
    assert relative(model.params_, pooled(moved)) < 1e-12


def test_steps_wait_while_they_are_long_and_not_for_ever():
    waits, moves = (fit(fraction=0.5, levels=7, max_iter=60, patience=p).history_ for p in (4, 0))
    still = [row["step_size"] == 0 for row in waits]
    assert any(still[:10])
    assert not any(still[-10:])
    assert not any(row["step_size"] == 0 for row in moves)
    longest = max(len(run) for run in "".join(".w"[s] for s in still).split("."))
    assert longest <= 4


def test_who_has_answered_about_these_params_sends_nothing_more(monkeypatch):
    monkeypatch.setattr(fedem, "MAX_STALE_CHANGE", 0.0)
    history = fit(fraction=0.9, step_size=1.0, max_iter=12, random_state=5).history_
    again = [b["bytes_up"] for a, b in pairwise(history) if a["step_size"] == 0]
    anew = [b["bytes_up"] for a, b in pairwise(history) if a["step_size"] > 0]
    assert again
    assert max(again) < min(anew)


def test_messages_are_finer_while_statistics_change_by_much():
    sent = [row["bytes_up"] for row in fit(levels=1, max_iter=40).history_]
    assert sent[1] > 1.3 * np.mean(sent[-10:])
    plain = [row["bytes_up"] for row in fit(levels=1, memory="none", max_iter=10).history_]
    assert max(plain[1:]) < sent[1]  # without a memory nothing gets smaller, and the levels stay what was asked for


def decoder(quantiser):
    zero = np.asarray(0)
    down = Down(START, None, np.zeros(3), np.ones(3), zero, zero)
    question = contribute.using(family=describe(FAMILY, families.FAMILIES), batch=None, reduce=False)
    return compression.StatisticsCodec().decoder(question, down, Scheme(quantiser, 0.5), Journal()).decode


@pytest.mark.parametrize(("levels", "kind"), [(0, 1), (2, 1), (200, 1), (3, 3)])
def test_a_header_that_no_client_writes_is_refused(levels, kind):
    with pytest.raises(ValueError, match="no client of FedEM"):
        decoder(Dither(3))(compression.HEADER.pack(levels, 10.0, -1.0, 4 * 10 + kind), "a")


@pytest.mark.parametrize("quantiser", [Dither(3), TopK(0.3), Cast("float16"), Identity()], ids=str)
def test_garbled_messages_are_refused(quantiser):
    change = compression.to_blocks(FAMILY, quantiser, START, tree.map(lambda a: a + 0.3, FAMILY.moments(START)))
    body = blocks.encode(quantiser, change, compression._rng((0, 0), "a"))
    sent = compression.HEADER.pack(3, 10.0, -1.0, 4 * 10 + 1) + body
    decode = decoder(quantiser)
    assert decode(sent, "a").rows == 10
    for n in range(len(sent)):
        if n != compression.HEADER.size:  # a header alone says that nothing has changed
            with pytest.raises(ValueError, match=r"."):
                decode(sent[:n], "a")
    rng = np.random.default_rng(0)
    for at in range(len(sent)):
        wrong = bytearray(sent)
        wrong[at] ^= int(rng.integers(1, 256))
        with suppress(ValueError):  # what cannot be told from an honest answer is one
            decode(bytes(wrong), "a")


@client("fedem_test.garble", STEP, batched=False)
def garble(up: Tree, client: Client, *, name: str) -> Tree:
    return up[: len(up) // 2] if client.name == name else up


class Garbled(Layer):
    def wrap(self, ask):
        return ask.then(garble, name="2") if ask.name == "fedem.contribute" else ask


def test_a_client_whose_messages_are_garbled_is_named_and_the_others_go_on():
    fed = Garbled(up.federate(X, by=BY_PLACE))
    model = up.FedEM(FAMILY, levels=3, params_init=START, tol=0, max_iter=3, random_state=0).fit(fed)
    assert {r.client for r in fed.journal.refusals} == {"2"}
    assert fed.journal.refusals[0].reason.startswith("the answer of '2' cannot be read (")
    assert model.history_[-1]["clients"] == 5


def test_a_client_that_comes_late_is_taken_in():
    fed = Faults(up.federate(X, by=BY_PLACE), drop={r: ["5"] for r in range(12)})
    late = up.FedEM(FAMILY, params_init=START, fraction=0.7, tol=0, max_iter=120, random_state=0).fit(fed)
    assert len(fed.journal.refusals) > 3
    assert late.score(X) > LIKELY - 1e-6


def test_the_guard_halves_a_long_step():
    wild = fit(levels=1, guard=0.05, max_iter=4)
    assert sum(row["halved"] for row in wild.history_[1:]) > 0
    assert min(row["step_size"] for row in wild.history_) < 1


def test_a_long_step_with_little_noise_in_it_is_em_s_own():
    calm = fit(levels=31, guard=0.05, max_iter=4)
    assert not any(row["halved"] for row in calm.history_)
    batches = fit(levels=31, batch_size=20, step_size=1.0, guard=0.05, max_iter=4)
    assert any(row["halved"] for row in batches.history_)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"omega": -1.0}, "omega=-1.0 must be at least 0"),
        ({"fraction": 0.0}, "fraction=0.0 must be above 0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epoch": 0}, "epoch=0"),
        ({"step_size": 1.5}, "step_size=1.5"),
        ({"memory": "all"}, "memory='all'"),
        ({"cohort": "few"}, "cohort='few'"),
        ({"alpha": 2.0}, "alpha=2.0"),
        ({"guard": 0.0}, "guard=0.0"),
        ({"patience": -1}, "patience=-1"),
        ({"decay": 2.0}, "decay=2.0"),
        ({"levels": 1, "quantiser": Sparsify(0.5)}, "give one of them"),
    ],
)
def test_numbers_out_of_range_are_refused_before_any_round(options, said):
    fed = up.federate(X, by=BY_PLACE)
    with pytest.raises(ValueError, match=said):
        up.FedEM(FAMILY, **options).fit(fed)
    assert fed.journal.round == 0


@pytest.mark.parametrize(
    ("family", "bad", "said"),
    [
        ("poisson", -1.0, "1 of 10 rows of client 'b' .* whole numbers of at least 0"),
        ("bernoulli", 2.0, "zeros and ones"),
        ({"name": "categorical", "n_categories": 3}, 3.0, "0 to n_categories - 1 = 2"),
    ],
)
def test_data_that_do_not_suit_the_family_are_named(family, bad, said):
    good = np.random.default_rng(0).integers(0, 2, size=(10, 2)).astype(float)
    wrong = good.copy()
    wrong[3, 1] = bad
    with pytest.raises(ValueError, match=said):
        up.FedEM(family).fit({"a": good, "b": wrong})


# ---- one compression ----


def plain():
    return up.federate(X, by=BY_PLACE, mode="one by one")  # as inside a layer: the same bits at the start


@pytest.mark.parametrize("options", [{"levels": 3}, {"levels": 1}, {"quantiser": Sparsify(0.5)}], ids=str)
@pytest.mark.parametrize("kind", [up.FedEM, up.VRFedEM])
def test_the_layer_around_it_and_its_own_parameters_send_the_same_messages(kind, options):
    settings = {"params_init": START, "tol": 0, "max_iter": 8, "random_state": 0, "fraction": 0.7}
    own = kind(FAMILY, **options, **settings).fit(plain())
    around = kind(FAMILY, **settings).fit(up.Metered(up.Compressed(plain(), **options)))
    assert all((a == b).all() for a, b in zip(own.params_, around.params_))
    assert [row["bytes_up"] for row in own.history_] == [row["bytes_up"] for row in around.history_]


MODELS = {
    "FedEM": lambda **options: up.FedEM(FAMILY, tol=0, max_iter=20, init_params="random", random_state=0, **options),
    "VRFedEM": lambda **options: up.VRFedEM(
        FAMILY, tol=0, max_iter=20, init_params="random", random_state=0, **options
    ),
    "fedem": lambda: up.GaussianMixture(3, solver="fedem", tol=0, max_iter=20, init_params="random", random_state=0),
    "vr-fedem": lambda: up.GaussianMixture(
        3, solver="vr-fedem", tol=0, max_iter=20, init_params="random", random_state=0
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_compressed_federation_sends_fewer_bytes_whoever_is_fitted(make):
    sent = {}
    for name, fed in {"plain": plain(), "compressed": up.Compressed(plain(), levels=1)}.items():
        sent[name] = sum(row["bytes_up"] for row in make().fit(fed).history_)
    assert sent["compressed"] < sent["plain"] / 3


@pytest.mark.parametrize(
    ("options", "layer", "said"),
    [
        ({"levels": 3}, {}, "levels= compresses what clients send, and so does the Compressed"),
        ({"omega": 1.0}, {}, "omega= compresses"),
        ({"alpha": 0.5}, {}, "alpha= compresses"),
        ({"memory": "none"}, {}, "memory='none' of FedEM and memory=True of Compressed disagree"),
        ({}, {"memory": False}, "memory='statistics' of FedEM and memory=False of Compressed disagree"),
    ],
)
def test_two_compressions_are_refused_before_any_round(options, layer, said):
    fed = up.Compressed(plain(), **layer)
    with pytest.raises(ValueError, match=said):
        up.FedEM(FAMILY, **options).fit(fed)
    assert fed.journal.round == 0


def test_a_mixture_with_levels_inside_a_compressed_federation_is_refused():
    with pytest.raises(ValueError, match="give one of them"):
        up.GaussianMixture(3, solver="fedem", solver_options={"levels": 3}).fit(up.Compressed(plain()))


def test_a_resumed_run_inside_the_layer_ends_with_the_same_bits():
    model = up.FedEM(FAMILY, fraction=0.5, params_init=START, tol=0, max_iter=8, random_state=3)
    moments = list(model.rounds(up.Compressed(plain(), levels=1)))
    again = up.FedEM(**model.get_params())
    list(again.rounds(up.Compressed(plain(), levels=1), saved=moments[4]))
    assert all((a == b).all() for a, b in zip(model.params_, again.params_))


def test_exact_questions_are_not_rounded():
    fed = up.Compressed(plain(), levels=1)
    model = up.FedEM(FAMILY, params_init=START, exact_every=1, tol=0, max_iter=1).fit(fed)
    assert_allclose(model.history_[0]["exact_loglik"], mixture.log_density(START, X, "full").mean(), rtol=1e-12)
    assert [e.steps for e in fed.journal.exchanges if e.question == "fedem.exact"] == [""]


def test_options_travel_as_json():
    sent = []

    class Overheard(Layer):
        def sum(self, ask, down):
            sent.append([dict(ask.options), *(dict(s.options) for s in ask.steps)])
            return super().sum(ask, down)

    up.FedEM(FAMILY, levels=1, params_init=START, tol=0, max_iter=1).fit(Overheard(plain()))
    assert json.loads(json.dumps(sent[-1])) == sent[-1]
    assert len(sent[-1]) == 2


# ---- convergence ----


def test_it_converges_where_exact_em_does_although_half_of_the_clients_are_absent():
    model = up.FedEM(FAMILY, params_init=START, fraction=0.5, tol=1e-4, random_state=0).fit(plain())
    assert model.converged_
    assert 20 <= model.n_iter_ < 100
    assert model.score(X) > LIKELY - 1e-3
    looks = [row["round"] for row in model.history_ if "common_loglik" in row]
    assert looks == [1, *range(10, model.n_iter_ + 1, 10)]
    last = model.history_[-1]["common_loglik"]
    assert_allclose(last, model.score(X), rtol=1e-10)


def test_minibatches_without_variance_reduction_do_not_pass_for_converged():
    model = up.FedEM(FAMILY, params_init=START, batch_size=5, step_size=0.5, tol=1e-4, max_iter=60, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 60 rounds: .* raise max_iter"):
        model.fit(plain())
    assert not model.converged_


def test_a_client_that_leaves_for_good_does_not_pass_for_convergence():
    fed = Faults(plain(), drop={r: ["5"] for r in range(9, 200)})
    with pytest.warns(ConvergenceWarning, match="not all clients answered"):
        model = up.FedEM(FAMILY, params_init=START, levels=7, tol=1e-3, max_iter=60, random_state=0).fit(fed)
    assert not model.converged_


def test_a_round_without_a_client_is_not_compared_with_one_that_had_it():
    fed = Faults(plain(), drop={12: ["5"]})
    model = up.FedEM(FAMILY, params_init=START, tol=1e-6, max_iter=300, random_state=0).fit(fed)
    assert model.converged_
    assert model.score(X) > LIKELY - 1e-3


@pytest.mark.parametrize(("levels", "seed"), [(1, 0), (1, 1), (3, 1), (7, 2)])
def test_coarse_levels_do_not_make_a_covariance_indefinite(levels, seed):
    """Columns that nearly depend on each other, and components that lose their rows to rounding."""
    x = load_breast_cancer().data
    by = np.random.default_rng(seed).integers(8, size=len(x))
    options = {"tol": 0, "max_iter": 25, "random_state": seed}
    model = up.FedEM(families.GaussianMixture(3, reg=1e-6), levels=levels, **options).fit(x, by=by)
    assert model.score(x) > 0  # the start is at about -30


def test_frames_with_texts_and_dates_are_scored_as_they_were_fitted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 9, 90),
            "sex": rng.choice(["female", "male"], 90),
            "visit": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, 90), "D"),
        }
    )
    fed = up.federate(frame.assign(site=np.arange(90) % 3), by="site")
    for model in (up.FedEM(random_state=0, max_iter=20), up.VRFedEM(random_state=0, max_iter=20)):
        fitted = model.fit(fed)
        encoded = np.concatenate([c.x for c in fed.here()])
        assert fitted.score(frame[["visit", "age", "sex"]]) == pytest.approx(fitted.score(encoded), rel=1e-9)
