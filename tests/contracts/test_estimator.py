"""The laws of an estimator: exact, invariant, monotone, private, durable, savable."""

from functools import cache

import numpy as np
import pytest
from estimators import ESTIMATORS, Case
from sklearn.base import clone

import unpooled as up
from unpooled import store, tree
from unpooled.client import STEP, Client, client
from unpooled.data.federate import federate
from unpooled.federation import Layer
from unpooled.tree import Tree

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def cases(wanted):
    """A test for each case that is wanted."""
    found = {name: case for name, case in ESTIMATORS.items() if wanted(case)}
    return pytest.mark.parametrize("case", found.values(), ids=found)


every_case = cases(lambda case: True)
every_model = cases(lambda case: not case.variant)


@cache
def reference(case: Case):
    """The case fitted once for all laws that compare with it; nobody may change it."""
    return case.make().fit(case.data())


def learned(estimator) -> Tree:
    """All that was learned, as one tree; the history has clock times and is left out."""
    fitted = {
        k: v for k, v in vars(estimator).items() if k.endswith("_") and k not in ("history_", "feature_names_in_")
    }
    return store.loads(store.dumps({k: v for k, v in fitted.items() if not callable(v)}))


def assert_same(a, b):
    assert store.dumps(learned(a)) == store.dumps(learned(b))


def assert_close(a, b, rtol):
    for (path, x), y in zip(tree.iter_paths(learned(a)), tree.leaves(learned(b)), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-9, err_msg=path)


def resumed(case, fed, at: int):
    """The fit over `fed` that was cut after round `at`, or its last, went through a file, and was continued elsewhere."""
    moments = case.make().rounds(fed)
    for cut in moments:
        if len(cut.history) == at:
            break
    moments.close()
    saved = store.loads(store.dumps(cut))
    other = case.make()
    for _ in other.rounds(federate(case.data()), saved):
        pass
    return other


def joined(parts):
    """The rows of all parts, or rows with their labels."""
    return tuple(map(np.concatenate, zip(*parts))) if isinstance(parts[0], tuple) else np.concatenate(parts)


def split(rows, parts: int) -> list:
    if isinstance(rows, tuple):
        pieces = list(zip(*(np.array_split(a, parts) for a in rows)))
        return [piece for piece in pieces if len(piece[0])]
    return [part for part in np.array_split(rows, parts) if len(part)]


def start_of(case, fed):
    return next(iter(case.make().rounds(fed)))


def from_start(case, fed, start):
    estimator = case.make()
    for _ in estimator.rounds(fed, start._replace(clients={})):
        pass
    return estimator


@every_case
def test_a_clone_with_the_same_seed_fits_to_the_same_bits_and_parameters_stay(case):
    estimator = clone(case.make())
    before = estimator.get_params()
    estimator.fit(case.data())
    assert estimator.get_params() == before
    assert_same(estimator, reference(case))


@every_model
@pytest.mark.parametrize("mode", ["stacked", "one by one"])
def test_how_clients_run_does_not_matter(case, mode):
    there = case.make().fit(federate(case.data(), mode=mode, threads=1))
    assert_close(reference(case), there, rtol=1e-7)


@cases(lambda case: case.exact)
def test_the_split_into_clients_does_not_matter(case):
    data = case.data()
    start = start_of(case, federate(data))
    pooled = {"all": joined(list(data.values()))}
    many = {f"{name}-{i}": part for name, rows in data.items() for i, part in enumerate(split(rows, 5))}
    here = from_start(case, federate(data), start)
    for other in (pooled, many, dict(reversed(data.items()))):
        alone = federate(other, mode="one by one")  # nothing is merged that clients would have to add
        assert_close(from_start(case, alone, start), here, rtol=1e-8)


@cases(lambda case: case.monotone)
def test_the_likelihood_rises_every_round(case):
    loglik = np.array([row["loglik"] for row in reference(case).history_])
    assert len(loglik) > 3
    assert (np.diff(loglik) > -1e-10 * np.abs(loglik[1:])).all()


@every_case
def test_a_run_cut_in_the_middle_ends_with_the_same_bits(case):
    assert_same(resumed(case, federate(case.data()), 7), reference(case))


@every_model
@pytest.mark.parametrize("at", [0, 1])
def test_a_run_cut_at_its_beginning_ends_with_the_same_bits(case, at):
    assert_same(resumed(case, federate(case.data()), at), reference(case))


@every_model
def test_saved_and_loaded_it_is_the_same(case, tmp_path):
    estimator = reference(case)
    loaded = up.load(estimator.save(tmp_path / "model"))
    assert_same(loaded, estimator)
    assert loaded.get_params() == estimator.get_params()
    assert len(loaded.history_) == len(estimator.history_)


@every_model
def test_history_says_what_crossed(case):
    for i, row in enumerate(reference(case).history_, 1):
        assert row["round"] == i
        assert row["clients"] >= 1
        assert row["bytes_up"] > 0


SEEN: list[Tree] = []


@client("estimator.overhear", STEP, batched=False)
def overhear(up: Tree, client: Client) -> Tree:
    SEEN.append(tree.map(np.array, up))
    return up


class Overheard(Layer):
    def wrap(self, ask):
        return ask.then(overhear)


@every_model
def test_private_state_never_leaves(case):
    SEEN.clear()
    fed = Overheard(federate(case.data(), threads=1))
    case.make().fit(fed)
    private = {
        a.tobytes() for state in fed.snapshot().values() for a in map(np.asarray, tree.leaves(state)) if a.size > 1
    }
    sent = {np.asarray(a).tobytes() for up in SEEN for a in tree.leaves(up)}
    assert SEEN
    assert not private & sent
