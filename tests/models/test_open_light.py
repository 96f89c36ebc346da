"""OpenMixture where bytes count: round atoms on a grid. Few bytes, the same clusters, the same on any engine."""

import numpy as np
import pytest
from scipy.special import softmax

import unpooled as up
from unpooled.data.federate import federate
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.metrics.clustering import score
from unpooled.models.open_mixture import race as open_race
from unpooled.models.open_mixture import round_atoms as open_round_atoms
from unpooled.models.open_mixture import rounds as open_rounds
from unpooled.models.open_mixture import state as open_state
from unpooled.models.open_mixture.rounds import Proposal

D = 6


def paired_clients(seed=0, clients=24, rows=60):
    """Four clusters of two Gaussians each, of one covariance that is not round."""
    rng = np.random.default_rng(seed)
    spots, bent = rng.normal(size=(4, 2, D)) * 4, rng.normal(size=(D, D)) / 2 + np.eye(D)
    x, y = {}, {}
    for c in range(clients):
        z = rng.choice(rng.choice(4, 2, replace=False), rows)
        x[f"c{c:02}"] = spots[z, rng.integers(2, size=rows)] + rng.normal(size=(rows, D)) @ bent
        y[f"c{c:02}"] = z
    return x, y


def lone_clients(seed=0, clients=20, rows=60):
    """Each of six clusters is one Gaussian."""
    rng = np.random.default_rng(seed)
    spots = rng.normal(size=(6, D)) * 4
    y = {f"c{c:02}": rng.choice(rng.choice(6, 3, replace=False), rows) for c in range(clients)}
    return {n: spots[z] + rng.normal(size=(rows, D)) for n, z in y.items()}, y


def light(x, mode="auto", **options):
    fed = up.Compressed(federate(x, mode=mode), quantiser="grid")
    return up.OpenMixture(atom_type="round", random_state=0, **options).fit(fed), fed


@pytest.fixture(scope="module", name="paired")
def paired_():
    x, y = paired_clients()
    return *light(x), x, y


def test_auto_finds_groups_from_few_bytes(paired):
    model, fed, x, y = paired
    assert (model.structure_, model.n_components_) == ("topics", 4)
    assert score(y, model.labels_).pooled_ari > 0.95
    assert len(fed.journal.exchanges) <= 40
    assert not fed.journal.refusals
    numbers = len(model.means_) * (1 + D + D * (D + 1) // 2)  # of one answer about atoms with covariances of their own
    sent = sum(e.bytes_up for e in fed.journal.exchanges) / len(x)
    assert sent < len(model.history_) * numbers / 2  # four bits a number and round, and there is all else in it


def test_it_sends_a_small_part_of_what_the_default_sends(paired):
    _, fed, x, _ = paired
    plain = federate(x)
    up.OpenMixture(random_state=0).fit(plain)
    sent, all_of_it = (sum(e.bytes_up for e in f.journal.exchanges) for f in (fed, plain))
    assert sent < all_of_it / 40


def test_the_same_seed_gives_the_same_bits():
    x = paired_clients(3, clients=8)[0]
    (model, fed), (again, other) = light(x), light(x, mode="one by one")
    assert np.array_equal(model.means_, again.means_)
    assert [e.bytes_up for e in fed.journal.exchanges] == [e.bytes_up for e in other.journal.exchanges]


def test_auto_keeps_gaussians_where_clusters_are_gaussians():
    x, y = lone_clients()
    model, _ = light(x)
    assert (model.structure_, model.n_components_) == ("gaussians", 6)
    assert score(y, model.labels_).pooled_ari > 0.98
    assert model.scores_.keys() == {"gaussians", "topics"}


def test_clients_one_by_one_give_what_stacked_ones_give():
    x, _ = paired_clients(1, clients=10)
    models = [
        up.OpenMixture(atom_type="round", random_state=0).fit(federate(x, mode=m)) for m in ("stacked", "one by one")
    ]
    assert models[0].n_components_ == models[1].n_components_
    np.testing.assert_allclose(models[0].means_, models[1].means_, rtol=1e-5, atol=1e-6)


def test_clients_that_do_not_differ_fit_through_it():
    rng = np.random.default_rng(0)
    spots = rng.normal(size=(3, D)) * 5
    y = {f"c{c:02}": rng.integers(3, size=60) for c in range(12)}
    model, fed = light({n: spots[z] + rng.normal(size=(60, D)) for n, z in y.items()})
    assert model.alike_
    assert score(y, model.labels_).pooled_ari > 0.98
    assert len(fed.journal.exchanges) <= 40


# ---- its parts ----


def round_proposal(k=5):
    rng = np.random.default_rng(4)
    params = Params(rng.dirichlet(np.ones(k)), rng.normal(size=(k, D)) + 50, rng.uniform(0.5, 2, k))
    return Proposal(params, params.weights[None], rng.normal(size=(D, D)) / 3 + np.eye(D))


def test_the_common_covariance_is_that_of_pooled_rows():
    x, _ = paired_clients(2, clients=6)
    p = round_proposal()
    found = federate(x).sum(open_round_atoms.common_scatter.using(held=0.0), p)
    z = np.concatenate([x[n] for n in sorted(x)]) @ p.metric
    away = z[:, None] - p.params.means
    q = np.log(p.params.weights) - (away**2).sum(-1) / p.params.covs / 2 - D / 2 * np.log(p.params.covs)
    r = softmax(q, axis=1) / p.params.covs
    direct = np.einsum("nk,nkd,nke->de", r, away, away)
    np.testing.assert_allclose(gaussian.unpack_triangle(found.scatter), direct, rtol=1e-8)
    assert found.rows == len(z)


def test_atoms_stay_where_they_are_when_their_covariance_is_measured():
    x, _ = paired_clients(2, clients=6)
    before = open_race.Candidate("atoms", "atoms", "spherical", round_proposal())
    (after,) = open_round_atoms.measured(federate(x), (before,), open_round_atoms.REFRESHED[0], False)
    unbent = [open_race.unbent(c).proposal.params for c in (before, after)]
    np.testing.assert_allclose(unbent[0].means, unbent[1].means, rtol=1e-8)
    assert not np.allclose(unbent[0].covs, unbent[1].covs)
    again = federate(x).sum(open_round_atoms.common_scatter.using(held=0.0), after.proposal)
    assert np.linalg.cond(gaussian.unpack_triangle(again.scatter)) < np.linalg.cond(
        gaussian.unpack_triangle(
            federate(x).sum(open_round_atoms.common_scatter.using(held=0.0), before.proposal).scatter
        )
    )
    assert open_round_atoms.measured(federate(x), (before,), 1, False) == (before,)
    (last,) = open_round_atoms.measured(federate(x), (before,), 11, True)
    assert (last.shape, len(last.proposal.metric)) == ("full", 0)


@pytest.mark.parametrize("shape", ["spherical", "diag", "full"])
def test_a_brief_answer_has_the_likelihood_and_no_moments(shape):
    x, _ = lone_clients(clients=3)
    covs = gaussian.pack_covs(gaussian.reshape_covs(np.tile(np.eye(D), (4, 1, 1)), shape), shape)
    proposal = Proposal(Params(np.full(4, 0.25), np.eye(4, D), covs), np.zeros((0, 4)))
    said = {}
    for brief in ([], ["a"]):
        ask = open_rounds.survey.using(shapes=[shape], ids=["a"], tested=[False], held=0.1, keep=[], brief=brief)
        said[len(brief)] = federate(x).sum(ask, (proposal,))["a"]
    assert said[1].stats.loglik == said[0].stats.loglik
    assert said[1].paid == said[0].paid
    assert said[1].stats.n.size == said[1].stats.x.size == said[1].stats.xx.size == said[1].topics.size == 0
    still = open_race.advance(open_race.Candidate(f"{shape}-4", "gaussians", shape, proposal, brief=True), said[1])
    assert still.proposal is proposal
    assert np.isfinite(still.bic)


def test_gaussians_that_stand_still_send_no_moments_and_stay():
    x, _ = lone_clients(clients=3)
    params = Params(np.full(4, 0.25), np.eye(4, D), np.tile(gaussian.pack_triangle(np.eye(D)), (4, 1)))
    c = open_race.Candidate("topics-2", "topics", "full", Proposal(params, np.full((2, 4), 0.25)), still=True)
    ask = open_rounds.survey.using(shapes=["full"], ids=["a"], tested=[False], held=0.1, keep=[], still=["a"])
    sums = federate(x).sum(ask, (c.proposal,))["a"]
    assert sums.stats.x.size == sums.stats.xx.size == 0
    after = open_race.advance(c, sums).proposal
    assert after.params.means is params.means
    assert after.params.covs is params.covs
    np.testing.assert_allclose(after.params.weights, sums.stats.n / 180)
    np.testing.assert_allclose(after.topics, sums.topics.T / sums.topics.sum(0)[:, None])


def candidate(id, bic, *, brief=False, structure="gaussians"):
    params = Params(np.ones(2) / 2, np.zeros((2, 1)), np.ones(2))
    return open_race.Candidate(
        id, structure, id.split("-")[0], Proposal(params, np.zeros((0, 2))), bic=bic, brief=brief
    )


def test_of_those_looked_at_the_best_goes_on():
    first = [
        candidate("full-2", 5.0, brief=True),
        candidate("full-3", 4.0, brief=True),
        candidate("diag-2", 9.0, brief=True),
    ]
    assert [c.id for c in open_race.picked(first)] == ["full-3", "diag-2"]  # of each shape, as none has moved yet
    later = [candidate("full-3", 4.0), candidate("full-2", 5.0, brief=True), candidate("full-4", 6.0, brief=True)]
    gone_on = open_race.picked(later)
    assert [c.id for c in gone_on] == ["full-3", "full-2"]
    assert not any(c.brief for c in gone_on)
    assert open_race.picked(later[:1]) == (later[0],)


def test_gaussians_ride_along_now_and_then_and_atoms_always():
    race = (candidate("full-2", 5.0), candidate("atoms", 1.0, structure="atoms"))
    state = open_state.State("group", 0, race, 9.0, (), None, {}, (), {}, {}, {})
    asked = [[c.id for c in open_state.awake(state._replace(age=age), True)] for age in range(6)]
    assert asked == [["atoms"], ["atoms"], ["full-2", "atoms"]] * 2
    assert open_state.awake(state, False) == race
    assert open_state.question(race[1:], state).options["keep"] == ["gaussians-full-2"]
