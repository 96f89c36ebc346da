"""The number of concepts and who has which, found by sums before any model is trained."""

import numpy as np
import pytest

import unpooled as up
from unpooled.datasets import shift
from unpooled.errors import BadParameter, DataWarning
from unpooled.learners import Trainer, as_option
from unpooled.models.fedconceptem import discovery


def blobs(seed, n=6000, classes=6, d=8):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return np.eye(classes, d)[y] * 3 + rng.normal(size=(n, d)), y


def made(concepts, alpha, seed):
    return shift.build(*blobs(seed), 24, rows=90, alpha=alpha, concepts=concepts, corrupted=0.0, random_state=seed)


def found(case, seed):
    fed = up.federate(case.train)
    fed.journal.begin(seed)
    labels = sorted({int(label) for _, y in case.train.values() for label in y})
    ids = discovery.discover(fed, as_option(Trainer("linear", 8, labels)), np.random.default_rng(seed))
    return len(ids), {c.name: int(np.asarray(c.state["omega"])[ids].argmax()) for c in fed.here()}, fed


@pytest.mark.parametrize("alpha", [np.inf, 1.0])
@pytest.mark.parametrize("concepts", [1, 2, 3, 5])
def test_it_finds_the_concepts_whatever_the_label_shares(concepts, alpha):
    for seed in (301, 302):
        case = made(concepts, alpha, seed)
        k, concept, _ = found(case, seed)
        assert k == concepts
        pairs = {(case.concepts[name], own) for name, own in concept.items()}
        assert len(pairs) == concepts or concepts == 1


def test_it_finds_concepts_that_agree_on_two_thirds_of_the_labels():
    for seed in (401, 402):
        case = made(1, 1.0, seed)
        maps = np.tile(np.arange(6), (3, 1))
        maps[1, :2], maps[2, 2:4] = (1, 0), (3, 2)
        concepts = {name: i % 3 for i, name in enumerate(case.train)}
        train = {name: (x, maps[concepts[name]][y]) for name, (x, y) in case.train.items()}
        k, concept, _ = found(case._replace(train=train), seed)
        assert k == 3
        assert len({(concepts[name], own) for name, own in concept.items()}) == 3


def test_only_sums_and_tells_are_asked():
    _, _, fed = found(made(2, 1.0, 7), 7)
    assert {e.kind for e in fed.journal.exchanges} == {"sum", "tell"}


def test_where_every_client_labels_its_own_way_there_is_one_model_and_the_clients_choose():
    rng = np.random.default_rng(0)
    x, y = blobs(0, 8 * 150)
    data = {}
    for i in range(8):
        own = slice(150 * i, 150 * (i + 1))
        data[f"c{i}"] = (x[own], rng.permutation(6)[y[own]])
    model = up.FedConceptEM(lr=0.1, max_iter=10, random_state=0).fit(data)
    assert model.n_concepts_ == 1
    assert min(model.gain_.values()) > -0.05


def test_one_client_is_one_concept():
    x, y = blobs(0, 100)
    assert up.FedConceptEM(lr=0.1, max_iter=2, random_state=0).fit({"only": (x, y)}).n_concepts_ == 1


@pytest.mark.parametrize("batch_size", [10_000, 15])
def test_a_run_with_one_step_or_six_a_round_keeps_them(batch_size):
    case = made(3, 1.0, 11)
    model = up.FedConceptEM(lr=0.1, batch_size=batch_size, max_iter=20, random_state=0).fit(case.train)
    assert model.n_concepts_ == 3
    assert len({(case.concepts[n], c) for n, c in model.concepts_.items()}) == 3


def test_newcomers_without_labels_join_by_their_inputs_where_these_differ():
    rng = np.random.default_rng(0)

    def inputs(far, n=120):
        return rng.normal(size=(n, 3)) + np.array([0.0, 0.0, 4.0 * far])

    data = {}
    for i in range(8):
        x = inputs(i % 2)
        data[f"c{i}"] = (x, ((x[:, 0] > 0) ^ (i % 2 == 1)).astype(int))
    model = up.FedConceptEM(random_state=0).fit(data)
    assert model.n_concepts_ == 2
    new = model.adapt(inputs(1, 60))
    assert new.own_["omega"].argmax() == model.concepts_["c1"]
    assert new.confidence_ > 0.9
    assert model.watch(inputs(1, 60), client="c0")["moved"]
    assert not model.watch(inputs(0, 60), client="c0")["moved"]


def test_newcomers_whose_inputs_tell_nothing_get_the_shared_model_and_a_warning():
    case = made(2, np.inf, 21)
    model = up.FedConceptEM(random_state=0).fit(case.train)
    with pytest.warns(DataWarning, match="inputs alone leave the concept open"):
        new = model.adapt(next(iter(case.test.values()))[0])
    np.testing.assert_allclose(new.own_["omega"], model.weights_)


@pytest.mark.parametrize("ids", [[10**12], [-1], []])
def test_places_of_probes_that_cannot_be_are_refused_before_memory_is_taken(ids):
    case = made(1, np.inf, 301)
    name, (x, y) = next(iter(case.train.items()))
    fed = up.federate({name: (x, y)})
    down = discovery.Probes(np.zeros(8), np.eye(8)[:, :2], np.zeros((1, 5, 3)))
    options = {"trainer": as_option(Trainer("linear", 8, list(range(6)))), "ids": ids, "move": True}
    with pytest.raises(BadParameter, match="places of probes"):
        discovery.probes.using(**options)(down, fed.here()[0])


def test_adaptive_takes_a_given_number_as_the_most_there_may_be():
    train = made(3, np.inf, 303).train
    settings = {"adaptive": True, "max_iter": 3, "lr": 0.1, "random_state": 0}
    assert up.FedConceptEM(6, **settings).fit(train).n_concepts_ == 3
    assert up.FedConceptEM(2, **settings).fit(train).n_concepts_ == 2
    assert up.FedConceptEM(100, **settings).fit(train).n_concepts_ == 3  # more than there are clients


def test_extra_models_are_refused_where_the_number_is_searched_for():
    with pytest.raises(BadParameter, match=r"extra=2 .* leave it at 0 with adaptive=True"):
        up.FedConceptEM(3, adaptive=True, extra=2).fit(made(1, np.inf, 1).train)
