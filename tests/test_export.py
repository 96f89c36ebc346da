"""Fitted models as scikit-learn estimators and as JSON: they predict the same."""

import json

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import BadParameter


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n, 3)), rng.normal(4.0, size=(n, 3))])


@pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])
def test_a_mixture_is_scikit_learns(shape):
    x = table()
    model = up.GaussianMixture(2, covariance_type=shape, random_state=0).fit({"a": x[::2], "b": x[1::2]})
    peer = model.to_sklearn()
    np.testing.assert_allclose(peer.score_samples(x), model.score_samples(x), rtol=1e-10)
    assert (peer.predict(x) == model.predict(x)).all()
    assert np.isfinite(peer.bic(x))
    assert peer.sample(5)[0].shape == (5, 3)


def test_linear_and_logistic_regression_predict_alike():
    x = table()
    rng = np.random.default_rng(1)
    y = x @ [1.0, -2.0, 0.5] + 3 + rng.normal(size=len(x))
    label = np.where(y + rng.normal(scale=3, size=len(x)) > y.mean(), "yes", "no")
    linear = up.LinearRegression().fit({"a": x[::2], "b": x[1::2]}, {"a": y[::2], "b": y[1::2]})
    np.testing.assert_allclose(linear.to_sklearn().predict(x), linear.predict(x), rtol=1e-10)
    logistic = up.LogisticRegression().fit({"a": x[::2], "b": x[1::2]}, {"a": label[::2], "b": label[1::2]})
    np.testing.assert_allclose(logistic.to_sklearn().predict_proba(x), logistic.predict_proba(x), rtol=1e-8)
    assert (logistic.to_sklearn().predict(x) == logistic.predict(x)).all()


def two_sites(x, y=None):
    return {"a": x[::2], "b": x[1::2]} if y is None else {"a": (x[::2], y[::2]), "b": (x[1::2], y[1::2])}


def test_other_linear_models_predict_alike():
    x = table()
    rng = np.random.default_rng(1)
    y = x @ [1.0, -2.0, 0.5] + 3 + rng.normal(size=len(x))
    for model in (up.GLM("normal"), up.BayesianRegression()):
        model.fit(two_sites(x, y))
        np.testing.assert_allclose(model.to_sklearn().predict(x), model.predict(x), rtol=1e-10)
    label = (y + rng.normal(scale=3, size=len(x)) > y.mean()).astype(int)
    chances = up.GLM("binomial").fit(two_sites(x, label))
    np.testing.assert_allclose(chances.to_sklearn().predict_proba(x)[:, 1], chances.predict(x), rtol=1e-10)


def test_principal_axes_and_clusters_of_unknown_number_are_scikit_learns():
    x = table(60)
    axes = up.PCA(2, whiten=True).fit(two_sites(x))
    np.testing.assert_allclose(axes.to_sklearn().transform(x), axes.transform(x), atol=1e-12)
    clusters = up.OpenMixture(structure="gaussians", site_offsets=False, random_state=0).fit(two_sites(x))
    np.testing.assert_allclose(clusters.to_sklearn().score_samples(x), clusters.score_samples(x), rtol=1e-9)


def test_others_have_no_counterpart():
    x = table()
    with pytest.raises(BadParameter, match="Describe has no counterpart"):
        up.Describe().fit(x).to_sklearn()
    with pytest.raises(BadParameter, match="GLM of family 'poisson' has no counterpart"):
        up.GLM("poisson").fit(x, np.ones(len(x))).to_sklearn()


def test_columns_keep_their_names_under_set_output():
    frame = pd.DataFrame(table(20) + np.array([0, 10, 100]), columns=["age", "bmi", "sbp"])
    model = up.MixtureImputer(n_components=1, random_state=0).fit({"a": frame[::2], "b": frame[1::2]})
    turned = frame[["sbp", "age", "bmi"]]
    assert list(model.transform(turned).columns) == ["sbp", "age", "bmi"]
    named = model.set_output(transform="pandas").transform(turned)
    pd.testing.assert_frame_equal(named[frame.columns.tolist()], frame)


def test_frames_with_texts_keep_their_names_under_set_output():
    frame = pd.DataFrame(table(20), columns=["age", "bmi", "sbp"]).assign(town=["north", "south"] * 20)
    frame.loc[3, "bmi"] = np.nan
    model = up.MixtureImputer(n_components=1, random_state=0).fit({"a": frame[:20], "b": frame[20:]})
    whole = model.transform(frame)
    pd.testing.assert_frame_equal(model.set_output(transform="pandas").transform(frame), whole)
    assert list(model.get_feature_names_out()) == list(frame.columns)


def test_json_holds_the_fitted_numbers():
    x = table()
    model = up.GaussianMixture(2, random_state=0).fit({"a": x})
    read = json.loads(model.to_json())
    assert read["class"] == "GaussianMixture"
    assert read["parameters"]["n_components"] == 2
    np.testing.assert_array_equal(read["fitted"]["means_"], model.means_)
    json.loads(up.PCA(n_components=1).fit(x).to_json())


def test_names_of_columns_are_known_after_every_kind_of_fit(tmp_path):
    frames = {name: pd.DataFrame(part, columns=["age", "bmi", "sbp"]) for name, part in zip("ab", np.split(table(), 2))}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    for data in (frames["a"], frames, tmp_path, up.federate(frames)):
        model = up.GaussianMixture(1).fit(data)
        assert list(model.feature_names_in_) == ["age", "bmi", "sbp"]
    model = up.GaussianMixture(1).fit(frames)
    turned = frames["a"][["sbp", "age", "bmi"]]
    np.testing.assert_array_equal(model.score_samples(turned), model.score_samples(frames["a"].to_numpy()))
    assert not hasattr(up.GaussianMixture(1).fit(table()), "feature_names_in_")


def test_texts_are_indicators_with_names_in_scikit_learn():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=90), "ward": rng.choice(["north", "south", "west"], 90)})
    model = up.LinearRegression().fit(frame, rng.normal(size=90), by=np.arange(90) % 3)
    made = model.to_sklearn()
    assert list(made.feature_names_in_) == ["age", "ward=south", "ward=west"]
    indicators = pd.get_dummies(frame, prefix_sep="=", drop_first=True)
    np.testing.assert_allclose(made.predict(indicators), model.predict(frame), rtol=1e-10)
    with pytest.raises(ValueError, match="ward=south"):
        made.predict(frame)
