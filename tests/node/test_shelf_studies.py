"""The statistician's models as approved studies that nodes follow, masked and plain: nothing is refused, the fit is that of one process."""

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from memory import MemoryTransport

import unpooled as up
from unpooled import study
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.node.ledger import Ledger, entries
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.node.source import FileTable, TableSource
from unpooled.remote import Remote
from unpooled.secure import fingerprint, identity_bytes

NAMES = ["basel", "geneva", "zurich"]
COLUMNS = ["age", "bp", "chol"]
KEYS = {name: ec.derive_private_key(7 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}


def rows(kind):
    """Site -> (x, y) with targets 0 and 1, or (time, event)."""
    rng = np.random.default_rng(0)
    found = {}
    for i, name in enumerate(NAMES):
        x = rng.normal(size=(90, 3)) + 0.2 * i
        binary = (rng.random(90) < 1 / (1 + np.exp(-x[:, 0] - 0.8 * i))).astype(float)
        time = np.ceil(20 * rng.exponential(size=90))
        found[name] = (x, binary if kind == "binary" else np.column_stack([time, rng.random(90) < 0.7]))
    return found


def study_of(model, secure, columns=""):
    marks = "".join(f'{n} = "{fingerprint(identity_bytes(key)) if secure else ""}"\n' for n, key in KEYS.items())
    layers = "[layers]\nsecure = true\n" if secure else ""
    data = columns or f"[data]\ncolumns = {COLUMNS}\n".replace("'", '"')
    return study.parse(
        f'[study]\ntitle = "Shelf"\n[participants]\n{marks}[model]\n{model}\nrandom_state = 0\n{data}{layers}'.encode()
    )


def followed(approved, sources, tmp_path, secure):
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = [
        Site(n, s, {}, policy=lambda: policy, ledger=Ledger(tmp_path / f"{n}.jsonl"), identity=KEYS[n])
        for n, s in sources.items()
    ]
    given = {} if approved.schema is not None else {"columns": COLUMNS}
    fed = Remote(MemoryTransport(sites), study=approved, names=NAMES, min_clients=3, wait=5, timeout=20, **given)
    return Followed(SecureSum(fed) if secure else fed, None)


def numbers(model):
    """Everything learned that is a number or an array of them, by name."""
    found = {}
    for name, value in vars(model).items():
        if (
            name.endswith("_")
            and isinstance(value, float | int | np.ndarray)
            and np.asarray(value).dtype.kind in "fiub"
        ):
            found[name] = np.asarray(value, dtype=float)
    return found


MODELS = {
    "describe": ('name = "Describe"\nsites = false', "binary"),
    "glm": ('name = "GLM"\nfamily = "binomial"', "binary"),
    "logistic": ('name = "LogisticRegression"\nclasses = [0, 1]', "binary"),
    "cox": ('name = "Cox"\nmin_count = 5', "survival"),
    "stratified": ('name = "Cox"\nstrata = "site"\npenalizer = "auto"', "survival"),
    "kaplan-meier": ('name = "KaplanMeier"\nmin_count = 5', "survival"),
    "pca": ('name = "PCA"\nn_components = 2', "binary"),
    "pooling": ('name = "Pooling"\nfamily = "binomial"\nsites = false\ncv = 2\nem_rounds = 3', "binary"),
}


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "plain"])
@pytest.mark.parametrize("name", MODELS)
def test_a_followed_study_is_the_fit_of_one_process(tmp_path, name, secure):
    text, kind = MODELS[name]
    approved, data = study_of(text, secure), rows(kind)
    sources = {n: Source(Client(n, *d), COLUMNS) for n, d in data.items()}
    fed = followed(approved, sources, tmp_path, secure)
    there = approved.estimator().fit(fed)
    here = approved.estimator().fit(
        up.federate({n: (pd.DataFrame(x, columns=COLUMNS), y) for n, (x, y) in data.items()})
    )
    assert not fed.journal.refusals
    theirs, ours = numbers(there), numbers(here)
    assert theirs.keys() == ours.keys()
    assert len(ours) >= 2
    for key, value in ours.items():
        np.testing.assert_allclose(theirs[key], value, rtol=1e-6, atol=1e-8, err_msg=key)
    asked = [e for e in entries(tmp_path / "basel.jsonl") if e["kind"] == "sum"]
    assert asked
    assert all(e["followed"] and e["masked"] == secure for e in asked)
    if name == "pooling":
        assert there.recommended_ == here.recommended_
        assert there.losses_["groups"]["loss"] == pytest.approx(here.losses_["groups"]["loss"], rel=1e-7)


def test_pages_by_site_come_from_a_plain_study_and_masks_refuse_them_before_any_round(tmp_path):
    model = 'name = "Pooling"\nfamily = "binomial"\ncv = 2\nem_rounds = 2'
    data = rows("binary")
    sources = {n: Source(Client(n, *d), COLUMNS) for n, d in data.items()}
    plain = study_of(model, False)
    fed = followed(plain, sources, tmp_path / "plain", False)
    there = plain.estimator().fit(fed)
    assert not fed.journal.refusals
    here = plain.estimator().fit(up.federate(data))
    assert there.sites_["zurich"]["information"] == pytest.approx(here.sites_["zurich"]["information"], rel=1e-8)
    assert "What would change without you" in there.page("zurich")
    masked = study_of(model, True)
    fed = followed(masked, sources, tmp_path / "masked", True)
    with pytest.raises(BadParameter, match="use sites=False"):
        masked.estimator().fit(fed)
    assert not fed.journal.exchanges


KINDS = {"age": {"kind": "real"}, "pain": {"kind": "category", "levels": ["none", "typical", "atypical"]}}
KINDS_TEXT = """[data]
label = "ill"
[columns]
age = {kind = "real"}
pain = {kind = "category", levels = ["none", "typical", "atypical"]}
"""


def tables():
    rng = np.random.default_rng(1)
    found = {}
    for i, name in enumerate(NAMES):
        pain = rng.choice(["none", "typical", "atypical"], 80)
        age = rng.normal(60, 10, 80).round()
        ill = rng.random(80) < 1 / (1 + np.exp(-0.05 * (age - 60) - (pain == "typical") - 0.7 * i))
        found[name] = pd.DataFrame({"age": age, "pain": pain, "ill": ill.astype(int)})
    return found


def test_pooling_takes_categories_as_indicators():
    data = tables()
    mixed = up.Pooling("binomial", cv=2, random_state=0, em_rounds=1).fit(up.federate(data, label="ill", schema=KINDS))
    assert mixed.names_ == ["age", "pain=typical", "pain=atypical"]
    by_hand = {
        name: (np.column_stack([t.age, t.pain == "typical", t.pain == "atypical"]).astype(float), t.ill.to_numpy(float))
        for name, t in data.items()
    }
    plain = up.Pooling("binomial", cv=2, random_state=0, em_rounds=1).fit(by_hand)
    np.testing.assert_allclose(mixed.coef_, plain.coef_, rtol=1e-9)
    assert mixed.tests_["P(x)"]["lr"]["p_value"] == pytest.approx(plain.tests_["P(x)"]["lr"]["p_value"])
    frame = data["basel"].drop(columns="ill")
    np.testing.assert_allclose(mixed.predict(frame), plain.predict(by_hand["basel"][0]), rtol=1e-9)
    own = mixed.predict(frame, client="zurich")
    assert (own != mixed.predict(frame)).any()
    assert "pain=typical" in mixed.page("basel")


@pytest.mark.parametrize("model", ["Pooling", "Describe"])
def test_categories_in_a_followed_study(tmp_path, model):
    options = 'family = "binomial"\ncv = 2\nem_rounds = 1\n' if model == "Pooling" else ""
    approved = study_of(f'name = "{model}"\n{options}sites = false', True, columns=KINDS_TEXT)
    data = tables()
    sources = {}
    for name, table in data.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        sources[name] = TableSource(name, FileTable(tmp_path / f"{name}.csv"), label="ill")
    fed = followed(approved, sources, tmp_path, True)
    there = approved.estimator().fit(fed)
    here = approved.estimator().fit(up.federate(data, label="ill", schema=KINDS))
    assert not fed.journal.refusals
    if model == "Pooling":
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8)
        assert there.names_ == ["age", "pain=typical", "pain=atypical"]
    assert there.to_text() == here.to_text()
