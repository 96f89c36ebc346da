"""The report of a run: made for every model, legible whatever the names, honest about what left."""

import re

import numpy as np
import pytest

import unpooled
from unpooled.cli import main
from unpooled.client import REGISTRY
from unpooled.data import synthetic
from unpooled.datasets import classification
from unpooled.report import page, svg
from unpooled.report import words as in_words
from unpooled.saving import estimator_class

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def tables(folder, clients, label=None):
    """One csv file a client."""
    (folder / "clients").mkdir()
    for name, rows in clients.items():
        x, y = rows if label else (rows, np.zeros((len(rows), 0)))
        head = ",".join([*(f"x{j}" for j in range(x.shape[1])), *([label] if label else [])])
        lines = [",".join([*(f"{v:.4f}" for v in row), *([str(c)] if label else [])]) for row, c in zip(x, y)]
        (folder / "clients" / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def fitted(folder, model, clients, label=None, **parameters):
    """The run folder of a model fitted by the command."""
    tables(folder, clients, label)
    settings = "".join(f"{k} = {v}\n" for k, v in {"random_state": 0, **parameters}.items())
    role = f'label = "{label}"\n' if label else ""
    (folder / "a.toml").write_text(f'[model]\nname = "{model}"\n{settings}[data]\npath = "clients/*.csv"\n{role}')
    assert main(["run", str(folder / "a.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def blobs():
    return synthetic.mixture(200, 3, 2, separation=4.0, clients=4, random_state=0).clients


def words():
    """Clients whose labels are words."""
    data = classification.paper(clients=3, rows=60, d=2, spread=2.0, random_state=0).train
    return {name: (x, np.array(["flu", "cold", "none", "other"])[y % 4]) for name, (x, y) in data.items()}


def numbers():
    return {name: (x, x.sum(1)) for name, x in blobs().items()}


def cells():
    """(site, date, count) visits."""
    rng = np.random.default_rng(0)
    grid = np.array([(s, d) for s in range(8) for d in range(5)])
    visits = np.column_stack([grid, rng.poisson(4, len(grid))]).astype(float)
    return {"north": visits[:20], "south": visits[20:]}


def lives():
    """Two covariates, times and events as columns x0 to x3."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    time = np.ceil(30 * rng.exponential(np.exp(-x[:, 0])))
    rows = np.column_stack([x, np.minimum(time, 50), time <= 50])
    return {"north": rows[:60], "south": rows[60:]}


SURVIVAL = {"duration": '"x2"', "event": '"x3"'}
MODELS = {
    "GaussianMixture": (blobs, None, {"n_components": 2}),
    "MixedMixture": (blobs, None, {"n_components": 2}),
    "FedEM": (blobs, None, {"family": '{name = "gaussian", n_components = 2}', "max_iter": 5}),
    "VRFedEM": (blobs, None, {"family": '{name = "gaussian", n_components = 2}', "max_iter": 5}),
    "MixtureImputer": (blobs, None, {"n_components": 1}),
    "FedMissEM": (cells, None, {"rank": 1, "family": '"poisson"', "max_iter": 5}),
    "FedGEM": (blobs, None, {"n_components": 2, "max_iter": 3}),
    "OpenMixture": (blobs, None, {"max_local": 3}),
    "FedGMM": (words, "y", {"n_gaussians": 2, "max_iter": 8}),
    "FedConceptEM": (words, "y", {"n_concepts": 2, "max_iter": 4}),
    "BayesianRegression": (numbers, "y", {}),
    "FedBNR": (numbers, "y", {"n_frequencies": 8, "max_iter": 3}),
    "GLM": (numbers, "y", {"alpha": 0.1}),
    "LinearRegression": (numbers, "y", {}),
    "LogisticRegression": (words, "y", {}),
    "Describe": (blobs, None, {}),
    "Cox": (lives, None, SURVIVAL),
    "KaplanMeier": (lives, None, SURVIVAL),
    "PCA": (blobs, None, {"n_components": 2}),
    "Pooling": (numbers, "y", {"em_rounds": 3}),
}
SILENT = ("FedEM", "VRFedEM", "Describe", "KaplanMeier")  # of single rows


def test_every_model_is_here():
    assert set(MODELS) == set(unpooled.MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_run_reported_and_applied(model, tmp_path, capsys):
    data, label, parameters = MODELS[model]
    clients = data()
    run = fitted(tmp_path, model, clients, label, **parameters)
    told = (run / "report.html").read_text()
    left = told.split("What left each client")[1]
    assert all(re.findall(r"<code>\w+</code> ([^<]*)", left)), "a question without words"
    capsys.readouterr()
    code = main(["predict", str(run), str(next((tmp_path / "clients").glob("*.csv")))])
    out, error = capsys.readouterr()
    if model in SILENT:
        assert (code, len(error.splitlines())) == (1, 1)
    else:
        assert code == 0
        rows = clients[sorted(clients)[0]]
        assert len(out.splitlines()) == 1 + len(rows[0] if label else rows)


def test_every_question_of_a_model_has_words():
    for name in unpooled.MODELS:
        estimator_class(name)
    for question in REGISTRY:
        if question.startswith("unpooled.models."):
            assert in_words.question(question), question


def test_what_left_is_told_in_words_and_long_lists_are_folded():
    assert (
        page.folded_words("[0].n (3), [0].xx (3 x 2)")
        == "counts of rows: 3 numbers<br>sums of products of columns: 6 numbers"
    )
    assert in_words.contents("[0].n (3), [1].n (4), loglik") == [
        "counts of rows: 7 numbers",
        "log-likelihood: 1 number",
    ]
    many = ", ".join(f"['a'].k{i} (3)" for i in range(99))
    assert page.folded_words(many).startswith("<details><summary>")
    assert "k98: 3 numbers" in page.folded_words(many)


def test_an_unfinished_run_names_its_questions_and_counts_its_clients(tmp_path):
    run = fitted(tmp_path, "GaussianMixture", blobs(), max_iter=3)
    for name in ("summary.json", "model/model.zip"):
        (run / name).unlink()
    told = page.page(run)
    assert "<dt>clients</dt><dd>4</dd>" in told
    assert "unpooled resume" in told
    assert "<tr></tr>" not in told


def test_a_curve_leaves_out_rounds_without_a_finite_value():
    history = [
        {"round": 1},
        {"round": 2, "loglik": -np.inf},
        {"round": 3, "loglik": -2.0},
        {"round": 4, "loglik": -1.0},
    ]
    curve = page.curve(history)
    assert curve.count("<circle") == 2
    assert not re.search(r"\bnan\b", curve)
    assert page.curve(history[:3]) == ""


def places(figure):
    """(x, y) of the text of every entry of a legend."""
    return [tuple(map(float, p)) for p in re.findall(r'<text x="([\d.]+)" y="([\d.]+)">\d+<', figure)]


def test_parts_that_are_gone_are_grey_and_one_entry_of_the_legend():
    figure = svg.stacked(["a", "b"], np.array([[0.4, 0.3, 0.2, 0.1], [0.6, 0.4, 0.0, 0.0]]), removed=2)
    assert figure.count(f'height="17" {svg.GREY}') == 4
    assert re.findall(r">(\w+)</text>", figure)[-3:] == ["0", "1", "removed"]


def test_the_parts_of_a_bar_have_colours_and_places_of_their_own():
    figure = svg.stacked(["a"], np.full((1, 25), 1 / 25))
    fills = re.findall(r"<rect [^>]*height=\"17\" (fill=[^/]*)/>", figure)
    assert len(set(fills)) == 25
    spots = places(figure)
    assert len(spots) == len(set(spots)) == 25
    assert max(x for x, _ in spots) < svg.WIDTH - 20
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', figure).group(1))
    assert max(y for _, y in spots) < height


def test_names_that_differ_at_their_end_stay_apart():
    names = [f"hospital of saint somebody {i}" for i in range(3)]
    figure = svg.shades(names, [f"a long name of column {j}" for j in range(3)], np.zeros((3, 3)))
    texts = re.findall(r"<text[^>]*>([^<%]*)</text>", figure)
    assert len(texts) == len(set(texts)) == 6


@pytest.mark.parametrize("columns", [3, 12, 25, 60])
def test_names_of_many_columns_do_not_lie_on_each_other(columns):
    figure = svg.shades(["a"], [f"column {j}" for j in range(columns)], np.zeros((1, columns)))
    found = re.findall(r"translate\(([\d.]+),[\d.]+\) rotate\((-\d+)\)", figure)
    at, slant = [float(x) for x, _ in found], float(found[0][1])
    apart = np.diff(at) * np.sin(np.radians(-slant))  # between neighbouring lines of text
    assert (apart > 11).all()


def test_the_ends_of_an_axis_are_told_apart():
    assert svg.ends(-25.97, -25.93) == ("-25.97", "-25.93")
    assert svg.ends(-23.7912, -23.7908) == ("-23.7912", "-23.7908")
    assert svg.ends(1481.2, 16360.0) == ("1,481", "16,360")
    assert svg.ends(0, 0) == ("0", "0")
