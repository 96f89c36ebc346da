"""FedGEM: K is inferred where clusters are apart, and estimates are drawn together, never out of their balls."""

import numpy as np
import pytest

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadParameter, TooFewClients
from unpooled.federation import Layer
from unpooled.metrics.clustering import score
from unpooled.models.fedgem import estimator as fedgem
from unpooled.models.fedgem.estimator import Balls, Guide, drawn_together, joined, local_step, silhouettes, stack

CENTRES = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])


def clients(seed=0, count=12, rows=60):
    rng = np.random.default_rng(seed)
    y = {f"c{c:02}": rng.choice(rng.choice(5, 3, replace=False), rows) for c in range(count)}
    return {n: CENTRES[z] + rng.normal(size=(rows, 3)) for n, z in y.items()}, y


@pytest.mark.parametrize("radius", ["exact", "conservative"])
def test_the_number_of_clusters_is_inferred(radius):
    x, y = clients()
    told = {n: len(np.unique(v)) for n, v in y.items()}
    model = up.FedGEM(told, radius=radius, random_state=0).fit(x)
    got = score(y, model.labels_)
    assert got.k == model.n_components_ == 5
    assert got.pooled_ari > 0.95
    for labels in model.super_clusters_.values():
        assert len(np.unique(labels)) == len(labels)  # at most one component a client


def test_local_numbers_can_be_found_too():
    x, y = clients()
    model = up.FedGEM(random_state=0).fit(x)
    assert {n: len(v) for n, v in model.super_clusters_.items()} == {n: len(np.unique(v)) for n, v in y.items()}


def test_a_step_is_the_m_step_and_its_ball_reaches_back():
    rng = np.random.default_rng(1)
    x, before = CENTRES[rng.choice(2, 80)] + rng.normal(size=(80, 3)), CENTRES[:2] + 0.5
    client = Client("a", x)
    client.state["weights"] = np.full(2, 0.5)
    got = local_step.using(radius="exact", steps=1, min_count=0, noise=0.0)(
        Guide(np.asarray(1.0), {"a": before}), client
    )
    logits = -0.5 * ((x[:, None] - before) ** 2).sum(-1)
    r = np.exp(logits - logits.max(1, keepdims=True))
    r /= r.sum(1, keepdims=True)
    np.testing.assert_allclose(got.centre, r.T @ x / r.sum(0)[:, None], rtol=1e-10)
    np.testing.assert_allclose(got.radius, np.linalg.norm(got.centre - before, axis=1))
    np.testing.assert_allclose(client.state["weights"], r.mean(0))


def test_estimates_stay_in_their_balls():
    rng = np.random.default_rng(2)
    found = {f"c{c}": Balls(rng.normal(size=(3, 2)), rng.uniform(0, 0.6, 3), np.ones(3)) for c in range(15)}
    everything = stack(found)
    moved = np.linalg.norm(drawn_together(everything) - everything.centre, axis=1)
    assert np.all(moved <= everything.radius + 1e-12)
    assert (moved > 0).any()


def test_balls_that_do_not_meet_stay_where_they_are():
    found = {
        "a": Balls(np.zeros((1, 2)), np.array([0.1]), np.ones(1)),
        "b": Balls(np.ones((1, 2)), np.array([0.1]), np.ones(1)),
    }
    everything = stack(found)
    assert np.array_equal(drawn_together(everything), everything.centre)


def test_super_clusters_centres_weigh_by_counts():
    found = {
        "a": Balls(np.zeros((1, 2)), np.ones(1), np.array([30.0])),
        "b": Balls(np.ones((1, 2)), np.ones(1), np.array([10.0])),
    }
    np.testing.assert_allclose(joined(stack(found), np.array([0, 0])), [[0.25, 0.25]], atol=1e-6)


def test_silhouette_prefers_the_true_centres():
    x, _ = clients()
    pooled = Client("all", np.concatenate(list(x.values())))
    split = np.concatenate([CENTRES, CENTRES[:1] + 0.3])
    got = silhouettes(fedgem.CentreSets((CENTRES, split, CENTRES[:3])), pooled)
    assert int(np.argmax(got.total)) == 0


@pytest.mark.parametrize("final_radius", [0.0, 1e6])
def test_the_final_radius_rules_the_number(final_radius):
    x, y = clients(count=6)
    told = {n: len(np.unique(v)) for n, v in y.items()}
    model = up.FedGEM(told, final_radius=final_radius, max_iter=2, random_state=0).fit(x)
    if final_radius == 0:
        assert model.n_components_ == sum(told.values())
    else:  # joined as far as one component a client allows
        assert max(told.values()) <= model.n_components_ < 5


def test_the_unit_of_measurement_does_not_matter():
    x, y = clients(count=6)
    told = {n: len(np.unique(v)) for n, v in y.items()}
    metres, micrometres = (up.FedGEM(told, random_state=0).fit({n: s * v for n, v in x.items()}) for s in (1.0, 1e6))
    assert metres.n_components_ == micrometres.n_components_
    assert all(np.array_equal(metres.labels_[n], micrometres.labels_[n]) for n in x)


def test_a_lone_component_has_the_radius_that_is_usual_whatever_the_unit():
    """Its client has no distance between own centres to go by."""
    pair, lone = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[9.0, 9.0]])
    found = {"a": Balls(pair, np.zeros(2), np.full(2, 8.0)), "b": Balls(lone, np.zeros(1), np.full(1, 25.0))}
    np.testing.assert_allclose(fedgem.final_radius(stack(found), 2.0), [2 * 5 * 2 / 4, 2 * 5 * 2 / 4, 2 * 5 / 5])
    rng = np.random.default_rng(5)
    x = {f"c{c}": CENTRES[c % 5] + rng.normal(size=(40, 3)) for c in range(15)}  # all clients hold one cluster
    for unit in (1.0, 1e-6):
        assert up.FedGEM(1, random_state=0).fit({n: unit * v for n, v in x.items()}).n_components_ == 5


def test_nothing_that_stands_for_few_rows_leaves():
    """A client has four rows of a cluster that others have too: they are counted with its other rows, or their centre stays at home."""
    x, _ = clients(count=6)
    x["few"] = np.concatenate([x["c00"][:30], 60.0 + np.random.default_rng(8).normal(size=(4, 3))])
    fed = Watched(federate(x))
    up.FedGEM(4, random_state=0).fit(fed)
    counts = np.concatenate([b.n for answers in fed.seen for b in answers.values() if isinstance(b, Balls)])
    assert counts.min() >= 5
    free = Watched(federate(x))
    up.FedGEM(4, min_count=0, random_state=0).fit(free)
    assert min(b.n.min() for answers in free.seen for b in answers.values() if isinstance(b, Balls)) < 5


def test_a_client_with_too_few_rows_is_left_out_by_name():
    x, _ = clients(count=6)
    model = up.FedGEM(3, random_state=0).fit(x | {"tiny": x["c00"][:3]})
    assert "tiny" not in model.labels_
    assert set(x) == set(model.labels_)
    with pytest.raises(TooFewClients, match="client 'b' has fewer than min_count=5 rows"):
        up.FedGEM(2, random_state=0).fit({"a": np.eye(3), "b": np.eye(3)})


def test_noise_moves_what_leaves():
    x, y = clients()
    told = {n: len(np.unique(v)) for n, v in y.items()}
    plain, noisy = (up.FedGEM(told, noise=s, max_iter=3, random_state=0).fit(x) for s in (0.0, 1.0))
    moved = [np.abs(plain.local_centers_[n] - noisy.local_centers_[n]).max() for n in x]
    assert 0 < max(moved) < 1.5
    assert score(y, noisy.labels_).client_ari > 0.95


class Watched(Layer):
    """Keeps what a server sees in each GATHER."""

    def __init__(self, inner):
        super().__init__(inner)
        self.seen = []

    def gather(self, ask, down):
        self.seen.append(super().gather(ask, down))
        return self.seen[-1]


def test_one_client_and_few_rows():
    x = CENTRES[[0, 4]] + 0.1
    model = up.FedGEM(3, random_state=0).fit({"a": x})
    assert model.n_components_ == 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"radius": "wide"}, "radius='wide' is not known"),
        ({"n_components": 0}, "n_components=0 must be at least 1"),
        ({"n_components": "many"}, "give a number, a mapping or 'auto'"),
        ({"final_radius": -1}, "final_radius=-1 must be"),
        ({"min_count": -1}, "min_count=-1 must be at least 0"),
    ],
)
def test_wrong_parameters(wrong, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.FedGEM(**wrong).fit({"a": np.eye(3), "b": np.eye(3)})
