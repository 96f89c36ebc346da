"""What clients of OpenMixture answer: statistics under their own weights, held-out rows, and nothing that stands for few rows."""

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import questions, topics
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.descriptions import describe
from unpooled.models.open_mixture.directions import sums_of
from unpooled.models.open_mixture.phases import Compare, question

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def clients_alike(clients):
    """60 rows per client, near all of the centres."""
    rng = np.random.default_rng(0)
    return {f"c{c}": CENTRES[rng.integers(5, size=60)] + rng.normal(size=(60, 2)) for c in range(clients)}


def spherical(offset=0.0):
    return Proposal(Params(np.ones(5) / 5, CENTRES + offset, np.ones(5)), np.zeros((0, 5)))


def ask(ids, validated, held_out=0.2, keep=()):
    shapes = ["spherical"] * len(ids)
    return questions.candidate_stats.using(
        keys=ids, ids=ids, shapes=shapes, validated=validated, held_out=held_out, keep=list(keep)
    )


def test_candidates_are_compared_row_by_row_on_held_out_rows():
    totals = federate(clients_alike(3)).sum(ask(["a", "b"], [True] * 2), (spherical(), spherical(1.0)))
    first, second = totals["a"], totals["b"]
    assert first.held_out_squares == 0
    difference = float(first.held_out_loglik - second.held_out_loglik)
    assert second.held_out_squares >= difference**2 / second.held_out_rows  # a mean square is at least the squared mean


def test_rows_are_held_out_of_validated_candidates_only():
    totals = federate(clients_alike(3)).sum(ask(["a", "b"], [False, True]), (spherical(1.0), spherical()))
    first, second = totals["a"], totals["b"]
    assert (first.stats.rows, first.held_out_rows, first.held_out_loglik, first.held_out_squares) == (180, 0, 0, 0)
    assert second.stats.rows + second.held_out_rows == 180
    assert second.held_out_rows > 0
    assert second.held_out_squares == 0  # it is the first validated candidate


def test_clients_keep_the_weights_they_are_told_to_keep_and_delete_others():
    fed = federate(clients_alike(2))
    fed.sum(ask(["a", "b"], [False] * 2), (spherical(),) * 2)
    fed.sum(ask(["c"], [False], keep=["a"]), (spherical(),))
    assert all(set(state) == {"shares-a", "shares-c"} for state in fed.snapshot().values())


def test_final_gaussians_are_kept_while_structures_are_compared():
    final = Candidate("full-2", "gaussians", "full", spherical())
    copy = final._replace(id="full-2-validated", validated=True)
    options = question(Compare((copy,), 5, (final,)), ()).options
    assert options["keep"] == ["gaussians-full-2"]
    assert (options["ids"], options["keys"]) == (["gaussians-full-2-validated"], ["gaussians-full-2"])


def test_weights_of_two_structures_with_the_same_id_are_kept_apart():
    params = Params(np.full(6, 1 / 6), np.zeros((6, 2)), np.ones((6, 2)))
    own, shared = (Proposal(params, topics) for topics in (np.zeros((0, 6)), params.weights[None]))
    candidates = [Candidate("diag-6", "gaussians", "diag", own), Candidate("diag-6", "shared", "diag", shared)]
    fed = federate({"a": np.random.default_rng(0).normal(size=(50, 2))})
    for c in candidates:
        assert fed.sum(question(Compare((c,)), ()), (c.proposal,))[c.answer_key].stats.rows > 0


def test_stacked_clients_answer_as_single_ones():
    x = clients_alike(6)
    totals = [federate(x, mode=mode).sum(ask(["a"], [True]), (spherical(),))["a"] for mode in ("stacked", "one by one")]
    np.testing.assert_allclose(totals[0].stats.xx, totals[1].stats.xx, rtol=1e-10)
    np.testing.assert_allclose(totals[0].held_out_loglik, totals[1].held_out_loglik, rtol=1e-10)
    assert totals[0].held_out_rows + totals[0].stats.rows == 6 * 60


def test_held_out_rows_are_a_fifth_and_not_fitted():
    (fitted, _), (out, _) = questions.split_rows(np.arange(200.0)[:, None], np.ones(200), 0.2)
    assert abs(len(out) - 40) <= 2
    assert not set(fitted.ravel()) & set(out.ravel())


def test_nothing_that_stands_for_few_rows_is_sent():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(3, 2)) * 0.1 + 50])
    sent, everything = (describe.using(max_local=4, max_centres=8, min_count=m)(None, Client("a", x)) for m in (5, 0))
    assert min(sent.n) >= 5
    assert np.abs(sent.centre).max() < 40
    assert np.abs(everything.centre).max() > 45


def test_products_of_responsibilities_of_a_hard_assignment_are_counts():
    x = np.repeat(CENTRES, [3, 1, 4, 1, 5], axis=0)
    far_apart = Proposal(Params(np.ones(5) / 5, CENTRES, np.full(5, 1e-3)), np.zeros((0, 5)))
    fed = federate({"a": x[:6], "b": x[6:]})
    (total,) = fed.sum(questions.atom_products.using(shapes=["spherical"]), (far_apart,))
    np.testing.assert_allclose(total.rr[[0, 2, 5, 9, 14]], [3, 1, 4, 1, 5], atol=1e-8)  # the packed diagonal
    assert total.rr.sum() == pytest.approx(14)
    np.testing.assert_allclose(total.n, [3, 1, 4, 1, 5], atol=1e-8)
    counts = np.array([[3, 1, 2, 0, 0], [0, 0, 2, 1, 5]])
    np.testing.assert_allclose(gaussian.unpack_triangle(total.nn), sums_of(counts).squares, atol=1e-8)
    assert total.clients == 2


def test_counts_are_shared_out_in_groups_of_min_count_rows():
    rng = np.random.default_rng(0)
    for _ in range(30):
        n, weights = rng.poisson(rng.gamma(0.5, 6, size=12)) + 0.0, rng.dirichlet(np.full(12, 5.0))
        merges = topics.agglomerate(sums_of(rng.poisson(5, size=(6, 12)) + 0.0))
        tree = questions.Tree(None, merges.left, merges.right)
        sent = questions.shared_out(n, weights, tree, 5.0)
        assert sent.sum() == pytest.approx(n.sum() if n.sum() >= 5 else 0.0)
        by_weight = np.round(sent / weights, 6)  # the same within a group that is divided by the weights
        groups = [sent[by_weight == ratio].sum() for ratio in np.unique(by_weight[by_weight > 0])]
        assert min(groups, default=5.0) >= 5.0 - 1e-9
        np.testing.assert_allclose(questions.shared_out(n, weights, tree, 0.0), n)


def test_large_counts_are_sent_as_they_are_and_a_group_that_is_absent_has_none():
    tree = questions.Tree(None, np.array([0, 2, 4]), np.array([1, 3, 5]))
    equal = np.full(4, 0.25)
    np.testing.assert_allclose(questions.shared_out(np.array([9.0, 7, 6, 8]), equal, tree, 5.0), [9, 7, 6, 8])
    np.testing.assert_allclose(questions.shared_out(np.array([19.0, 20, 1, 0]), equal, tree, 5.0), [19, 21, 0, 0])
    np.testing.assert_allclose(questions.shared_out(np.array([4.0, 3, 30, 30]), equal, tree, 5.0), [3.5, 3.5, 30, 30])


def test_rows_of_small_counts_are_in_the_largest():
    sent = questions.without_small_counts(np.array([[20.0, 1, 7], [2, 1, 3]]), 5.0)
    np.testing.assert_array_equal(sent, [[21, 0, 7], [0, 0, 0]])
