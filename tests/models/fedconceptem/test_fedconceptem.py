"""FedConceptEM against its formulas written out, against peers on small data, and everything it refuses."""

import numpy as np
import pytest

import unpooled as up
from unpooled.baselines.fedavg import FedAvg
from unpooled.baselines.fedem import FedEM
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.datasets import shift
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.learners import IDLE, Trainer
from unpooled.models.fedconceptem import rounds
from unpooled.models.fedconceptem.label_tables import label_shares
from unpooled.models.fedconceptem.removal import RunningSums, odd_models, unused_models
from unpooled.report import concepts as diagnosis

CLASSES, D = 4, 6
PRINTED = {"e_steps": 1, "full_steps": False, "label_memory": 0.0}


def blobs(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    return np.eye(CLASSES, D)[y] * 3 + rng.normal(size=(n, D)), y


def made(seed=0, clients=24, concepts=2, alpha=1.0, **options):
    return shift.build(
        *blobs(seed=seed), clients, rows=80, alpha=alpha, concepts=concepts, random_state=seed, **options
    )


def fitted(data, n_concepts=2, **options):
    settings = {"lr": 0.3, "batch_size": 20, "max_iter": 25, "random_state": 0, "momentum": 0.5, **options}
    return up.FedConceptEM(n_concepts, **settings).fit(data)


@pytest.fixture(scope="module", name="case")
def case_():
    data = made()
    return data, fitted(data.train)


# ---- a round, written out ----


def by_hand(x, y, theta, labels, omega, lr):
    """Equations (10), (11), (13) and the label table for one client, row by row; one step over all rows."""
    k, n = len(theta), len(y)
    w = theta.reshape(k, CLASSES, D + 1)
    r, table, gradient = np.zeros((n, k)), np.zeros((k, CLASSES)), np.zeros_like(w)
    for i in range(n):
        p = np.exp(w[:, :, :-1] @ x[i] + w[:, :, -1])
        p /= p.sum(1, keepdims=True)
        weight = omega * p[:, y[i]] / labels[:, y[i]]
        r[i] = weight / weight.sum()
        for m in range(k):
            table[m, y[i]] += r[i, m]
            gradient[m] += r[i, m] * np.outer(p[m] - np.eye(CLASSES)[y[i]], np.append(x[i], 1)) / n
    return r, table, (w - lr * gradient).reshape(k, -1)


def test_a_round_is_the_papers():
    data = {f"c{i}": (x, y) for i, (x, y) in enumerate(zip(np.split(blobs(90)[0], 3), np.split(blobs(90)[1], 3)))}
    model = fitted(data, 3, lr=0.2, batch_size=1000, momentum=0.0, max_iter=0, **PRINTED)
    fed = federate(data)
    model.max_iter = 2
    moments = list(model.rounds(fed))
    theta, labels = np.asarray(moments[0].state.theta), np.full((3, CLASSES), 1 / CLASSES)
    omega = {c: np.full(3, 1 / 3) for c in data}
    for moment in moments[1:]:
        total, mass, table = 0.0, 0.0, 0.0
        for c, (x, y) in data.items():
            r, own, new = by_hand(x, y, theta, labels, omega[c], 0.2)
            omega[c] = r.mean(0)
            total, mass, table = total + r.sum(0)[:, None] * new, mass + r.sum(0), table + own
        theta, labels = total / mass[:, None], label_shares(table)
        np.testing.assert_allclose(moment.state.theta, theta, rtol=1e-10)
        np.testing.assert_allclose(moment.state.table, table, rtol=1e-10)
    for c in data:
        np.testing.assert_allclose(model.clients_[c]["omega"], omega[c], rtol=1e-10)


def test_averaging_by_clients_weighs_by_rows():
    data = made(clients=4).train
    first = fitted(data, max_iter=1, weighting="clients", batch_size=1000)
    trainer = Trainer(**first.trainer_)
    start = next(iter(up.FedConceptEM(2, lr=0.3, momentum=0.5, batch_size=1000, random_state=0).rounds(federate(data))))
    thetas = []
    for name, (x, y) in data.items():
        client = Client(name, x, y).at(0, 3)
        rows = trainer.rows(client)
        r, _ = rounds.e_steps(trainer.log_likelihood(start.state.theta, rows), np.full(2, 0.5), rows.w, 5)
        weights = rounds.row_weights(r, r.sum(0), full_steps=True)
        thetas.append(trainer.train(start.state.theta, client, rows, weights))
    np.testing.assert_allclose(first.theta_, np.mean(thetas, axis=0), rtol=1e-9)


def test_annealed_responsibilities_are_those_of_the_tempered_likelihood():
    """The log-likelihoods themselves are not tempered."""
    rng = np.random.default_rng(0)
    log_i, omega, w = rng.normal(size=(7, 3)), np.array([0.5, 0.3, 0.2]), np.ones(7)
    np.testing.assert_allclose(rounds.e_steps(log_i, omega, w, 5, 0.0)[0], np.tile(omega, (7, 1)))
    for factor in (0.0, 0.4):
        r, norm = rounds.e_steps(log_i, omega, w, 5, factor)
        joint = omega * np.exp(factor * log_i)
        np.testing.assert_allclose(r, joint / joint.sum(1, keepdims=True))
        np.testing.assert_allclose(norm, np.log(np.exp(log_i) @ omega))


def test_no_model_is_removed_while_annealing():
    model = up.FedConceptEM(1, extra=3, patience=1, settle=1.0, max_iter=12, anneal=0.75, lr=0.1, random_state=0)
    model.fit(made(clients=5).train)
    numbers = [r["n_concepts"] for r in model.history_]
    assert numbers[:9] == [4] * 9
    assert numbers[-1] < 4


def test_the_inverse_temperature_rises_and_is_one_after_annealing():
    model = up.FedConceptEM(2, max_iter=12, anneal=0.5)
    np.testing.assert_allclose([model._inverse_temperature(i) for i in range(8)], [i / 9 for i in range(6)] + [1, 1])
    assert up.FedConceptEM(2)._inverse_temperature(0) == 1


def test_a_model_of_a_few_outliers_is_removed_before_a_concept():
    """Without the last model its rows lose 10 nats per row, without the third 1.2; in total the third is missed more."""
    sums = RunningSums(np.array([49.0, 24.5, 24.5, 2.0]), np.array([100.0, 40.0, 30.0, 20.0]), 150.0)
    keep = up.FedConceptEM(3, extra=1)._models_to_keep(sums, sums.mass / sums.mass.sum())
    assert keep.tolist() == [True, True, True, False]


def test_a_small_group_stays_a_concept_only_if_the_others_contradict_its_labels():
    mass, shares = np.array([60.0, 37.0, 3.0]), np.array([0.6, 0.37, 0.03])
    for nats_per_row, odd in ((0.5, True), (4.0, False)):  # that its rows lose without it; all rows have 1.5
        sums = RunningSums(mass, np.array([200.0, 100.0, 3 * nats_per_row]), 150.0)
        assert odd_models(sums, shares).tolist() == [False, False, odd]
        assert up.FedConceptEM("auto")._models_to_keep(sums, shares).tolist() == [True, True, not odd]
    assert up.FedConceptEM(3)._models_to_keep(sums, shares).all()  # a number that was asked for


def test_unused_models_are_removed_together():
    shares = np.array([0.5, 0.004, 0.487, 0.005, 0.004])
    assert unused_models(shares, 3).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]  # the third would make it more than a hundredth
    assert unused_models(shares, 1).sum() == 1
    assert not unused_models(shares, 0).any()
    sums = RunningSums(1000 * shares, np.ones(5), 1500.0)
    assert up.FedConceptEM(2, extra=3)._models_to_keep(sums, shares).sum() == 3


def test_final_models_are_the_mean_of_the_last_rounds():
    data, model = made(clients=6), up.FedConceptEM(2, lr=0.1, max_iter=8, average=0.375, random_state=0)
    theta = [moment.state.theta for moment in model.rounds(federate(data.train))]
    np.testing.assert_allclose(model.theta_, np.mean(theta[-3:], axis=0), rtol=1e-12)
    last = up.FedConceptEM(2, lr=0.1, max_iter=8, random_state=0).fit(data.train)
    np.testing.assert_allclose(last.theta_, theta[-1], rtol=1e-12)


def test_adam_is_appendix_d1():
    rng = np.random.default_rng(0)
    client, ids = Client("c", np.zeros((5, 2))), np.arange(3)
    before, nu, a = np.full((5, 3), 1 / 3), np.zeros((5, 3)), np.zeros((5, 3))
    for _ in range(4):
        target = rng.dirichlet(np.ones(3), size=5)
        ours = rounds.adam_step(client, target, ids, 3)
        g = before - target
        nu, a = 0.1 * g + 0.9 * nu, 0.01 * g**2 + 0.99 * a
        before = np.maximum(before - (nu / 0.1) / (np.sqrt(a / 0.01) + 1e-8), 0)
        before = before / before.sum(1, keepdims=True)
        np.testing.assert_allclose(ours, before, atol=1e-9)


def test_a_client_ignores_removed_models_in_its_state():
    client = Client("c", np.zeros((5, 2)), state={"omega": np.array([0.2, 0.3, 0.5])})
    np.testing.assert_allclose(rounds.own_omega(client, np.array([0, 2])), [2 / 7, 5 / 7])
    r = np.full((5, 3), 1 / 3)
    rounds.adam_step(client, r, np.arange(3), 3)
    moved = rounds.adam_step(client, np.full((5, 2), 0.5), np.array([0, 2]), 3)
    assert moved.shape == (5, 2)
    np.testing.assert_allclose(moved.sum(1), 1)


def test_loss_without_each_model():
    log_i = np.log(np.array([[0.9, 0.1, 0.9], [0.8, 0.2, 0.8], [0.1, 0.9, 0.1]]))
    loss = rounds.loss_without_each(log_i, np.ones(3))
    assert np.abs(loss[[0, 2]]).max() < 0.01  # each has an identical twin; a few EM steps end close by
    assert loss[1] > 0.5


@pytest.mark.parametrize("adam", [False, True])
def test_clients_of_different_sizes_together_and_one_by_one(adam):
    data = {c: (x[: 30 + 7 * i], y[: 30 + 7 * i]) for i, (c, (x, y)) in enumerate(made(clients=6).train.items())}
    settings = {"max_iter": 4, "fraction": 0.7, "adam": adam, "noise": 2.0}
    alone, together = (fitted(federate(data, mode=mode), **settings) for mode in ("one by one", "stacked"))
    np.testing.assert_allclose(alone.theta_, together.theta_, rtol=1e-9, atol=1e-12)
    for c in alone.clients_:
        np.testing.assert_allclose(alone.clients_[c]["omega"], together.clients_[c]["omega"], rtol=1e-7, atol=1e-12)


def test_skipping_idle_models_changes_next_to_nothing(case, monkeypatch):
    data, short = case
    assert any(own["omega"].min() < IDLE for own in short.clients_.values())  # some are skipped
    monkeypatch.setattr(rounds, "IDLE", 0.0)
    full = fitted(data.train)
    np.testing.assert_allclose(short.theta_, full.theta_, atol=1e-3)
    assert short.concepts_ == full.concepts_


# ---- which concepts it finds ----


def accuracy(model, data):
    return np.mean(
        [(model.predict(x, client=c if c in model.clients_ else None) == y).mean() for c, (x, y) in data.items()]
    )


def test_clients_get_the_model_of_their_concept_and_peers_do_worse(case):
    data, model = case
    assert diagnosis.right(model, data.concepts) == 1.0
    settings = {"lr": 0.3, "batch_size": 20, "max_iter": 25, "random_state": 0, "momentum": 0.5}
    ours = accuracy(model, data.test)
    assert ours > accuracy(FedAvg(**settings, personalize="none").fit(data.train), data.test) + 0.2
    assert min(model.certainty_.values()) > 0.9
    assert ours > 0.85


def test_label_skew_alone_does_not_split_clients():
    """Strong label skew, one concept: FedConceptEM finds one, FedEM splits by label."""
    data = made(concepts=1, alpha=0.3, seed=3)
    model = fitted(data.train, "auto", max_iter=60)
    assert model.n_concepts_ == 1
    other = FedEM(3, lr=0.3, batch_size=20, momentum=0.5, max_iter=60, random_state=0).fit(data.train)
    assert len({int(own["pi"].argmax()) for own in other.clients_.values()}) > 1


def test_extra_models_are_removed_by_the_end():
    data = made(clients=30, concepts=3)
    model = fitted(data.train, 3, extra=2, max_iter=70)
    assert model.n_concepts_ == 3
    assert model.theta_.shape[0] == 3
    last = np.array(model.history_[-1]["shares"])
    np.testing.assert_allclose(last[model.kept_], model.weights_)
    assert np.delete(last, model.kept_).tolist() == [0, 0]
    assert diagnosis.rounds_figure(model).endswith(">removed</text></svg>")


def test_extra_models_are_removed_from_a_run_that_never_converges():
    """As under strong noise on the label tables: from three quarters on the least missed are removed one after the other,
    and unused ones together.
    """
    data = made(clients=30, concepts=3)
    model = fitted(data.train, 3, extra=3, max_iter=48, settle=0.0)
    counts = [row["n_concepts"] for row in model.history_]
    assert counts[:36] == [6] * 36
    assert sorted(counts, reverse=True) == counts
    assert len(set(counts)) > 2
    assert counts[42 - 1] == 3
    assert diagnosis.right(model, data.concepts) >= 29 / 30


def test_extra_models_are_removed_with_small_cohorts_too():
    """The shares of a cohort of six vary by far more than `settle`, which does not count as a change."""
    data = made(clients=30, concepts=3)
    model = fitted(data.train, 3, extra=3, fraction=0.2, max_iter=250)
    assert model.n_concepts_ == 3
    assert diagnosis.right(model, data.concepts) >= 29 / 30
    np.testing.assert_allclose(
        sorted(model.weights_), sorted(np.bincount(list(data.concepts.values())) / 30), atol=0.15
    )


def test_changes_are_relative_to_a_clients_last_participation():
    """With all clients in every round these are the changes of the shares and of the log-likelihood."""
    model = up.FedConceptEM(2, lr=0.3, batch_size=20, max_iter=4, random_state=0)
    states = [m.state for m in model.rounds(federate(made(clients=5).train))]
    shares, loglik = np.array([s.shares for s in states]), [0.0] + [r["loglik"] for r in model.history_]
    drift, gain = np.zeros(2), 0.0
    for i in range(1, 5):
        drift, gain = 0.7 * drift + shares[i] - shares[i - 1], 0.7 * gain + loglik[i] - loglik[i - 1]
        np.testing.assert_allclose(states[i].convergence.share_changes, drift, atol=1e-12)
        np.testing.assert_allclose(states[i].convergence.information_change, gain, atol=1e-12)


def test_label_shares_ignore_differences_that_may_be_noise():
    noise = 300.0 * np.random.default_rng(0).normal(size=(3, 10))
    alike = np.full((3, 10), 900.0) + noise
    assert np.ptp(label_shares(alike), axis=0).max() > 0.02
    assert np.ptp(label_shares(alike, 300.0**2), axis=0).max() < 1e-12  # they differ by noise only
    skewed = alike + np.outer([0, 0, 1], [8100.0] + [-800.0] * 9)
    np.testing.assert_allclose(label_shares(skewed, 300.0**2)[2], label_shares(skewed)[2], atol=0.05)
    np.testing.assert_allclose(label_shares(skewed, 1e-9), label_shares(skewed), atol=1e-12)
    np.testing.assert_allclose(label_shares(-skewed, 1e9), 0.1)  # noise only


def test_the_noise_variance_of_the_label_table():
    """Variances of the clients add; earlier rounds count less and less."""
    noise = {"a": 3.0, "b": 4.0}
    model, (x, y) = up.FedConceptEM(2, lr=0.1, max_iter=2, noise=noise, random_state=0), blobs(90)
    data = {name: (x[i::3], y[i::3]) for i, name in enumerate("abc")}
    variances = [m.state.table_variance for m in model.rounds(federate(data))]
    np.testing.assert_allclose(variances, [0.0, 25.0, 0.7**2 * 25 + 0.3**2 * 25])


def test_a_run_with_strong_noise_converges():
    data = made(clients=30, concepts=3)
    model = fitted(data.train, 3, extra=3, max_iter=60, noise=8.0)
    counts = [row["n_concepts"] for row in model.history_]
    assert counts[45 - 1] == 3  # before extra models would be removed anyway
    assert diagnosis.right(model, data.concepts) >= 29 / 30


def test_noise_hides_each_client_and_hardly_moves_the_sum(case):
    data, exact = case
    loud = fitted(data.train, noise=5.0)
    assert diagnosis.right(loud, data.concepts) == 1.0
    assert accuracy(loud, data.test) > accuracy(exact, data.test) - 0.03
    client = Client("c", np.zeros((3, 2)))
    drawn = rounds.label_noise(client, np.zeros((200, 50)), {"c": 3.0})
    assert np.std(drawn) == pytest.approx(3.0, rel=0.05)
    assert rounds.label_noise(client, np.zeros((2, 3)), {"another": 3.0}).tolist() == [[0.0] * 3] * 2


def test_a_new_client_is_assigned_its_concept_by_its_labels(case):
    data, model = case
    x, y = blobs(600, seed=9)
    for concept, m in enumerate(data.maps):
        new = model.adapt(x[:60], m[y[:60]])
        assert (new.predict(x[60:]) == m[y[60:]]).mean() > 0.9, concept
    trainer = Trainer(**model.trainer_)
    rows = trainer.rows(Client("new", x[:60], y[:60]))
    log_i = trainer.log_likelihood(model.theta_, rows) - np.log(model.label_shares_).T[rows.y]
    omega = model.adapt(x[:60], y[:60]).own_["omega"]
    again = np.exp(log_i) * omega
    np.testing.assert_allclose((again / again.sum(1, keepdims=True)).mean(0), omega, atol=1e-6)


def test_a_new_client_without_labels_gets_the_weights_of_all(case):
    _, model = case
    with pytest.warns(DataWarning, match="inputs alone leave the concept open"):
        new = model.adapt(blobs(10)[0])
    np.testing.assert_array_equal(new.own_["omega"], model.weights_)


def test_fine_tuning_makes_each_model_the_clients_own(case):
    data, model = case
    tuned = fitted(data.train, fine_tune=2)
    np.testing.assert_array_equal(tuned.theta_, model.theta_)
    assert accuracy(tuned, data.train) > accuracy(model, data.train)
    name = next(iter(data.train))
    assert not np.allclose(tuned.clients_[name]["theta"], tuned.theta_)
    assert tuned.adapt(*data.test[name]).own_["theta"].shape == tuned.theta_.shape


def test_private_weights_are_in_no_message():
    data = made(clients=6).train
    fed = federate(data)
    fitted(fed, max_iter=2)
    assert {e.question.rpartition(".")[2] for e in fed.journal.exchanges} == {
        "label_counts",
        "initialise",
        "concept_round",
        "column_sums",
        "curvature",
        "part_curvature",
        "second_moments",
        "calibration_losses",
        "judge_candidates",
        "part_moments",
        "personalise",
    }
    assert sum(e.bytes_up for e in fed.journal.exchanges if e.question.endswith("personalise")) == 0
    sent = {e.contents for e in fed.journal.exchanges if e.question.endswith("concept_round")}
    assert sent == {
        "theta (2 x 28), weight (2), mass (2), table (2 x 4), loss (2), loglik, mass_change (2), loglik_change"
    }


# ---- diagnosis ----


def test_the_report_says_who_belongs_where(case):
    data, model = case
    figures = model.report_figures()
    assert all("<svg" in body or "<ul>" in body or "<table" in body for body in figures.values())
    truth = diagnosis.shares(model, data.concepts)
    np.testing.assert_allclose(truth.sum(1), 1)
    assert sorted(truth.argmax(1).tolist()) == [0, 1]


def test_a_sentence_says_what_would_change_it():
    own = {"omega": np.array([0.1, 0.9]), "fit": np.array([-1.0, 0.5]), "votes": np.array([10.0, 30.0])}
    assert diagnosis.sentence("lab", own) == (
        "lab: concept 1, likely (90.0% of its rows); concept 0 comes next, 1.50 nats per row behind; it would change if "
        "about 10 of its 40 rows were labelled as concept 0 labels them."
    )
    alone = {"omega": np.ones(1), "fit": np.zeros(1), "votes": np.ones(1)}
    assert diagnosis.sentence("lab", alone).endswith("there is no other.")


def test_relabelling_as_many_rows_as_explain_says_changes_the_concept(case):
    data, model = case
    name = next(c for c in data.train if data.concepts[c] == 0)
    x, y = data.train[name]
    votes = model.clients_[name]["votes"]
    need = int((votes.max() - votes.min()) / 2)
    shifted = np.argsort(data.maps[0])[y]  # back to true classes
    for count, moves in ((need // 2, False), (min(2 * need, len(y)), True)):
        labels = y.copy()
        labels[:count] = data.maps[1][shifted[:count]]
        found = int(model.adapt(x, labels).own_["omega"].argmax())
        assert (found != model.concepts_[name]) == moves


# ---- bad parameters and data ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_concepts": 30}, "n_concepts=30 should be between 1 and the number of clients, 6"),
        ({"noise": -1.0}, "noise=-1.0 has a negative standard deviation"),
        ({"anneal": 1.5}, "anneal=1.5 should be a fraction of the run, between 0 and 1"),
        ({"average": -0.1}, "average=-0.1 should be a fraction of the run, between 0 and 1"),
        ({"weighting": "rows"}, "weighting='rows' is not known: use one of mass, clients"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(options, message):
    with pytest.raises(BadParameter, match=message):
        fitted(made(clients=6).train, **{"n_concepts": 2, **options})


def test_labels_outside_the_known_classes_are_refused(case):
    _, model = case
    x, y = blobs(10)
    with pytest.raises(BadData, match="label 9 is outside the known classes"):
        model.adapt(x, np.full_like(y, 9))


def test_a_warning_counts_clients_with_one_class():
    data = made(clients=6).train
    first = next(iter(data))
    data[first] = (data[first][0], np.zeros_like(data[first][1]))
    with pytest.warns(DataWarning, match="1 of 6 clients have one class only"):
        fitted(data, max_iter=1)
