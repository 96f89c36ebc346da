"""A node follows an approved study along, masked or not, and refuses whatever the study does not ask."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
from memory import MemoryTransport

import unpooled as up
from unpooled import certificate, store, study, tree
from unpooled.client import Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.federation import Layer
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.node.ledger import Ledger, entries
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote

COLUMNS = ["age", "bp", "chol"]
NAMES = ["basel", "geneva", "zurich"]
ROWS = {name: np.random.default_rng(i).normal(size=(200, 3)) + i for i, name in enumerate(NAMES)}


def study_file(model: str, secure: bool = True, marks: dict[str, str] | None = None, **more) -> bytes:
    marks = marks or dict.fromkeys(NAMES, "" if not secure else "SHA256:x")
    extra = "".join(f"{k} = {v}\n" for k, v in more.items())
    people = "".join(f'{name} = "{mark}"\n' for name, mark in marks.items())
    layers = "[layers]\nsecure = true\n" if secure else ""
    columns = f"[data]\ncolumns = {COLUMNS}\n".replace("'", '"')
    return f'[study]\ntitle = "Heart"\n{extra}[participants]\n{people}[model]\n{model}\n{columns}{layers}'.encode()


MIXTURE = (
    'name = "GaussianMixture"\nn_components = 2\ninit_params = "random"\nrandom_state = 0\nmax_iter = 8\ntol = 0.0'
)


def make_sites(tmp_path, approved: study.Study, rows=ROWS, vaults=None, **rules):
    from cryptography.hazmat.primitives.asymmetric import ec

    keys = {name: ec.derive_private_key(7 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}
    policy = Policy(studies=[approved.digest], trust_coordinator=False, **rules)
    vaults = vaults if vaults is not None else {name: {} for name in NAMES}
    return [
        Site(
            name,
            Source(Client(name, rows[name]), COLUMNS),
            vaults[name],
            policy=lambda: policy,
            ledger=Ledger(tmp_path / name / "ledger.jsonl"),
            identity=keys[name],
        )
        for name in NAMES
    ]


def fingerprints():
    from cryptography.hazmat.primitives.asymmetric import ec

    from unpooled.secure import fingerprint, identity_bytes

    keys = {name: ec.derive_private_key(7 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}
    return {name: fingerprint(identity_bytes(key)) for name, key in keys.items()}


def masked_study(model=MIXTURE, **more):
    return study.parse(study_file(model, marks=fingerprints(), **more))


def coordinator(transport, approved, folder=None, **options):
    options = {"names": NAMES, "min_clients": 3, "columns": COLUMNS, "wait": 5, "timeout": 5, **options}
    fed = Remote(transport, study=approved, **options)
    inner = SecureSum(fed, folder=folder) if approved.secure else fed
    return Followed(inner, None if folder is None else folder / "totals")


def fit(approved, fed):
    model = approved.estimator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(fed)


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "plain"])
def test_a_followed_study_fits_what_the_same_model_fits_in_process(tmp_path, secure):
    approved = masked_study() if secure else study.parse(study_file(MIXTURE, secure=False))
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)
    model = fit(approved, fed)
    plain = fit(approved, up.federate(ROWS))
    np.testing.assert_allclose(model.means_, plain.means_, rtol=1e-12)
    assert not fed.journal.refusals
    lines = list(entries(tmp_path / "basel" / "ledger.jsonl"))
    sums = [e for e in lines if e["kind"] == "sum"]
    assert sums
    assert all(e["study"] == approved.digest and e["followed"] and e["masked"] == secure for e in sums)


class Steered(Layer):
    """A coordinator that changes the parameters of one round."""

    def __init__(self, inner, round, change):
        super().__init__(inner)
        self.round, self.change = round, change

    def sum(self, ask, down):
        if self.journal.round + 1 == self.round:
            ask, down = self.change(ask, down)
        return self.inner.sum(ask, down)


def moved(ask, down):
    return ask, tree.map(lambda a: np.asarray(a) * (1 + 1e-6), down)


def another(ask, down):
    from unpooled.models.initialization import column_sums

    return column_sums, None


STEERING = {
    "other parameters": (moved, "is not what the study sends"),
    "another question": (another, "where the study asks"),
}


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "plain"])
@pytest.mark.parametrize(("change", "why"), STEERING.values(), ids=STEERING)
def test_a_request_that_the_study_does_not_ask_is_refused(tmp_path, secure, change, why):
    approved = masked_study() if secure else study.parse(study_file(MIXTURE, secure=False))
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)
    with pytest.raises(TooFewClients):
        fit(approved, Steered(fed, 5, change))
    assert len(fed.journal.refusals) == 3
    assert all(why in r.reason for r in fed.journal.refusals)
    refused = [e for e in entries(tmp_path / "basel" / "ledger.jsonl") if e["kind"] == "refused"]
    assert len(refused) == 1


def unfollowed():
    return study.parse(study_file(MIXTURE, secure=False, follow="false"))


CHOICES = {
    "other columns": (lambda fed: fed.columns.reverse(), "other columns than the study's"),
    "another seed": (lambda fed: setattr(fed.journal, "seed", 99), "another seed than the study's"),
}


@pytest.mark.parametrize(("choose", "why"), CHOICES.values(), ids=CHOICES)
def test_columns_and_draws_are_the_study_s(tmp_path, choose, why):
    approved = study.parse(study_file(MIXTURE, secure=False))
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)

    class Choosing(Layer):
        def sum(self, ask, down):
            choose(self)
            return self.inner.sum(ask, down)

    with pytest.raises(TooFewClients, match=why):
        fit(approved, Choosing(fed))


def test_a_study_that_cannot_be_followed_is_answered_only_by_those_who_trust(tmp_path):
    approved = unfollowed()
    sites = make_sites(tmp_path, approved)
    with pytest.raises(TooFewClients, match="only with trust_coordinator = true"):
        fit(approved, coordinator(MemoryTransport(sites), approved))


def test_a_forged_total_is_found_by_its_tag(tmp_path):
    approved = masked_study()
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)

    class Liar(SecureSum):
        def _unmask(self, nothing, names):
            total = super()._unmask(nothing, names)
            limbs = self.total.limbs.copy()
            limbs[1, 0] += np.uint64(1)
            self.total = self.total._replace(limbs=limbs)
            return total

    fed.inner.__class__ = Liar
    with pytest.raises(TooFewClients):
        fit(approved, fed)
    assert all("it was altered" in r.reason for r in fed.journal.refusals)


def test_nothing_is_answered_without_an_approved_study(tmp_path):
    approved, other = masked_study(), masked_study(max_exchanges=7)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, other)), approved)
    with pytest.raises(TooFewClients, match="is not approved"):
        fit(approved, fed)
    plain = Remote(MemoryTransport(make_sites(tmp_path, other)), names=NAMES, columns=COLUMNS, wait=1, timeout=1)
    with pytest.raises(TooFewClients, match="approved studies only"):
        fit(approved, plain)


def test_a_study_that_is_not_the_one_it_names_is_refused(tmp_path):
    approved, other = masked_study(), masked_study(max_exchanges=7)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)
    fed.inner.inner.study = study.Study(other.content, other.config)
    fed.inner.inner.study.__dict__["digest"] = approved.digest
    with pytest.raises(TooFewClients, match="is not the one that it names"):
        fit(approved, fed)


def test_exchanges_beyond_those_of_the_study_are_refused(tmp_path):
    approved = masked_study(max_exchanges=4)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved)
    with pytest.raises(TooFewClients, match="allows 4 exchanges"):
        fit(approved, fed)


def test_nodes_that_are_restarted_in_every_round_follow_to_the_same_bits(tmp_path):
    approved = masked_study()
    vaults = {name: {} for name in NAMES}
    whole = fit(approved, coordinator(MemoryTransport(make_sites(tmp_path / "a", approved)), approved))
    transport = MemoryTransport(make_sites(tmp_path / "b", approved, vaults=vaults))
    fed = coordinator(transport, approved)

    class Restarting(Layer):
        def sum(self, ask, down):
            for site in transport.sites.values():
                site.studies.stop()
            return self.inner.sum(ask, down)

    again = fit(approved, Restarting(fed))
    assert store.dumps(again.means_) == store.dumps(whole.means_)


@pytest.mark.slow
def test_a_node_that_misses_rounds_catches_up(tmp_path):
    approved = masked_study(MIXTURE.replace("max_iter = 8", "max_iter = 10"), min_cohort=3)
    names = [*NAMES, "bern", "chur", "genf"]
    from cryptography.hazmat.primitives.asymmetric import ec

    from unpooled.secure import fingerprint, identity_bytes

    keys = {name: ec.derive_private_key(30 + i, ec.SECP384R1()) for i, name in enumerate(names)}
    marks = {name: fingerprint(identity_bytes(key)) for name, key in keys.items()}
    approved = study.parse(study_file(MIXTURE, marks=marks))
    rules = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = [
        Site(
            n,
            Source(Client(n, np.random.default_rng(i).normal(size=(100, 3))), COLUMNS),
            {},
            policy=lambda: rules,
            identity=keys[n],
        )
        for i, n in enumerate(names)
    ]
    transport = MemoryTransport(sites)
    fed = coordinator(transport, approved, names=names, min_clients=5, timeout=0.2)

    class Away(Layer):
        def sum(self, ask, down):
            transport.away = {105} if 4 <= self.journal.round + 1 <= 6 else set()
            return self.inner.sum(ask, down)

    model = fit(approved, Away(fed))
    assert model.n_iter_ == 8
    late = [r for r in fed.journal.refusals if r.client == "genf"]
    assert {r.round for r in late} <= {4, 5, 6, 7}
    assert fed.journal.exchanges[-1].answered == 6 or "genf" in fed.inner.total.answered


def certified(tmp_path, secure=True):
    approved = masked_study() if secure else study.parse(study_file(MIXTURE, secure=False))
    run = tmp_path / "run"
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved, folder=run)
    model = fit(approved, fed)
    model.save(run / "model")
    store.write_file(run / "study.toml", approved.content)
    certificate.write(run)
    return run, [tmp_path / name / "ledger.jsonl" for name in NAMES]


@pytest.mark.parametrize("secure", [True, False], ids=["masked", "plain"])
def test_a_run_is_certified_and_a_changed_bit_is_found(tmp_path, secure):
    run, ledgers = certified(tmp_path, secure)
    findings = certificate.verify(run, ledgers)
    assert [str(f) for f in findings if f.wrong] == []
    files = [
        run / "study.toml",
        run / "model" / "model.zip",
        *sorted((run / "totals").glob("*.zip")),
        *ledgers,
        run / "certificate.json",
    ]
    rng = np.random.default_rng(0)
    for k in range(24):
        path = files[k % len(files)]
        good = path.read_bytes()
        bad = bytearray(good)
        bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        assert [f for f in certificate.verify(run, ledgers) if f.wrong], f"{path.name}: a changed bit was not found"
        path.write_bytes(good)


REFUSED = {
    "no title": (b"[study]\n[participants]\n[model]\n[data]\n", "has no title"),
    "no section": (b'[study]\ntitle = "x"\n', r"no section \[participants\]"),
    "not text": (b"\xff\xfe\x00", "not UTF-8"),
    "no seed": (study_file(MIXTURE.replace("random_state = 0\n", ""), secure=False), "no random_state"),
    "where to look": (study_file(MIXTURE + "\nmeans_init = [[0.0, 0.0, 0.0]]", secure=False), "chooses where to look"),
    "unknown parameter": (study_file(MIXTURE + "\nn_componets = 3", secure=False), "did you mean 'n_components'"),
    "masked without keys": (study_file(MIXTURE, marks=dict.fromkeys(NAMES, "")), "every participant's fingerprint"),
}


@pytest.mark.parametrize(("content", "why"), REFUSED.values(), ids=REFUSED)
def test_a_study_that_cannot_work_is_refused_in_one_sentence(content, why):
    with pytest.raises(BadParameter, match=why):
        study.parse(content)


class Killed(BaseException):
    """The coordinator's process ends here."""


def kill_after(fed, exchanges: int) -> None:
    """Let the coordinator die before its next exchange, keys included."""
    remote, left = fed.inner.inner, [exchanges]
    exchange = remote._exchange

    def counted(*args):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return exchange(*args)

    remote._exchange = counted


@pytest.mark.parametrize("at", [3, 4, 6, 9])
def test_a_coordinator_killed_at_any_exchange_goes_on_to_the_same_bits(tmp_path, at):
    approved = masked_study()
    whole = fit(approved, coordinator(MemoryTransport(make_sites(tmp_path / "whole", approved)), approved))
    sites = make_sites(tmp_path, approved)
    run, saved = tmp_path / "run", None
    for attempt in range(40):
        fed = coordinator(MemoryTransport(sites), approved, folder=run)
        model = approved.estimator()
        kill_after(fed, at + attempt // 3)  # a run that has no checkpoint yet begins anew
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for moment in model.rounds(fed, saved):
                    saved = store.loads(store.dumps(moment))
            break
        except Killed:
            continue
    else:
        pytest.fail("the run never ended")
    assert store.dumps(model.means_) == store.dumps(whole.means_)
