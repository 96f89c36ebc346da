"""The parts of the search for clusters: what clients answer, and how candidates move, join and are compared."""

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import alike as open_alike
from unpooled.models.open_mixture import estimator as open_mixture
from unpooled.models.open_mixture import race as open_race
from unpooled.models.open_mixture import rounds as open_rounds
from unpooled.models.open_mixture.race import ladder
from unpooled.models.open_mixture.rounds import Proposal

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def dealt(clients):
    """60 rows a client, near all of the centres."""
    rng = np.random.default_rng(0)
    return {f"c{c}": CENTRES[rng.integers(5, size=60)] + rng.normal(size=(60, 2)) for c in range(clients)}


def test_atoms_in_a_metric_give_rows_the_density_of_the_full_ones():
    rng = np.random.default_rng(2)
    metric = np.array([[0.5, 0.0], [-0.3, 2.0]])
    params = Params(np.array([0.3, 0.7]), rng.normal(size=(2, 2)), np.array([0.5, 2.0]))
    bent = open_race.Candidate("a", "topics", "spherical", Proposal(params, np.array([[0.5, 0.5], [0.1, 0.9]]), metric))
    full = open_race.unbent(bent)
    x, w = rng.normal(size=(30, 2)), np.ones(30)
    seen = open_rounds.seen(bent.proposal, x)
    one, other = (
        open_rounds.visit(bent.proposal, seen, w, "spherical", None),
        open_rounds.visit(full.proposal, x, w, "full", None),
    )
    np.testing.assert_allclose(one[0].loglik, other[0].loglik, rtol=1e-12)
    np.testing.assert_allclose(one[2], other[2], rtol=1e-12)
    assert open_race.unbent(full) is full


def test_a_gaussian_more_must_be_clear():
    def candidate(k, bic):
        params = Params(np.ones(k) / k, np.zeros((k, 2)), np.ones(k))
        return open_race.Candidate(
            f"spherical-{k}", "gaussians", "spherical", Proposal(params, np.zeros((0, k))), bic=bic
        )

    race = (candidate(4, 100.0), candidate(5, 92.0))
    assert open_race.best(race, "gaussians").size == 4
    assert open_race.best((race[0], candidate(5, 88.0)), "gaussians").size == 5


def test_what_held_out_rows_say_is_compared_row_by_row():
    x = dealt(3)
    right, wrong = (Proposal(Params(np.ones(5) / 5, CENTRES + by, np.ones(5)), np.zeros((0, 5))) for by in (0.0, 1.0))
    ask = open_rounds.survey.using(shapes=["spherical"] * 2, ids=["a", "b"], tested=[True] * 2, held=0.2, keep=[])
    first, second = federate(x).sum(ask, (right, wrong)).values()
    assert first.held_square == 0
    lost = float(first.held_loglik - second.held_loglik)
    assert second.held_square >= lost**2 / second.held_rows  # a mean square is never below the squared mean


def test_rows_are_held_out_of_tested_candidates_only():
    x = dealt(3)
    one, other = (Proposal(Params(np.ones(5) / 5, CENTRES + by, np.ones(5)), np.zeros((0, 5))) for by in (1.0, 0.0))
    ask = open_rounds.survey.using(shapes=["spherical"] * 2, ids=["a", "b"], tested=[False, True], held=0.2, keep=[])
    first, second = federate(x).sum(ask, (one, other)).values()
    assert (first.stats.rows, first.held_rows, first.held_loglik, first.held_square) == (180, 0, 0, 0)
    assert second.stats.rows + second.held_rows == 180
    assert second.held_rows > 0
    assert second.held_square == 0  # it is the first of those that are tested


def test_clients_keep_their_weights_of_what_waits_and_forget_others():
    fed = federate(dealt(2))
    proposal = Proposal(Params(np.ones(5) / 5, CENTRES, np.ones(5)), np.zeros((0, 5)))
    for ids, keep in ((["a", "b"], []), (["c"], ["a"])):
        k = len(ids)
        ask = open_rounds.survey.using(shapes=["spherical"] * k, ids=ids, tested=[False] * k, held=0.1, keep=keep)
        fed.sum(ask, (proposal,) * k)
    assert all(set(kept) == {"shares-a", "shares-c"} for kept in fed.snapshot().values())


def test_covariances_that_are_none_are_mended_and_others_kept():
    good, bad = np.array([2.0, 0.5, 1.0]), np.array([1.0, 2.0, 1.0])  # packed: xx, xy, yy
    mended = open_race._sound(np.stack([good, bad]), "full", 0.01)
    assert np.array_equal(mended[0], good)
    np.testing.assert_allclose(np.linalg.eigvalsh(mended[1][[[0, 1], [1, 2]]]), [0.01, 3.0])
    assert np.array_equal(open_race._sound(np.array([-1.0, 2.0]), "spherical", 0.01), [0.01, 2.0])


def test_pairs_are_joined_one_after_the_other():
    params = Params(np.ones(5) / 5, CENTRES, np.ones(5))
    start = open_race.Candidate("spherical-5", "gaussians", "spherical", Proposal(params, np.zeros((0, 5))))
    found = open_race.some_less(start, 500.0, 3)
    assert [(c.id, c.size) for c in found] == [
        ("spherical-5-1", 4),
        ("spherical-5-1-1", 3),
        ("spherical-5-1-1-1", 2),
    ]
    assert [c.size for c in open_race.some_less(found[-1], 500.0, 3)] == [1]


def test_only_gaussians_about_one_mean_are_joined():
    means = np.array([[0.0, 0.0], [0.1, 0.0], [1.0, 0.0], [9.0, 9.0]])
    params = Params(np.array([0.4, 0.2, 0.3, 0.1]), means, np.array([1.0, 0.1, 1.0, 1.0]))
    found = open_alike.concentric(
        open_race.Candidate("spherical-4", "alike", "spherical", Proposal(params, params.weights[None]))
    )
    np.testing.assert_allclose(found.proposal.topics, [[2 / 3, 1 / 3, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_atoms_are_cut_as_long_as_the_message_is_not_too_long():
    def of(k, d):
        params = Params(np.ones(k) / k, np.zeros((k, d)), np.zeros((k, d * (d + 1) // 2)))
        return open_race.Candidate("atoms", "atoms", "full", Proposal(params, params.weights[None]))

    assert open_alike.coarse(of(80, 2), 5000)
    assert not open_alike.coarse(of(80, 2), 1000)  # ten rows each
    assert not open_alike.coarse(of(80, 20), 1e6)  # 231 numbers each


def test_atoms_that_cannot_be_cut_further_are_crude():
    def of(k, d):
        params = Params(np.ones(k) / k, np.zeros((k, d)), np.zeros((k, d * (d + 1) // 2)))
        return open_race.Candidate("atoms", "atoms", "full", Proposal(params, params.weights[None]))

    assert open_alike.crude(of(80, 20), 5000)
    assert not open_alike.crude(of(80, 20), 1000)  # ten rows each: they are fine
    assert not open_alike.crude(of(80, 2), 5000)  # they can be cut


def test_mixtures_begin_at_k_means_of_centres_with_the_rows_about_them():
    rng = np.random.default_rng(0)
    z = np.arange(50) % 5
    x = CENTRES[z] + 0.1 * rng.normal(size=(50, 2))
    spots = open_race.Centres(x, np.full(50, 4.0), 200 * np.array([[1.0, 0.3], [0.3, 2.0]]))
    params = Params(np.ones(5) / 5, np.zeros((5, 2)), np.ones((5, 3)))
    c = open_race.Candidate("full-5", "alike", "full", Proposal(params, params.weights[None]))
    many = c._replace(
        id="full-60", proposal=Proposal(Params(*(np.repeat(a, 12, axis=0) for a in params)), np.ones((1, 60)))
    )
    found = open_alike.begun({"full-5": (c, 1.0), "full-60": (many, 2.0)}, spots, rng)
    new = found["full-5"][0].proposal
    order = np.linalg.norm(new.params.means[:, None] - CENTRES, axis=-1).argmin(0)
    np.testing.assert_allclose(new.params.means[order], [x[z == k].mean(0) for k in range(5)])
    for k in range(5):
        between = np.cov(x[z == k].T, bias=True)
        np.testing.assert_allclose(new.params.covs[order[k]], between[[0, 0, 1], [0, 1, 1]] + [1, 0.3, 2])
    assert (found["full-5"][1], found["full-60"]) == (1.0, (many, 2.0))  # fifty centres do not make sixty clusters


def test_a_clients_own_weights_rise_in_likelihood_and_sum_to_one():
    rng = np.random.default_rng(1)
    proposal = Proposal(Params(np.ones(3) / 3, CENTRES[:3], np.ones(3)), np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    x, w = CENTRES[rng.choice([0, 2], 80)] + rng.normal(size=(80, 2)), np.ones(80)
    logliks, shares = [], None
    for _ in range(6):
        stats, found, shares = open_rounds.visit(proposal, x, w, "spherical", shares)
        logliks.append(float(stats.loglik))
        assert found.sum() == pytest.approx(80)
        assert shares.sum() == pytest.approx(1.0)
    assert np.all(np.diff(logliks) >= -1e-9)


def rows_of_two_and_a_stray():
    """(densities, shares by EM) of forty rows about two centres, one nearer to a third than to the second, and one at a far fourth."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [11.0, 0.0], [0.0, 30.0]])
    x = np.concatenate([centres[np.arange(40) % 2] + rng.normal(size=(40, 2)), [[10.9, 0.0]], [[0.0, 30.0]]])
    dense = np.exp(-((x[:, None] - centres) ** 2).sum(-1) / 2)
    shares = np.full(4, 0.25)
    for _ in range(500):
        joint = dense * shares
        shares = (joint / joint.sum(1, keepdims=True)).mean(0)
    return dense, shares


def test_a_client_keeps_no_weight_that_is_not_worth_its_price():
    dense, likeliest = rows_of_two_and_a_stray()
    assert np.all(likeliest * 42 > 0.5)  # by likelihood alone it holds all four
    shares = open_rounds.frugal(dense, np.ones(42), None)
    np.testing.assert_allclose(shares, [20 / 42, 21 / 42, 0, 1 / 42], atol=1e-3)
    lost = np.log(dense @ likeliest).sum() - np.log(dense @ shares).sum()
    assert 0 < lost < np.log(42) / 2


def test_weights_that_are_worth_it_are_the_likeliest():
    dense, likeliest = rows_of_two_and_a_stray()
    again = open_rounds.frugal(dense[:, [0, 1, 3]], np.ones(42), likeliest[[0, 1, 3]])
    joint = dense[:, [0, 1, 3]] * again
    np.testing.assert_allclose((joint / joint.sum(1, keepdims=True)).mean(0), again, atol=1e-8)


def test_frugal_clients_in_a_stack_and_rows_without_weight():
    dense, _ = rows_of_two_and_a_stray()
    w = np.stack([np.ones(42), np.arange(42) < 30, np.arange(42) % 2])
    together = open_rounds.frugal(np.stack([dense] * 3), w, None)
    for shares, weight in zip(together, w):
        kept = weight > 0
        np.testing.assert_allclose(shares, open_rounds.frugal(dense[kept], np.ones(kept.sum()), None), atol=1e-12)
    np.testing.assert_allclose(open_rounds.frugal(dense, np.zeros(42), None), 0.25)  # nothing to learn from


def test_weights_are_drawn_to_equal_ones_over_what_a_client_holds():
    dense, _ = rows_of_two_and_a_stray()
    plain, drawn, level = (open_rounds.frugal(dense[:30, :2], np.ones(30), None, even) for even in (0.0, 20.0, 1e9))
    n = plain * 30
    np.testing.assert_allclose(drawn, (n + 10) / 50, atol=1e-3)
    np.testing.assert_allclose(level, 0.5)


def test_a_cluster_of_one_row_stays_among_equal_weights_if_the_row_is_clear():
    dense, _ = rows_of_two_and_a_stray()
    assert np.array_equal(open_rounds.frugal(dense, np.ones(42), None, 1e9) > 0, [True, True, False, True])


def chi_square_of(weights, n, seed=0):
    """What clients say whose rows lie in four far clusters, in these shares."""
    rng = np.random.default_rng(seed)
    x = {}
    for c, p in enumerate(weights):
        x[f"c{c:03}"] = 100.0 * np.eye(4)[rng.choice(4, n, p=p)] + rng.normal(size=(n, 4))
    proposal = Proposal(Params(np.full(4, 0.25), 100 * np.eye(4), np.ones(4)), np.zeros((0, 4)))
    return open_race.Candidate("a", "gaussians", "spherical", proposal), federate(x)


def test_how_even_weights_are_is_found_from_three_numbers():
    rng = np.random.default_rng(1)
    c, fed = chi_square_of(rng.dirichlet(np.full(4, 5.0), size=150), 200)
    assert open_mixture.concentration(fed, c) == pytest.approx(20, rel=0.25)
    c, fed = chi_square_of(np.full((150, 4), 0.25), 200)
    assert open_mixture.concentration(fed, c) > 500  # equal: as far as 200 rows can tell


def test_clusters_that_are_equal_do_not_go_together():
    dense, _ = rows_of_two_and_a_stray()
    shares = open_rounds.frugal(dense[:, [0, 1, 2, 2, 3]], np.ones(42), None)
    np.testing.assert_allclose(shares, [20 / 42, 21 / 42, 0, 0, 1 / 42], atol=1e-3)
    np.testing.assert_allclose(open_rounds.frugal(dense[:, [1, 1]], np.ones(42), None).sum(), 1.0)


def test_stacked_clients_answer_as_single_ones():
    x = dealt(6)
    proposal = Proposal(Params(np.ones(5) / 5, CENTRES, np.ones(5)), np.zeros((0, 5)))
    ask = open_rounds.survey.using(shapes=["spherical"], ids=["a"], tested=[True], held=0.2, keep=[])
    totals = [federate(x, mode=mode).sum(ask, (proposal,))["a"] for mode in ("stacked", "one by one")]
    np.testing.assert_allclose(totals[0].stats.xx, totals[1].stats.xx, rtol=1e-10)
    np.testing.assert_allclose(totals[0].held_loglik, totals[1].held_loglik, rtol=1e-10)
    assert totals[0].held_rows + totals[0].stats.rows == 6 * 60


def test_held_out_rows_are_a_fifth_and_not_fitted():
    client = Client("a", np.arange(200.0)[:, None])
    (fit, _), (out, _) = open_rounds.split(client, 0.2)
    assert abs(len(out) - 40) <= 2
    assert not set(fit.ravel()) & set(out.ravel())


def test_ladder_goes_down_to_one():
    assert ladder(3) == [5, 3, 2, 1]
    assert ladder(40)[:4] == [42, 40, 30, 22]


def test_clients_keep_weights_of_a_search_and_of_alike_clients_apart():
    params = Params(np.full(6, 1 / 6), np.zeros((6, 2)), np.ones((6, 2)))
    search, alike = (Proposal(params, topics) for topics in (np.zeros((0, 6)), params.weights[None]))
    found = [
        open_race.Candidate("diag-6", "gaussians", "diag", search),
        open_race.Candidate("diag-6", "alike", "diag", alike),
    ]
    fed = federate({"a": np.random.default_rng(0).normal(size=(50, 2))})
    for c in found:  # the second round asks about the other candidate of that name
        ask = open_rounds.survey.using(shapes=[c.shape], ids=[c.place], tested=[True], held=0.2, keep=[])
        assert fed.sum(ask, (c.proposal,))[c.place].stats.rows > 0
