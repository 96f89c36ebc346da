"""MixedMixture and MixtureImputer as an approved study that every node follows, masked and not: the fit of one process."""

import numpy as np
import pandas as pd
import pytest
from memory import MemoryTransport

import unpooled as up
from unpooled import study
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.node.ledger import Ledger
from unpooled.node.policy import Policy
from unpooled.node.site import Site
from unpooled.node.source import FileTable, TableSource
from unpooled.remote import Remote

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few rounds are enough here
NAMES = ["basel", "geneva", "zurich"]
KINDS = {
    "age": {"kind": "real"},
    "crp": {"kind": "positive"},
    "sex": {"kind": "binary", "levels": ["female", "male"]},
    "ward": {"kind": "category", "levels": ["heart", "lung", "skin"]},
    "visits": {"kind": "count"},
}
MIXTURE = 'name = "MixedMixture"\nn_components = 2\nrandom_state = 0\nmax_iter = 4'
IMPUTER = 'name = "MixtureImputer"\nn_components = 2\nprior = 5.0\nrandom_state = 0\ninit_params = "random"\nchoose_iter = 2\nmax_iter = 20'


def table(n: int, seed: int) -> pd.DataFrame:
    """Patients whose columns hang together, a tenth of the cells missing."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 3, n)
    whole = pd.DataFrame(
        {
            "age": rng.normal(50 + 8 * ill, 5).round(1),
            "crp": np.exp(rng.normal(ill, 0.4)).round(2) + 0.1,
            "sex": np.where(rng.random(n) < 0.3 + 0.2 * ill, "male", "female"),
            "ward": np.array(["heart", "lung", "skin"])[np.where(rng.random(n) < 0.8, ill, rng.integers(0, 3, n))],
            "visits": rng.poisson(1.0 + 2 * ill).astype(float),
        }
    )
    return whole.mask(rng.random(whole.shape) < 0.1)


TABLES = {name: table(100 + 30 * i, i) for i, name in enumerate(NAMES)}
ASKED = table(40, 9)


def identities():
    from cryptography.hazmat.primitives.asymmetric import ec

    return {name: ec.derive_private_key(21 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}


def study_of(model: str, masked: bool) -> study.Study:
    from unpooled.secure import fingerprint, identity_bytes

    people = "".join(f'{name} = "{fingerprint(identity_bytes(key))}"\n' for name, key in identities().items())
    kinds = "".join(f"[columns.{name}]\n" + "".join(f"{k} = {v!r}\n" for k, v in KINDS[name].items()) for name in KINDS)
    layers = "[layers]\nsecure = true\n" if masked else ""
    text = f'[study]\ntitle = "Mixtures"\n[participants]\n{people}[model]\n{model}\n[data]\n{kinds}{layers}'
    return study.parse(text.replace("'", '"').encode())


def fitted_over_nodes(approved: study.Study, masked: bool, folder) -> object:
    """The study's model, fitted over nodes that approved it and follow the fit round by round."""
    policy, keys, sites = Policy(studies=[approved.digest], trust_coordinator=False), identities(), []
    for name, rows in TABLES.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
        source = TableSource(name, FileTable(folder / f"{name}.csv"))
        ledger = Ledger(folder / f"{name}.jsonl")
        sites.append(Site(name, source, {}, policy=lambda: policy, ledger=ledger, identity=keys[name]))
    remote = Remote(MemoryTransport(sites), study=approved, names=NAMES, min_clients=3, wait=5, timeout=20)
    return approved.estimator().fit(Followed(SecureSum(remote) if masked else remote, None))


@pytest.mark.parametrize("masked", [False, True], ids=["bare", "masked"])
@pytest.mark.slow
def test_a_followed_mixed_mixture_is_the_one_of_one_process(tmp_path, masked):
    approved = study_of(MIXTURE, masked)
    there = fitted_over_nodes(approved, masked, tmp_path)
    here = approved.estimator().fit(up.federate(TABLES, schema=KINDS))
    np.testing.assert_allclose(there.score_samples(ASKED), here.score_samples(ASKED), rtol=1e-6)
    np.testing.assert_allclose(there.count_means_, here.count_means_, rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True], ids=["bare", "masked"])
def test_a_followed_imputer_is_the_one_of_one_process(tmp_path, masked):
    approved = study_of(IMPUTER, masked)
    there = fitted_over_nodes(approved, masked, tmp_path)
    here = approved.estimator().fit(up.federate(TABLES, schema=KINDS))
    assert here.level_shares_[2:4].sum() > 0  # regressions of levels take part
    for name, found in there.probabilities(ASKED).items():
        np.testing.assert_allclose(found, here.probabilities(ASKED)[name], atol=1e-6)
    filled, expected = there.transform(ASKED), here.transform(ASKED)
    np.testing.assert_allclose(filled[["age", "crp"]].astype(float), expected[["age", "crp"]].astype(float), rtol=1e-6)
    assert (filled["ward"] == expected["ward"]).all()
