"""Phases of OpenMixture: what each passes to the next, and how the structure is chosen."""

import numpy as np
import pytest

from unpooled.data.federate import federate
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.agglomeration import Merges
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import COMPARE_ROUNDS, REFINE_ROUNDS, REFIT_ROUNDS, SETTLE_ROUNDS
from unpooled.models.open_mixture.initial import MergePath
from unpooled.models.open_mixture.phases import Compare, Done, Refit, Search, Settle, Shared, State, result
from unpooled.models.open_mixture.units import Units

UNITS = Units(np.ones(2), np.zeros(2), np.full(2, 100.0))


def candidate(structure, k, **scores):
    params = Params(np.ones(k) / k, np.zeros((k, 2)), np.ones(k))
    topics = {"topics": np.eye(k), "gaussians": np.zeros((0, k)), "shared": params.weights[None]}[structure]
    name = "topics" if structure == "topics" else "spherical"
    return Candidate(f"{name}-{k}", structure, "spherical", Proposal(params, topics), **scores)


def after(phase, clients=8, rows=100.0):
    units = Units(np.ones(2), np.zeros(2), np.full(2, rows))
    state = State(phase, rows, (), None, {}, {}, {}, np.zeros(2), np.zeros(2), 5.0, units)
    return phase.next(state, federate({f"c{c}": np.eye(2) for c in range(clients)}))


def test_phases_end_after_their_rounds():
    one = (candidate("gaussians", 3),)
    assert after(Settle(one, SETTLE_ROUNDS - 1)).phase == Settle(one, SETTLE_ROUNDS - 1)
    assert after(Settle(one, SETTLE_ROUNDS)).phase == Done(one)
    assert after(Refit(one, REFIT_ROUNDS)).phase == Done(one)


def test_gaussians_are_final_before_a_copy_without_held_out_rows_is_compared():
    worse, better, topics = (
        candidate("gaussians", 4, bic=90.0),
        candidate("gaussians", 3, bic=80.0),
        candidate("topics", 2),
    )
    phase = after(Compare((worse, better, topics), SETTLE_ROUNDS)).phase
    assert phase.final_gaussians == (better,)
    copy = phase.candidates[0]
    assert (copy.id, copy.validated, copy.answer_key) == ("spherical-3-validated", True, better.answer_key)
    assert phase.candidates[1:] == (topics,)
    assert result(phase) == better  # it saw all rows


@pytest.mark.parametrize(
    ("n_gaussians", "n_topics", "held_out", "clients", "rows", "structure"),
    [
        (5, 3, -1.8, 8, 1000, "topics"),  # better on held-out rows
        (5, 3, -3.0, 8, 1000, "gaussians"),  # worse
        (2, 3, -3.0, 8, 1000, "topics"),  # worse, but clients show more clusters than there are Gaussians
        (5, 3, -1.0, 5, 1000, "gaussians"),  # fewer than two clients per topic
        (3, 3, -1.8, 8, 1000, "gaussians"),  # as many topics as Gaussians: better by less than a standard error
        (3, 3, -1.0, 8, 1000, "topics"),  # better by more
        (5, 3, -1.2, 8, 200, "gaussians"),  # few rows: better by less than two standard errors
        (5, 3, -0.9, 8, 200, "topics"),  # better by more
    ],
)
def test_the_structure_is_chosen_by_held_out_rows(n_gaussians, n_topics, held_out, clients, rows, structure):
    final = candidate("gaussians", n_gaussians)
    copy = final._replace(id=f"{final.id}-validated", validated=True, held_out=-2.0)
    topics = candidate("topics", n_topics, held_out=held_out, held_out_stderr=0.5, validated=True)
    state = after(Compare((copy, topics), COMPARE_ROUNDS, (final,)), clients, rows)
    assert state.scores == {"gaussians": -2.0, "topics": held_out}
    refit = Refit((topics._replace(validated=False),))
    assert state.phase == (refit if structure == "topics" else Done((final,)))


def moved(structure, k, **scores):
    """A candidate whose Gaussians have means of their own, so that pairs can be merged."""
    c = candidate(structure, k, **scores)
    params = c.proposal.params._replace(means=3.0 * np.arange(2.0 * k).reshape(k, 2))
    return c._replace(proposal=c.proposal._replace(params=params))


def refined(candidates, round, evaluated=()):
    """Ids of the candidates after a refinement of the search whose merge paths reach no other size."""
    merges = Merges(0, np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    none = np.zeros((0, 2))
    paths = tuple(MergePath(shape, none[:, 0], none, none, np.ones(3), merges) for shape in ("spherical", "diag"))
    state = State(None, 100.0, paths, None, dict.fromkeys(evaluated), {}, {}, np.zeros(2), np.zeros(2), 5.0, UNITS)
    phase = Search(tuple(candidates), round).next(state, None).phase
    return {c.id for c in phase.candidates}


def test_a_search_goes_on_from_the_runner_up_when_the_best_one_has_nothing_new():
    """Before, it stood still then: 23 clusters of 15."""
    best, other = moved("gaussians", 5, bic=10.0), moved("gaussians", 4, bic=50.0)
    of_best = ["spherical-5+0", "spherical-5+1", "spherical-5-1", "spherical-5-1-1", "spherical-5-1-1-1"]
    found = refined([best, other], REFINE_ROUNDS[4], evaluated=of_best)
    assert found == {best.id, other.id} | {f"spherical-4{end}" for end in ("+0", "+1", "-1", "-1-1", "-1-1-1")}


def test_covariance_types_compete_only_later_in_a_search():
    spherical = [moved("gaussians", k, bic=10.0 * k) for k in (1, 2, 3)]
    diag = [
        c._replace(id=f"diag-{c.size}", shape="diag", bic=1e3 + c.bic)._replace(
            proposal=c.proposal._replace(params=c.proposal.params._replace(covs=np.ones((c.size, 2))))
        )
        for c in spherical
    ]
    atoms = candidate("topics", 2, bic=1e9)
    early, late = (refined([*spherical, *diag, atoms], REFINE_ROUNDS[i]) for i in (0, 4))
    assert {"spherical-1", "spherical-2", "diag-1", "diag-2", "topics-2"} <= early
    assert {"spherical-3", "diag-3"}.isdisjoint(early)
    assert {"spherical-1", "spherical-2", "topics-2"} <= late
    assert not any(id.startswith("diag") for id in late)


def test_covariance_types_compete_only_later_where_weights_are_shared():
    spherical = [candidate("shared", k, bic=10.0 * k) for k in (1, 2, 3)]
    diag = [c._replace(id=f"diag-{c.size}", shape="diag", bic=1e3 + c.bic) for c in spherical]
    early, late = (after(Shared((*spherical, *diag), {}, r)).phase for r in (REFINE_ROUNDS[0], REFINE_ROUNDS[3]))
    assert [c.id for c in early.candidates] == ["spherical-1", "spherical-2", "diag-1", "diag-2"]
    assert [c.id for c in late.candidates] == ["spherical-1", "spherical-2"]
