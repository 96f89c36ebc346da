"""The layer `Private`: noise once or at every client, charges that add up, and refusals that cost nothing."""

import numpy as np
import pytest

import unpooled as up
from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter, DataWarning, UnpooledError
from unpooled.federation import find_private
from unpooled.layers.meter import Metered
from unpooled.layers.private import Private, look, wanted
from unpooled.models.private.frame import Bounded, column_moments
from unpooled.privacy.accountant import BudgetSpent
from unpooled.privacy.noise import sigma_of

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(600, 2))
DATA = {f"c{i}": X[i::4] for i in range(4)}
BOUNDS = np.array([[-1.0, 1.0], [-1.0, 1.0]])
SECRET = b"s" * 32


def private(data=DATA, wrap=lambda fed: fed, **changed):
    how = {"epsilon": 2.0, "delta": 1e-6, "bounds": BOUNDS, "secret": SECRET} | changed
    return Private(wrap(up.federate(data, mode="one by one")), **how)


def ask(fed, mu2=0.01, bounds=BOUNDS):
    return look(fed, column_moments, Bounded(bounds), mu2)


EXACT = up.federate(DATA).sum(column_moments, Bounded(BOUNDS))


@pytest.mark.parametrize("masked", [True, False])
def test_noise_has_the_size_that_the_look_says(masked):
    errors = []
    for i in range(150):
        fed = private(masked=masked, secret=i.to_bytes(32, "big"))
        total, sigma = ask(fed)
        errors.extend(np.concatenate([(total.first - EXACT.first), (total.second - EXACT.second)]) / sigma)
    assert sigma == pytest.approx(sigma_of(0.01) * (1 if masked else 2))
    assert np.std(errors) == pytest.approx(1.0, abs=0.12)
    assert abs(np.mean(errors)) < 0.2


@pytest.mark.parametrize("masked", [True, False])
def test_the_same_request_has_the_same_noise_and_costs_nothing(masked):
    fed = private(masked=masked)
    answers = [ask(fed).total.first for _ in range(50)]
    assert all((a == answers[0]).all() for a in answers)
    assert fed.accountant.spent.looks == 1
    ask(fed, mu2=0.011)
    assert fed.accountant.spent.looks == 2


@pytest.mark.parametrize("masked", [True, False])
def test_changed_rows_have_fresh_noise_and_cost_again(masked):
    fed = private(masked=masked)
    before = ask(fed).total.first
    fed.here()[0].x[0] += 1e-3
    after = ask(fed).total.first
    fed.here()[0].x[0] -= 1e-3
    assert np.abs(after - before).max() > 0.01
    assert fed.accountant.spent.looks == 2


def test_the_split_into_clients_does_not_matter_where_noise_is_added_once():
    one, many = ask(private({"all": X})).total, ask(private()).total
    np.testing.assert_allclose(one.first, many.first, atol=30)  # other noise, since sums differ in the last digits
    exact = up.federate({"all": X}).sum(column_moments, Bounded(BOUNDS))
    np.testing.assert_allclose(exact.second, EXACT.second, rtol=1e-14)


def test_the_budget_ends():
    fed = private(epsilon=1.0)
    half = fed.accountant.mu2_total / 2
    ask(fed, half)
    ask(fed, half, BOUNDS * 2)
    assert fed.accountant.spent.epsilon == pytest.approx(1.0, abs=1e-5)
    asked = len(fed.journal.exchanges)
    with pytest.raises(BudgetSpent, match="and 1 is allowed: ask for less, or raise epsilon="):
        ask(fed, 1e-3, BOUNDS * 3)
    assert len(fed.journal.exchanges) == asked, "a refused look must not reach the rows"
    assert str(fed.accountant) == "epsilon 1.00 of 1.0 spent (delta 1e-06), 2 looks"
    ask(fed, half)  # known already: costs nothing


def test_a_checkpoint_brings_charges_back_and_none_is_forgotten():
    fed = private()
    ask(fed)
    saved = fed.snapshot()
    other = private()
    other.restore(saved)
    assert other.accountant.charges == fed.accountant.charges
    fed.restore({})
    assert fed.accountant.spent.looks == 1


@client("tests.unbounded", SUM)
def unbounded(nothing: None, client: Client) -> Float[Array, "d"]:
    return client.x.sum(-2)


def test_what_is_not_declared_is_refused_and_not_charged():
    fed = private()
    with pytest.raises(BadParameter, match="'unbounded' does not bound what one row can change"):
        fed.sum(unbounded, None)
    with pytest.raises(BadParameter, match="without saying what it may cost"):
        fed.sum(column_moments, Bounded(BOUNDS))
    with pytest.raises(BadParameter, match="gathers single answers"):
        fed.gather(unbounded, None)
    with pytest.raises(BadParameter, match="changes what clients keep"):
        fed.tell(unbounded, None)
    assert fed.accountant.spent.looks == 0
    assert not fed.journal.exchanges


def test_an_exact_answer_does_not_leave_where_nobody_adds_noise():
    fed = up.federate(DATA)
    with pytest.raises(UnpooledError, match="put Private"):
        fed.sum(column_moments.then(wanted, mu2=0.1), Bounded(BOUNDS))
    with pytest.raises(BadParameter, match=r"needs a privacy budget: fit it to Private"):
        ask(fed)


def test_a_look_passes_through_other_layers():
    inside, outside = private(wrap=Metered), Metered(private())
    assert find_private(outside) is not None
    assert (ask(inside).total.first == ask(outside).total.first).all()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"epsilon": 0}, "epsilon=0 must be above 0"),
        ({"epsilon": -1.0}, r"epsilon=-1.0 must be above 0"),
        ({"epsilon_per_fit": 0}, "epsilon=0 must be above 0"),
        ({"delta": 0}, "delta=0 must be above 0"),
        ({"delta": 1 / 600}, r"delta=.* must be below 1 / rows, and there are at least 600 rows"),
        ({"delta": 0.5}, "must be below 1 / rows"),
        ({"bounds": None}, "bounds= is missing"),
        ({"bounds": {"0": (1, -1), "1": (-1, 1)}}, "reversed"),
        ({"bounds": {"0": (1, 1), "1": (-1, 1)}}, "equal"),
        ({"bounds": {"0": (-1, 1)}}, "no entry for column '1'"),
        ({"masked": "yes"}, "masked"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(changed, sentence):
    with pytest.raises(BadParameter, match=sentence) as caught:
        private(**changed)
    assert "\n" not in str(caught.value)


def test_weights_above_one_are_refused():
    fed = up.federate({"a": X}, sample_weight={"a": np.full(600, 3.0)})
    with pytest.raises(
        BadData, match="client 'a' has row weights up to 3, and a private sum counts a row once at most"
    ):
        Private(fed, epsilon=1, delta=1e-6, bounds=BOUNDS)


def test_rows_outside_of_the_bounds_are_moved_and_their_holder_is_warned():
    with pytest.warns(DataWarning, match=r"% of column 0 lies outside of its bounds"):
        fed = private(bounds=np.array([[-0.5, 0.5], [-1.0, 1.0]]))
    total, _ = look(fed, column_moments, Bounded(fed.bounds), fed.accountant.mu2_total)
    assert np.isfinite(total.first).all()


def test_named_columns_and_the_target_have_bounds():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": X[:, 0], "chol": X[:, 1], "out": X[:, 0]})
    fed = up.federate({"a": frame}, label="out")
    found = Private(fed, epsilon=1, delta=1e-6, bounds={"chol": (-1, 1), "age": (-2, 2), "y": (-3, 3)})
    np.testing.assert_array_equal(found.bounds, [[-2, 2], [-1, 1]])
    np.testing.assert_array_equal(found.target_bounds, [-3, 3])
