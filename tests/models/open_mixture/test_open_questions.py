"""What clients of OpenMixture answer: statistics under their own weights, held-out rows, and nothing that stands for few rows."""

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import questions
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal
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
    options = question(Compare((copy,), 5, (final,))).options
    assert options["keep"] == ["gaussians-full-2"]
    assert (options["ids"], options["keys"]) == (["gaussians-full-2-validated"], ["gaussians-full-2"])


def test_weights_of_two_structures_with_the_same_id_are_kept_apart():
    params = Params(np.full(6, 1 / 6), np.zeros((6, 2)), np.ones((6, 2)))
    own, shared = (Proposal(params, topics) for topics in (np.zeros((0, 6)), params.weights[None]))
    candidates = [Candidate("diag-6", "gaussians", "diag", own), Candidate("diag-6", "shared", "diag", shared)]
    fed = federate({"a": np.random.default_rng(0).normal(size=(50, 2))})
    for c in candidates:
        assert fed.sum(question(Compare((c,))), (c.proposal,))[c.answer_key].stats.rows > 0


def test_stacked_clients_answer_as_single_ones():
    x = clients_alike(6)
    totals = [federate(x, mode=mode).sum(ask(["a"], [True]), (spherical(),))["a"] for mode in ("stacked", "one by one")]
    np.testing.assert_allclose(totals[0].stats.xx, totals[1].stats.xx, rtol=1e-10)
    np.testing.assert_allclose(totals[0].held_out_loglik, totals[1].held_out_loglik, rtol=1e-10)
    assert totals[0].held_out_rows + totals[0].stats.rows == 6 * 60


def test_held_out_rows_are_a_fifth_and_not_fitted():
    client = Client("a", np.arange(200.0)[:, None])
    (fitted, _), (out, _) = questions.split_rows(client, 0.2)
    assert abs(len(out) - 40) <= 2
    assert not set(fitted.ravel()) & set(out.ravel())


def test_nothing_that_stands_for_few_rows_is_sent():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(3, 2)) * 0.1 + 50])
    sent, everything = (
        questions.describe.using(max_local=4, max_centres=8, min_count=m)(None, Client("a", x)) for m in (5, 0)
    )
    assert min(sent.n) >= 5
    assert min(sent.centre_n) >= 5
    assert np.abs(sent.mean).max() < 40
    assert np.abs(everything.mean).max() > 45


def test_products_of_responsibilities_of_a_hard_assignment_are_counts():
    x = np.repeat(CENTRES, [3, 1, 4, 1, 5], axis=0)
    far_apart = Proposal(Params(np.ones(5) / 5, CENTRES, np.full(5, 1e-3)), np.zeros((0, 5)))
    fed = federate({"a": x[:6], "b": x[6:]})
    (total,) = fed.sum(questions.atom_products.using(shapes=["spherical"]), (far_apart,))
    counts = fed.gather(questions.count_atoms.using(shapes=["spherical"]), (far_apart,))
    np.testing.assert_allclose(total.rr[[0, 2, 5, 9, 14]], [3, 1, 4, 1, 5], atol=1e-8)  # the packed diagonal
    assert total.rr.sum() == pytest.approx(14)
    np.testing.assert_allclose(sum(c[0].n for c in counts.values()), [3, 1, 4, 1, 5], atol=1e-8)
