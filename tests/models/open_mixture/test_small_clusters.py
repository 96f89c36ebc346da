"""A row that lies apart cannot be found from what a client describes: components and centres add up to the same rows."""

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.models.open_mixture.questions import describe


@pytest.mark.parametrize("n", [18, 24, 40, 60])
def test_components_and_centres_leave_out_no_rows(n):
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(n, 3))
        x[0] = [4.0, -4.0, 4.0]
        client = Client("a", x)
        client.rng = np.random.default_rng(seed)
        sent = describe.using(max_local=5, max_centres=20, min_count=5.0)(None, client)
        assert min(sent.n.min(), sent.centre_n.min()) >= 5
        for counts, means in ((sent.n, sent.mean), (sent.centre_n, sent.centre)):
            assert counts.sum() == pytest.approx(n)
            np.testing.assert_allclose(counts @ means, x.sum(0), atol=1e-9)
