"""What a report shows of a model follows from its parameters and from the run folder: compared with scikit-learn and by hand."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.mixture import GaussianMixture as Peer
from test_page import MODELS, blobs, fitted, words

import unpooled as up
from unpooled import study
from unpooled.cli import main
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.report import folder as folders
from unpooled.report import kinds, markup, measured, page, svg
from unpooled.report.kinds import classifiers, imputers, parts, regressions
from unpooled.report.kinds import measured as kind_of_measures

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def bare(model, columns=()):
    """A run folder without anything but the model: no summary, no rows."""
    config = {"model": {"name": type(model).__name__}}
    return folders.RunFolder(None, config, [], [], [], {"columns": list(columns)}, {}, model, {})


def well_formed(html):
    return ElementTree.fromstring(f"<div>{html.replace('<br>', '<br/>')}</div>")


def test_every_model_has_a_kind_or_figures_of_its_own():
    for name in up.MODELS:
        assert name in kinds.KINDS or hasattr(getattr(up, name), "report_figures"), name


@pytest.mark.parametrize("name", MODELS)
def test_a_report_needs_no_rows_and_is_well_formed(name, tmp_path):
    data, label, parameters = MODELS[name]
    run = folders.read(fitted(tmp_path, name, data(), label, **parameters))
    without = run._replace(summary={"columns": run.summary["columns"]})
    found = [s for s in kinds.sections(run.model, without) if s.body]
    if name != "FedMissEM":
        assert found
    for section in found:
        well_formed(section.body)
        assert not re.search(r"\bnan\b", re.sub(r">[^<]*<", "><", section.body)), section.title


def test_a_model_of_your_own_shows_its_figures():
    class Mine:
        def report_figures(self):
            return {"My title": "<p>mine</p>"}

    assert kinds.sections(Mine(), None) == [("My title", "<p>mine</p>")]


# ---- mixtures ----


@pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])
def test_the_parts_of_a_mixture_have_the_moments_of_its_rows(shape):
    x = np.random.default_rng(0).normal(size=(400, 3)) * [1, 5, 0.1] + np.repeat([[0, 9, 1], [4, 0, 2]], 200, 0)
    model = Peer(2, covariance_type=shape, random_state=0, max_iter=500, tol=1e-12, reg_covar=0).fit(x)
    whole = parts.whole(parts.parts_of(model))
    np.testing.assert_allclose(whole.mean, x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(np.trace(whole.cov), np.trace(np.cov(x.T, bias=True)), rtol=1e-6)
    if shape in ("full", "tied"):
        np.testing.assert_allclose(whole.cov, np.cov(x.T, bias=True), rtol=1e-5, atol=1e-8)


def test_two_columns_and_two_clusters_of_diagonal_covariances_are_no_tied_one():
    covs = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert parts.as_full(covs, 2, 2)[1].tolist() == [[3.0, 0.0], [0.0, 4.0]]


def test_clusters_that_are_groups_of_gaussians_have_the_moments_of_the_group():
    rng = np.random.default_rng(0)
    atoms = parts.Parts(np.full(3, 1 / 3), rng.normal(size=(3, 2)), np.stack([np.eye(2)] * 3))
    topics = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    grouped = parts._grouped(atoms, topics, np.array([2 / 3, 1 / 3]))
    np.testing.assert_allclose(parts.whole(grouped).cov, parts.whole(atoms).cov)


def test_words_name_the_columns_that_stand_out():
    assert parts.in_words(np.array([0.1, -1.7, 0.6]), ["age", "crp", "bmi"]) == "crp very low, bmi high"
    assert parts.in_words(np.zeros(2), ["a", "b"]) == "near the mean in every column"


def test_the_map_keeps_the_variance_of_the_two_largest_axes():
    x = np.random.default_rng(1).normal(size=(300, 4)) @ np.diag([3, 2, 1, 0.5])
    found = parts.parts_of(Peer(1, random_state=0).fit(x))
    _, covs, axes, share = parts.plane(found)
    scaled = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    np.testing.assert_allclose(share, scaled[:2] / 4, rtol=1e-4)
    np.testing.assert_allclose(np.diag(covs[0]), scaled[:2], rtol=1e-4)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)


def test_each_cluster_is_shown_with_those_who_hold_it():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    held = {"a": [0, 1], "b": [1, 2], "c": [0, 2], "d": [0, 1]}
    data = {name: centres[rng.choice(k, 60)] + rng.normal(size=(60, 2)) for name, k in held.items()}
    model = up.OpenMixture(random_state=0).fit(data)
    text = {s.title: s.body for s in kinds.sections(model, bare(model, ["u", "v"]))}
    for k, holders in enumerate(model.holders_):
        line = re.search(rf"Cluster {k + 1} is held by ([^.]*)\.", text["Who holds what"]).group(1)
        assert set(re.split(", | and ", line)) == set(holders)
    assert "3 clusters" in text["How many clusters"]


def test_branches_of_a_dendrogram_do_not_cross():
    left, right = [0, 3, 1, 6], [2, 4, 5, 7]
    order = svg._leaf_order(5, left, right)
    assert sorted(order) == [0, 1, 2, 3, 4]
    at = {leaf: [order.index(leaf)] for leaf in range(5)}
    for s, (a, b) in enumerate(zip(left, right)):
        at[5 + s] = sorted(at[a] + at[b])
        assert at[5 + s] == list(range(at[5 + s][0], at[5 + s][-1] + 1))


# ---- imputers ----


def test_the_error_that_a_gaussian_expects_is_its_conditional_deviation():
    x = np.random.default_rng(0).normal(size=(500, 3)) @ np.random.default_rng(1).normal(size=(3, 3))
    cov = np.cov(x.T)
    before, after = imputers.expected_errors(parts.Parts(np.ones(1), x.mean(0)[None], cov[None]))
    np.testing.assert_allclose(before, np.sqrt(np.diag(cov)))
    np.testing.assert_allclose(after, 1 / np.sqrt(np.diag(np.linalg.inv(cov))), rtol=0.06)


def test_the_two_phases_of_an_imputer_are_two_pictures(tmp_path):
    run = folders.read(fitted(tmp_path, "MixtureImputer", blobs()))
    rising = page.phases([row for row in run.history if np.isfinite(row.get("loglik", np.nan))])
    assert list(rising) == ["choosing, some cells hidden", "final fit, all cells"]
    for rows in rising.values():
        values = [row["loglik"] for row in rows]
        assert all(b >= a - 1e-3 * abs(a) for a, b in pairwise(values))  # a prior is added to the likelihood
    assert page.curve(run.history).count("<svg") == 2


def test_hidden_cells_are_measured_against_the_mean(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 1))
    x = np.concatenate([z, 3 * z + 0.1 * rng.normal(size=(400, 1)), rng.normal(size=(400, 1))], 1)
    x[rng.random(x.shape) < 0.1] = np.nan
    model = up.MixtureImputer(n_components=1).fit({"a": x[:200], "b": x[200:]})
    found = measured.measure([(model, Client("a", x[:200])), (model, Client("b", x[200:]))])
    assert found["after"][0] < 0.5 * found["before"][0]
    assert found["after"][1] < 0.5 * found["before"][1]
    assert 0.8 < found["after"][2] / found["before"][2] < 1.2  # nothing tells the third column


# ---- measured predictions ----


def test_confusion_and_loss_are_those_of_scikit_learn():
    data = words()
    model = up.LogisticRegression().fit({n: x for n, (x, _) in data.items()}, {n: y for n, (_, y) in data.items()})
    found = measured.measure([(model, Client(n, x, y)) for n, (x, y) in data.items()])
    x, y = np.concatenate([x for x, _ in data.values()]), np.concatenate([y for _, y in data.values()])
    assert found["confusion"] == confusion_matrix(y, model.predict(x), labels=model.classes_).tolist()
    assert found["log_loss"] == pytest.approx(log_loss(y, model.predict_proba(x), labels=model.classes_))
    assert sum(found["reliability"]["rows"]) == len(y)
    assert sum(found["reliability"]["right"]) == sum(s["right"] for s in found["sites"].values())


def test_rows_with_a_label_that_the_model_does_not_know_are_left_out():
    data = words()
    model = up.LogisticRegression().fit({n: x for n, (x, _) in data.items()}, {n: y for n, (_, y) in data.items()})
    x, y = next(iter(data.values()))
    odd = np.where(np.arange(len(y)) < 3, "zzz", y)
    assert measured.measure([(model, Client("a", x, odd))])["sites"]["a"]["rows"] == len(y) - 3


def test_errors_and_coverage_of_a_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = x @ [1.0, 2.0] + rng.normal(size=600)
    model = up.BayesianRegression().fit(x, y)
    found = measured.measure([(model, Client("a", x[:300], y[:300])), (model, Client("b", x[300:], y[300:]))])
    squares = sum(s["squares"] for s in found["sites"].values())
    assert squares == pytest.approx(((y - model.predict(x)) ** 2).sum())
    np.testing.assert_allclose(found["coverage"], found["levels"], atol=0.06)
    assert sum(found["residuals"]) == 600


def test_confidence_in_a_mean_is_not_shown_as_an_interval_of_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    model = up.GLM("normal").fit(x, x.sum(1) + rng.normal(size=100))
    assert measured.measure([(model, Client("a", x, x.sum(1)))])["coverage"] == []


def test_a_large_table_is_thinned():
    assert len(measured._fewer(Client("a", np.zeros((50_000, 1)))).x) <= measured.MOST_ROWS


def test_held_out_accuracy_is_that_of_cross_validation(tmp_path):
    data = words()
    run = fitted(tmp_path, "LogisticRegression", data, "y", **{})
    text = (tmp_path / "a.toml").read_text()
    (tmp_path / "b.toml").write_text(text + "[validation]\ncv = 5\n")
    assert main(["run", str(tmp_path / "b.toml"), "--out", str(tmp_path / "held")]) == 0
    found = folders.read(tmp_path / "held").summary["measured"]
    fed = up.federate(str(tmp_path / "clients" / "*.csv"), label="y")
    score = up.cross_validate(up.LogisticRegression(random_state=0), fed, cv=5)
    total = np.array(found["confusion"])
    assert 1 - np.trace(total) / total.sum() == pytest.approx(score.mean["error"])
    assert found["log_loss"] == pytest.approx(score.mean["log_loss"])
    assert "held-out rows (5 folds" in (tmp_path / "held" / "report.html").read_text()
    assert "the rows of the fit" in (run / "report.html").read_text()
    assert (tmp_path / "held" / "model" / "model.zip").read_bytes() == (run / "model" / "model.zip").read_bytes()
    ledger = folders.lines(tmp_path / "held" / "ledger.jsonl")
    fits = [e for e in ledger if e["question"] == "glm.class_counts"]
    assert len(fits) == 6  # what validation asked is on record too
    assert [e["round"] for e in ledger] == sorted(e["round"] for e in ledger)


@pytest.mark.parametrize("cv", [0, 1, 3, 11])
def test_other_numbers_of_folds_are_refused(tmp_path, cv, capsys):
    (tmp_path / "a.toml").write_text(f'[model]\nname = "PCA"\n[data]\nbuiltin = "hospitals"\n[validation]\ncv = {cv}\n')
    assert main(["run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "run")]) == 1
    assert "[validation] cv" in capsys.readouterr().err


def test_a_study_cannot_ask_for_validation():
    text = '[study]\ntitle="x"\n[participants]\na=""\nb=""\nc=""\n[model]\nname="LinearRegression"\nrandom_state=0\n[data]\ncolumns=["a"]\n'
    study.parse(text.encode())
    with pytest.raises(BadParameter, match="validation"):
        study.parse((text + "[validation]\ncv = 5\n").encode())


def test_posterior_deviations_and_importance_of_a_linear_model():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) * [1, 10, 0.1] + 5
    y = 100 * (x @ [1, 0.2, -3] + rng.normal(size=500))
    model, peer = up.BayesianRegression().fit(x, y), up.LinearRegression().fit(x, y)
    np.testing.assert_allclose(regressions._posterior_errors(model, 3), peer.stderr_, rtol=0.01)
    np.testing.assert_allclose(regressions.importance(model), np.abs(model.coef_) * x.std(0), rtol=1e-8)


# ---- the top of the page, and privacy ----


def test_date_version_wall_time_and_defaults_are_told(tmp_path):
    run = fitted(tmp_path, "GaussianMixture", blobs(), n_components=2)
    text = (run / "report.html").read_text()
    assert re.search(r"finished \d+ \w+ \d{4}, \d\d:\d\d UTC, unpooled \d", text)
    assert re.search(r"<dt>wall time</dt><dd>[\d.]+ s</dd>", text)
    left = page.defaults(folders.read(run))
    assert "covariance_type" in left
    assert "n_components" not in left
    assert "<code>covariance_type</code>" in text


def test_a_run_that_was_resumed_counts_its_last_start(tmp_path):
    run = fitted(tmp_path, "GaussianMixture", blobs(), n_components=2)
    assert len(json.loads((run / "run.json").read_text())["starts"]) == 1
    assert main(["resume", str(run)]) == 0
    assert len(json.loads((run / "run.json").read_text())["starts"]) == 2


def test_a_gather_is_marked_with_its_risk(tmp_path):
    text = (fitted(tmp_path, "OpenMixture", blobs(), max_local=3) / "report.html").read_text()
    assert "The coordinator sees this answer of each client singly" in text


def test_a_private_run_shows_its_budget_and_no_number_without_noise(tmp_path):
    fitted(tmp_path, "GaussianMixture", blobs(), n_components=2)
    bounds = "{x0 = [-20, 20], x1 = [-20, 20]}"
    text = (tmp_path / "a.toml").read_text() + f"[privacy]\nepsilon = 4.0\ndelta = 1e-5\nbounds = {bounds}\n"
    (tmp_path / "p.toml").write_text(text)
    assert main(["run", str(tmp_path / "p.toml"), "--out", str(tmp_path / "private")]) == 0
    report = (tmp_path / "private" / "report.html").read_text()
    assert re.search(r"epsilon \d\.\d\d of 4\.0 spent", report)
    summary = folders.read(tmp_path / "private").summary
    assert summary["measured"] == {}
    assert all(own["rows"] is None and not own["missing"] for own in summary["clients"].values())
    assert summary["weights"] == {}


# ---- names that were chosen to harm, and models of other branches ----

EVIL = '<script>alert("x")</script>'


@pytest.mark.parametrize(
    "name", ["GaussianMixture", "OpenMixture", "FedGMM", "FedConceptEM", "LinearRegression", "MixtureImputer", "PCA"]
)
def test_names_of_clients_columns_and_labels_are_text(name):
    data, label, parameters = MODELS[name]
    clients = data()
    rename = {client: f"{EVIL}{i}" for i, client in enumerate(clients)}
    read = lambda v: {"name": v.strip('"')}["name"] if isinstance(v, str) else v  # noqa: E731
    settings = {k: read(v) for k, v in parameters.items()}
    x = {rename[c]: rows[0] if label else rows for c, rows in clients.items()}
    y = None
    if label:
        y = {
            rename[c]: np.char.add(rows[1], EVIL) if rows[1].dtype.kind == "U" else rows[1]
            for c, rows in clients.items()
        }
    model = getattr(up, name)(random_state=0, **settings).fit(x, y)
    columns = [f"{EVIL}{j}" for j in range(model.n_features_in_)]
    run = bare(model, columns)
    tried = {c: Client(c, x[c], None if y is None else y[c]) for c in x}
    run.summary["measured"] = measured.measure([(model, client) for client in tried.values()])
    run.summary["weights"] = {c: [0.5, 0.5] for c in x}
    run.summary["clients"] = {c: {"rows": 50, "missing": [0.5] * len(columns)} for c in x}
    reasons = [{"round": 1, "client": next(iter(x)), "question": EVIL, "reason": EVIL}]
    ledger = [
        {
            "round": 1,
            "question": EVIL,
            "kind": "gather",
            "asked": 2,
            "answered": 2,
            "bytes_up": 1,
            "bytes_down": 1,
            "contents": EVIL,
        }
    ]
    run = run._replace(refusals=reasons, ledger=ledger, config={"model": {"name": name, "x": EVIL}}, facts={EVIL: EVIL})
    found = "".join(s.body for s in kinds.sections(model, run))
    found += page._who(run) + page._missing(run) + page.what_left(ledger) + page._asked(run) + markup.facts(run.facts)
    assert "<script" not in found
    assert "script" in found
    well_formed(found)


class Mixed:
    """What a mixture of numbers, levels and counts sets in a fit."""

    weights_ = np.array([0.4, 0.6])
    means_ = np.array([[0.0], [3.0]])
    covariances_ = np.ones((2, 1, 1))
    gaussian_columns_ = ("age",)
    count_columns_ = ("visits",)
    count_means_ = np.array([[1.5], [7.0]])
    n_features_in_ = 3
    n_components_ = 2

    def __init__(self):
        self.level_probabilities_ = {"sex": np.array([[0.2, 0.8], [0.5, 0.5]])}


def test_levels_and_counts_of_a_mixed_mixture_are_shown():
    Mixed.__name__ = "MixedMixture"
    text = {s.title: s.body for s in kinds.sections(Mixed(), bare(Mixed(), ["sex", "visits", "age"]))}
    assert "age high" in text["The clusters"]
    for shown in ("80%", "visits", ">7<", "sex"):
        assert shown in text["Categories and counts"]


def test_gains_are_shown_by_site_the_smallest_first():
    model = up.LogisticRegression()
    model.gain_ = {"a": 0.3, "b": -0.1}
    model.comparison_ = {"a": {"alone": 0.9, "kept": 0.6, "rows": 50.0}, "b": {"alone": 0.5, "kept": 0.6, "rows": 20.0}}
    body = classifiers.gain(model)
    assert body.index(">b<") < body.index(">a<")
    assert "0.9" in body


def test_long_tables_of_sites_are_capped():
    sites = {f"s{i:03}": {"rows": 100, "right": i} for i in range(100)}
    body = kind_of_measures._accuracy_by_site({"sites": sites})
    assert body.count("<tr>") == 41
    assert "60 more sites are not listed" in body


def test_held_out_rows_of_a_mixture_are_scored_by_site():
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = up.GaussianMixture(1).fit(x)
    pairs = [(model, Client("north", x[:40])), (model, Client("south", x[40:]))]
    found = measured.measure(pairs, folds=2)
    assert found["sites"]["south"]["rows"] == 20
    assert found["sites"]["south"]["loglik"] == pytest.approx(model.score_samples(x[40:]).sum())
    (section,) = kind_of_measures.density(bare(model)._replace(summary={"measured": found}))
    assert f"{model.score(x):.6g} per row" in section.body


def test_a_regression_of_zeros_and_ones_is_judged_by_its_probabilities():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = (rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)
    model = up.GLM("binomial").fit(x, y)
    found = measured.measure([(model, Client("north", x, y))])
    assert found["kind"] == "classifier"
    assert found["log_loss"] == pytest.approx(log_loss(y, model.predict(x)))
    assert measured.measure([(up.GLM("poisson").fit(x, y), Client("north", x, y))])["kind"] == "regressor"


def test_levels_have_their_names():
    import pandas as pd

    rng = np.random.default_rng(0)
    ward = rng.choice(["icu", "surgery", "medicine"], 90)
    table = pd.DataFrame({"age": rng.normal(60, 9, 90), "weight": rng.normal(70, 9, 90), "ward": ward})
    described = up.Describe().fit({"north": table[:50], "south": table[50:]})
    assert all(f">{level}</th>" in described.to_html() for level in ("icu", "surgery", "medicine"))
    assert "ward" not in described.report_figures()["Size of correlations"]
    mixture = up.MixedMixture(1, random_state=0).fit({"north": table[:50], "south": table[50:]})
    shown = "".join(s.body for s in kinds.sections(mixture, bare(mixture, table.columns)))
    assert "surgery" in shown


WARDS = pd.DataFrame(
    {
        "age": np.random.default_rng(0).normal(60, 9, 150),
        "ward": np.random.default_rng(1).choice(["north", "south", "west"], 150),
        "dose": np.random.default_rng(2).gamma(2, 1, 150),
        "site": np.arange(150) % 3,
    }
)


@pytest.mark.parametrize("name", ["LogisticRegression", "BayesianRegression"])
def test_every_coefficient_of_a_column_of_texts_has_its_level(name):
    y = (WARDS.age + WARDS.dose * 3 > 65).astype(int)
    model = getattr(up, name)().fit(WARDS.drop(columns="site"), y, by=WARDS.site)
    run = bare(model, ["age", "ward", "dose"])
    shown = next(s.body for s in kinds.sections(model, run) if s.title == "Coefficients")
    for label, value in zip(["age", "ward=south", "ward=west", "dose"], np.ravel(model.coef_)):
        assert f">{label}<" in shown
        assert f">{value:.4g}<" in shown


def test_gaussians_beside_levels_have_the_names_of_their_columns():
    model = up.MixedMixture(1, random_state=0).fit(WARDS, by="site")
    del model.gaussian_columns_  # other mixtures of mixed columns have their kinds alone
    run = bare(model, ["age", "ward", "dose"])
    shown = next(s.body for s in kinds.sections(model, run) if s.title == "What tells them apart")
    assert "dose" in shown
    assert "ward" not in shown


def test_large_numbers_keep_their_digits_before_the_point():
    assert markup.number(2097412.3, 5) == "2,097,412"
    assert markup.number(0.000012345) == "1.234e-05"
    assert markup.number(3.2e12) == "3.2e+12"
