"""Nodes with mixed columns: each writes them in its own way, the study fixes kinds and levels, and the fit is that of one process."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from memory import MemoryTransport

import unpooled as up
from unpooled import study
from unpooled.data.schema import Schema, Wanted
from unpooled.errors import BadParameter, TooFewClients
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.node.ledger import Ledger, entries
from unpooled.node.policy import Policy
from unpooled.node.site import Site
from unpooled.node.source import FileTable, TableSource
from unpooled.remote import Remote

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few rounds are enough here
NAMES = ["basel", "geneva", "zurich"]
KINDS = {
    "age": {"kind": "real"},
    "height": {"kind": "positive", "unit": "cm"},
    "sex": {"kind": "binary", "levels": ["female", "male"]},
    "pain": {"kind": "category", "levels": ["none", "typical", "atypical"]},
    "visit": {"kind": "date"},
    "event": {"kind": "binary", "levels": ["no", "yes"]},
}
OWN = {
    "basel": None,
    "geneva": {
        "age": "Alter",
        "height": {"name": "inches", "unit": "in"},
        "sex": {"name": "Geschlecht", "levels": {"w": "female", "m": "male"}},
        "pain": {"missing": ["k.A."]},
        "visit": "visit",
    },
    "zurich": {"age": "age", "height": {"missing": [999]}, "sex": "sex", "pain": "pain", "visit": "visit"},
}


@pytest.fixture(name="tables")
def tables_() -> dict[str, pd.DataFrame]:
    """The tables as a single process would have them."""
    rng = np.random.default_rng(3)
    found = {}
    for i, name in enumerate(NAMES):
        n = 90 + 20 * i
        sex = rng.choice(["female", "male"], n)
        found[name] = pd.DataFrame(
            {
                "age": rng.normal(60, 10, n).round(),
                "height": rng.normal(170, 8, n).round(),
                "sex": sex,
                "pain": rng.choice(["none", "typical", "atypical"], n),
                "visit": pd.to_datetime("2021-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
                "event": np.where(rng.random(n) < 0.3 + 0.3 * (sex == "male"), "yes", "no"),
            }
        )
    return found


def written(tables: dict[str, pd.DataFrame], folder) -> dict[str, TableSource]:
    """Each table as its site writes it, in a file."""
    own = {name: t.assign(visit=t.visit.dt.strftime("%Y-%m-%d")) for name, t in tables.items()}
    own["geneva"] = (
        own["geneva"]
        .assign(height=own["geneva"].height / 2.54, sex=own["geneva"].sex.map({"female": "w", "male": "m"}))
        .rename(columns={"age": "Alter", "height": "inches", "sex": "Geschlecht", "event": "Ereignis"})
    )
    sources = {}
    for name, table in own.items():
        table.to_csv(folder / f"{name}.csv", index=False)
        label = "Ereignis" if name == "geneva" else "event"
        sources[name] = TableSource(name, FileTable(folder / f"{name}.csv"), columns=OWN[name], label=label)
    return sources


def study_of(model: str, **sections: str) -> study.Study:
    people = "".join(f'{name} = "{mark}"\n' for name, mark in marks().items())
    kinds = "".join(f"{name} = {_inline(entry)}\n" for name, entry in KINDS.items())
    layers = "[layers]\nsecure = true\n" if sections.get("secure") else ""
    text = f'[study]\ntitle = "Mixed"\n[participants]\n{people}[model]\n{model}\n[data]\nlabel = "event"\n[columns]\n{kinds}{layers}'
    return study.parse(text.encode())


def _inline(entry: dict) -> str:
    body = ", ".join(f"{k} = {v!r}".replace("'", '"') for k, v in entry.items())
    return f"{{{body}}}"


def keys():
    from cryptography.hazmat.primitives.asymmetric import ec

    return {name: ec.derive_private_key(11 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}


def marks() -> dict[str, str]:
    from unpooled.secure import fingerprint, identity_bytes

    return {name: fingerprint(identity_bytes(key)) for name, key in keys().items()}


def sites_of(sources, approved, tmp_path, **rules) -> list[Site]:
    policy = Policy(studies=[approved.digest], trust_coordinator=False, **rules)
    identities = keys()
    return [
        Site(n, s, {}, policy=lambda: policy, ledger=Ledger(tmp_path / f"{n}.jsonl"), identity=identities[n])
        for n, s in sources.items()
    ]


LOGISTIC = 'name = "LogisticRegression"\nrandom_state = 0\nmax_iter = 20\nclasses = ["no", "yes"]'
CONCEPTS = 'name = "FedConceptEM"\nrandom_state = 0\nmax_iter = 4\nclasses = ["no", "yes"]'


@pytest.mark.parametrize("secure", [False, True], ids=["bare", "masked"])
@pytest.mark.parametrize("model", [LOGISTIC, CONCEPTS], ids=["logistic", "concepts"])
def test_a_followed_study_of_mixed_columns_equals_the_fit_in_one_process(tables, tmp_path, model, secure):
    approved = study_of(model, secure="yes" if secure else "")
    transport = MemoryTransport(sites_of(written(tables, tmp_path), approved, tmp_path))
    remote = Remote(transport, study=approved, names=NAMES, min_clients=3, wait=5, timeout=20)
    assert remote.schema.names == ["age", "height", "sex", "pain", "visit"]
    fed = Followed(SecureSum(remote) if secure else remote, None)
    there = approved.estimator().fit(fed)
    here = approved.estimator().fit(up.federate(tables, label="event", schema=KINDS))
    assert there.columns_ == ["age", "height", "sex=male", "pain=typical", "pain=atypical", "visit"]
    np.testing.assert_allclose(
        there.predict_proba(tables["basel"]), here.predict_proba(tables["basel"]), rtol=1e-6, atol=1e-8
    )
    assert there.schema_ == here.schema_


class Tilted(Remote):
    """A coordinator that has nodes look at other indicators than the study's."""

    def sum(self, ask, down):
        steps = tuple(replace(s, options={**s.options, **self.changes}) for s in ask.steps)
        return super().sum(replace(ask, steps=steps), down)


@pytest.mark.parametrize(
    "changes", [{"levels": [0, 0, 0, 4, 0]}, {"mean": [60.0] + [0.0] * 5, "scale": [1e-3] + [1.0] * 5}]
)
def test_another_view_of_the_rows_is_not_the_studys(tables, tmp_path, changes):
    approved = study_of(LOGISTIC)
    transport = MemoryTransport(sites_of(written(tables, tmp_path), approved, tmp_path))
    remote = Tilted(transport, study=approved, names=NAMES, min_clients=3, wait=5, timeout=5)
    remote.changes = changes
    with pytest.raises(TooFewClients, match="would see the rows otherwise than the study does"):
        approved.estimator().fit(Followed(remote, None))


def test_a_coordinator_that_says_other_kinds_is_refused(tables, tmp_path):
    approved = study_of(LOGISTIC)
    other = Schema.from_toml({**KINDS, "age": {"kind": "real", "missing": [61, 62, 63]}})
    remote = Remote(
        MemoryTransport(sites_of(written(tables, tmp_path), approved, tmp_path)),
        study=approved,
        wanted=Wanted(other, "event"),
        names=NAMES,
        min_clients=3,
        wait=5,
        timeout=5,
    )
    with pytest.raises(TooFewClients, match="says other kinds of columns"):
        approved.estimator().fit(Followed(remote, None))


@pytest.mark.parametrize("chunk_rows", [7, 40])
def test_chunks_are_the_rows_of_the_whole_table(tables, tmp_path, chunk_rows):
    wanted = Wanted(Schema.from_toml(KINDS), "event")
    for name, source in written(tables, tmp_path).items():
        features = wanted.features.names
        (whole,) = source.open(features, wanted).parts()
        source.chunk_rows = chunk_rows
        rows = source.open(features, wanted)
        parts = list(rows.parts())
        assert rows.n_rows == len(whole.w)
        np.testing.assert_array_equal(np.concatenate([p.x for p in parts]), whole.x)
        np.testing.assert_array_equal(np.concatenate([p.y for p in parts]), whole.y)
        expected = up.federate({name: tables[name]}, label="event", schema=KINDS).here()[0]
        np.testing.assert_allclose(whole.x, expected.x, rtol=1e-12)


def test_a_column_that_a_site_lacks_is_missing_there(tables, tmp_path):
    tables["basel"].drop(columns="height").to_csv(tmp_path / "b.csv", index=False)
    own = {"age": "age", "height": False, "sex": "sex"}
    source = TableSource("basel", FileTable(tmp_path / "b.csv"), columns=own)
    wanted = Wanted(Schema.from_toml({k: KINDS[k] for k in ("age", "height", "sex")}))
    assert source.columns == ["age", "height", "sex"]
    (client,) = source.open(["height", "sex"], wanted).parts()
    assert np.isnan(client.x[:, 0]).all()
    assert set(client.x[:, 1]) == {0.0, 1.0}


def test_labels_that_the_coordinator_names_and_rows_without_one(tables, tmp_path):
    table = tables["basel"].copy()
    table.loc[:4, "event"] = None
    table.to_csv(tmp_path / "b.csv", index=False)
    source = TableSource("basel", FileTable(tmp_path / "b.csv"))
    (client,) = source.open(["age", "height"], Wanted(None, "event")).parts()
    assert client.y.tolist() == table.event[5:].tolist()
    np.testing.assert_array_equal(client.x[:, 0], table.age[5:])
    source.chunk_rows = 9
    assert source.open(["age"], Wanted(None, "event")).n_rows == len(table) - 5


def test_a_label_of_the_coordinator_holds_over_a_link(tables, tmp_path):
    for name, table in tables.items():
        table[["age", "height", "event"]].to_csv(tmp_path / f"{name}.csv", index=False)
    made = [Site(n, TableSource(n, FileTable(tmp_path / f"{n}.csv")), {}) for n in NAMES]
    remote = Remote(MemoryTransport(made), wanted=Wanted(None, "event"), min_clients=3, wait=5, timeout=5)
    there = up.LogisticRegression(classes=["no", "yes"]).fit(remote)
    numbers = {n: t[["age", "height", "event"]] for n, t in tables.items()}
    here = up.LogisticRegression(classes=["no", "yes"]).fit(up.federate(numbers, label="event"))
    assert remote.columns == ["age", "height"]
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10)
    none = Remote(MemoryTransport(made), wanted=Wanted(None, "outcome"), columns=["age"], wait=5, timeout=5)
    with pytest.raises(TooFewClients, match="no column 'outcome' for the labels"):
        up.LogisticRegression(classes=["no", "yes"]).fit(none)


def test_kinds_without_levels_are_refused_before_anybody_is_asked():
    with pytest.raises(BadParameter, match=r"\[columns\] pain has no levels, which nodes need: run `unpooled check`"):
        study.parse(
            b'[study]\ntitle = "x"\nmin_cohort = 1\n[participants]\na = ""\n[model]\nname = "LogisticRegression"\n'
            b'[data]\nlabel = "event"\n[columns]\nage = "real"\npain = "category"\n'
        )


# ---- a check over a link ----


def test_a_check_over_a_link_tells_no_count_below_the_floor(tables, tmp_path):
    rare = tables["basel"].copy()
    rare.loc[:2, "pain"] = "secret"
    rare.loc[:9, "pain"] = np.where(np.arange(10) < 3, "secret", "unknown")
    rare.to_csv(tmp_path / "basel.csv", index=False)
    rest = written({k: v for k, v in tables.items() if k != "basel"} | {"basel": tables["basel"]}, tmp_path)
    rest["basel"] = TableSource("basel", FileTable(tmp_path / "basel.csv"), label="event")
    rare.to_csv(tmp_path / "basel.csv", index=False)
    policy = Policy(check=True, min_rows_per_component=5, limits={"min_count": 5})
    made = [
        Site(n, s, {}, policy=lambda: policy, ledger=Ledger(tmp_path / f"{n}.jsonl")) for n, s in sorted(rest.items())
    ]
    fed = Remote(MemoryTransport(made), min_clients=3, wait=5, timeout=5)
    known = Schema.from_toml({name: KINDS[name] for name in ("height", "event")})
    profiles = fed.profiles(Wanted(known, "event"))
    assert [p.name for p in profiles] == NAMES
    assert "secret" not in str(profiles[0].pack())
    assert all(n % 5 == 0 for p in profiles for c in p.columns for n in [*c.levels.values(), *c.codes.values()])
    assert all(p.rows % 5 == 0 for p in profiles)
    from unpooled.checking import compared

    found = compared(profiles, None, "event").findings
    assert ("code", "pain", "basel") in [(f.what, f.column, f.site) for f in found]
    assert not any(
        f.column in ("sex", "height") for f in found
    )  # geneva's own words and inches are known by its columns
    assert [e["question"] for e in entries(tmp_path / "basel.jsonl")] == ["tables.profile"]


def test_the_shipped_policy_answers_no_check(tables, tmp_path):
    from unpooled.node import policy as policies

    (tmp_path / "policy.toml").write_text(policies.TEMPLATE)
    rules = policies.read(tmp_path / "policy.toml")
    source = written(tables, tmp_path)["basel"]
    fed = Remote(MemoryTransport([Site("basel", source, {}, policy=lambda: rules)]), wait=5, timeout=5)
    (profile,) = fed.profiles(Wanted())
    assert "does not allow checks" in profile.problem
    assert not profile.columns
