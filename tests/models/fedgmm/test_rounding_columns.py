"""FedGMM where a column varies by rounding errors alone."""

import numpy as np

import unpooled as up


def test_a_column_that_varies_by_rounding_errors_alone_is_fitted():
    rng = np.random.default_rng(0)
    data = {}
    for n in (60, 20, 5):
        x = rng.normal(size=(n, 3))
        noise = 1e-11 * rng.integers(-2, 3, size=(n, 2))
        data[f"site {n}"] = np.column_stack([x, 2e4 + noise]), (x[:, 0] > 0).astype(int)
    model = up.FedGMM(random_state=0).fit(data)
    for name, (x, _) in data.items():
        np.testing.assert_allclose(model.predict_proba(x, client=name).sum(1), 1)
