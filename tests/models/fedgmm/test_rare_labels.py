"""Newton steps where a label is rare: they step too far, and must not go on doing so."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

import unpooled as up


def rare(seed, n=700):
    """A label of 4 % of the rows, and indicators of levels of which some are rare and nearly always have it."""
    rng = np.random.default_rng(seed)
    level = rng.choice(6, n, p=[0.5, 0.3, 0.12, 0.05, 0.02, 0.01])
    x = np.column_stack([level == i for i in range(1, 6)] + [rng.poisson(0.1, n), rng.normal(size=n)]).astype(float)
    score = x @ [0.0, 0.0, 1.0, 2.5, 5.0, 1.5, 0.5] - 4.5
    return x, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


@pytest.mark.parametrize("seed", range(6))
def test_a_single_learner_ends_at_scikit_learns(seed):
    x, y = rare(seed)
    model = up.FedGMM(3, 1, starts=("tied",), max_iter=40, tol=0, personalize="none", random_state=0)
    model.fit(x, y, by=np.arange(len(x)) % 4)
    scale = x.std(0)  # the penalty of a fit without texts is of standardised columns
    theirs = LogisticRegression(tol=1e-9, max_iter=3000).fit(x / scale, y)
    assert_allclose(model.predict_proba(x)[:, 1], theirs.predict_proba(x / scale)[:, 1], atol=0.01)
