"""One measurement of the FedConceptEM experiments: build the clients, fit one method, score it. A job and its result are
plain dicts.
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from math import inf
from typing import Any

import _alone
import numpy as np
from _published_ifca import PublishedIFCA

from unpooled.arrays import to_numpy
from unpooled.data.federate import federate
from unpooled.datasets import encoder, shared, shift
from unpooled.report import concepts as diagnosis
from unpooled.saving import estimator_class

SPLITS = {"lda": {"alpha": 1.0, "skew": "lda"}, "prior": {"alpha": 1.0, "skew": "lda_prior"}}
SHARES = {1: (1.0,), 3: (0.5, 0.25, 0.25), 5: (0.2,) * 5}  # of clients, by concept: the paper's for three
CORRUPTED = {1: (0.4,), 3: (0.4, 0.2, 0.2), 5: (0.2,) * 5}  # 20 of 50 %, 5 of 25 %, 5 of 25 %
TRAINING = {"batch_size": 32, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine"}
CLIENTS = {"fashion": 300, "cifar10": 100, "encoded": 300}  # as in the paper's tables 1 and 2; all rows are dealt
COPIES = {"encoded": 3}  # of CIFAR-10, dealt to 300 clients as in the paper's table 1
ENCODED = {"side": 128, "blocks": encoder.LATE}
TRAINING |= {"personalize": "none"}  # as the paper scores its methods: without the clients' own choices
SMALL_CLIENTS = 30  # of 47 digits
ADAPT_ROWS = 1000  # labelled rows of an unseen client; the other 9,000 are its test
BASELINES = {
    "FedAvg": ("FedAvg", {}),
    "IFCA": ("IFCA", {"n_clusters": 3}),
    "FeSEM": ("FeSEM", {"n_clusters": 3}),
    "FedEM": ("FedEM", {"n_learners": 3}),
    "FedEM as published": ("FedEM", {"n_learners": 3, "weighting": "clients"}),
    "FedSoft": ("FedSoft", {"n_clusters": 3}),
    "APFL": ("APFL", {}),
    "CFL": ("ClusteredFL", {}),
    "CFL (3)": ("ClusteredFL", {"max_clusters": 3}),
    "Local": ("LocalOnly", {}),
    "pFedMe": ("PFedMe", {}),
}
PUBLISHED_IFCA = "IFCA as published"
ORACLE = "FedAvg, told the concepts"  # one for the clients of each: no method of clusters can expect more
PRINTED = {"e_steps": 1, "full_steps": False, "label_memory": 0.0}
METHODS = {
    "FedConceptEM": {"n_concepts": 3, "extra": 3},
    "FedConceptEM, auto": {"n_concepts": "auto"},
    "FedConceptEM, annealed": {"n_concepts": 3, "extra": 3, "anneal": 0.5},
    "FedConceptEM, 3 models from the start": {"n_concepts": 3},
    "FedConceptEM as printed": {"n_concepts": 3, **PRINTED},
    "FedConceptEM-Adam": {"n_concepts": 3, **PRINTED, "adam": True},
}


def job(part: str, method: str, seed: int, *, rounds: int = 200, split: str = "lda", **changes: Any) -> dict:
    """What to measure: `options` change the method, `data` the clients."""
    return {"part": part, "method": method, "seed": seed, "rounds": rounds, "split": split, **changes}


def measure(wanted: dict, small: bool, device: str | None, deadline: float = inf) -> dict:
    """The job with local and global accuracy and what else was found.

    A run of which a curve is wanted (`every`) ends at the first point after the deadline, in seconds of the clock.
    """
    made, unseen = dealt(wanted, small)
    if wanted["method"] == ORACLE:
        return wanted | oracle(wanted, small, device, made, unseen)
    model = estimator(wanted, small, device)
    fed = federation(made.train, device, wanted.get("learner", "cnn"))
    start = time.perf_counter()
    curve, worth, state = [], [], None
    for moment in model.rounds(fed):
        state, done = moment.state, len(moment.history)
        if hasattr(state, "sums") and done % 10 == 0:
            worth.append([done, *worth_of_models(state)])
        if done and wanted.get("every") and done % wanted["every"] == 0:
            model.history_ = moment.history
            model.finish(fed, state)
            curve.append([done, global_accuracy(model, unseen), local_accuracy(model, made.test)])
            print(wanted["method"], done, round(time.perf_counter() - start), curve[-1], flush=True)
            if time.time() > deadline:
                wanted = wanted | {"rounds": done}
                break
    seconds = time.perf_counter() - start
    found = wanted | {"device": device or "cpu", "seconds": seconds}
    found["round_seconds"] = float(np.median([r["seconds"] for r in model.history_]))
    found |= {"local": local_accuracy(model, made.test), "global": global_accuracy(model, unseen), "curve": curve}
    if hasattr(model, "n_concepts_"):
        found |= {"n_concepts": model.n_concepts_, "right": diagnosis.right(model, made.concepts)}
        found["worth"] = worth
        found["shares"] = [
            [r["round"], r["n_concepts"], np.round(r["shares"], 4).tolist()] for r in model.history_[::5]
        ]
    if hasattr(model, "weights_"):
        found["shares of rows"] = np.round(model.weights_, 4).tolist()
    if wanted.get("unlabelled") and hasattr(model, "n_concepts_"):
        found["global_unlabelled"] = unlabelled_accuracy(model, unseen)
    if "gain_" in vars(model):
        found["losses"] = {name: [own["alone"], own["shared"], own["kept"]] for name, own in model.comparison_.items()}
    if wanted.get("by_client"):
        found["corruptions"] = made.corruptions
        found |= dict(zip(("by_client", "errors"), _columns(_alone.expected(model, made, tests(wanted, made, unseen)))))
    if wanted.get("fine_tune"):
        model.fine_tune = wanted["fine_tune"]
        model.finish(fed, state)
        found |= {"local_ft": local_accuracy(model, made.test), "global_ft": global_accuracy(model, unseen)}
    return found


def _columns(pairs: dict[str, tuple]) -> list[dict]:
    """{name: (a, b)} as [{name: a}, {name: b}]."""
    return [dict(zip(pairs, values)) for values in zip(*pairs.values())]


def worth_of_models(state: Any) -> tuple[list[int], list[float]]:
    """(models left, the fraction of its information that a row of each model loses without it)."""
    sums = state.sums
    loss = to_numpy(sums.loss) / np.maximum(to_numpy(sums.mass), 1e-12)
    mean = float(sums.loglik) / float(sums.mass.sum())
    return to_numpy(state.ids).tolist(), np.round(loss / max(mean, 1e-12), 4).tolist()


def oracle(wanted: dict, small: bool, device: str | None, made: shift.Shifted, unseen: list) -> dict:
    """Local and global accuracy of one FedAvg for each concept's clients."""
    local, glob, start = {}, [], time.perf_counter()
    for concept, one in enumerate(unseen):
        names = [name for name, c in made.concepts.items() if c == concept]
        model = estimator(wanted | {"method": "FedAvg"}, small, device)
        model.fit(federation({name: made.train[name] for name in names}, device, wanted.get("learner", "cnn")))
        local |= {name: local_accuracy(model, {name: made.test[name]}) for name in names}
        glob.append(global_accuracy(model, [one]))
    means = {"local": float(np.mean(list(local.values()))), "global": float(np.mean(glob))}
    return {"seconds": time.perf_counter() - start, **means}


# ---- clients and models ----


def federation(train: dict, device: str | None, learner: str = "cnn") -> Any:
    if device and learner.startswith("resnet"):  # 12 clients at a time: their networks are large
        return federate(train, stack_cells=2**24, threads=1)
    threads = 2 if device else int(os.environ.get("OMP_NUM_THREADS", 0)) or None
    return federate(train, stack_cells=2**27 if device else 4_000_000, threads=threads)


_DEALT: dict[tuple, tuple] = {}


def dealt(wanted: dict, small: bool) -> tuple[shift.Shifted, list]:
    """The clients of a job; those of the last job are kept, since methods are compared on the same clients."""
    kept = {"concepts": 3, "data": "fashion", "copies": None} | wanted
    key = (small, *(kept[name] for name in ("seed", "split", "concepts", "data", "copies")))
    if key not in _DEALT:
        _DEALT.clear()
        _DEALT[key] = clients(wanted, small)
    return _DEALT[key]


_TESTS: dict[int, _alone.Tests] = {}


def tests(wanted: dict, made: shift.Shifted, unseen: list) -> _alone.Tests:
    """Test images corrupted like those of these clients, kept for the next method."""
    if id(made) not in _TESTS:
        _TESTS.clear()
        _, _, x, y = images(False, wanted["data"])
        encode = features if wanted["data"] == "encoded" else None
        _TESTS[id(made)] = _alone.Tests(x, y, unseen[0][0], encode, wanted.get("corrupted_tests"))
        _TESTS[id(made)].prepare(made)
    return _TESTS[id(made)]


def clients(wanted: dict, small: bool) -> tuple[shift.Shifted, list]:
    concepts, data = wanted.get("concepts", 3), wanted.get("data", "fashion")
    x, y, x_test, y_test = images(small, data)
    copies = 1 if small else wanted.get("copies", COPIES.get(data, 1))
    number = SMALL_CLIENTS if small else CLIENTS[data] * copies // COPIES.get(data, 1)
    x, y = (np.concatenate([a] * copies) for a in (x, y))
    made = shift.build(
        x,
        y,
        number,
        rows=None if small else len(y) // number,
        concepts=SHARES[concepts],
        corrupted=CORRUPTED[concepts],
        random_state=wanted["seed"],
        **SPLITS[wanted["split"]],
    )
    unseen = shift.unseen(x_test, y_test, made.maps)
    if small or data == "fashion":
        return made, unseen
    return encoded(made, unseen) if data == "encoded" else centred(made, unseen)


def centred(made: shift.Shifted, unseen: list) -> tuple[shift.Shifted, list]:
    """The same clients with pixels about 0 and of spread about 1: a fixed map, so that nobody asks anybody."""
    train, test = ({name: (_centred(x), y) for name, (x, y) in part.items()} for part in (made.train, made.test))
    x = _centred(unseen[0][0])
    return made._replace(train=train, test=test), [(x, y) for _, y in unseen]


def _centred(x: np.ndarray) -> np.ndarray:
    return (x - 0.5) * 4


def encoded(made: shift.Shifted, unseen: list) -> tuple[shift.Shifted, list]:
    """The same clients with features of a frozen network in place of images, scaled by the moments of all training rows."""
    x_test = features(unseen[0][0])
    parts = [{name: (features(x), y) for name, (x, y) in part.items()} for part in (made.train, made.test)]
    rows = np.concatenate([x for x, _ in parts[0].values()])
    mean, spread = rows.mean(0), rows.std(0)
    train, test = ({name: ((x - mean) / spread, y) for name, (x, y) in part.items()} for part in parts)
    return made._replace(train=train, test=test), [((x_test - mean) / spread, y) for _, y in unseen]


def features(x: np.ndarray) -> np.ndarray:
    """(n, 512) of flat images (n, 3 x 32 x 32) between 0 and 1."""
    pixels = np.moveaxis(x.reshape(-1, 3, 32, 32), 1, -1)
    return encoder.encode((255 * pixels).round().astype(np.uint8), _device(), **ENCODED)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def images(small: bool, data: str = "fashion") -> tuple[np.ndarray, ...]:
    """Fashion-MNIST or CIFAR-10; small: scikit-learn's digits, of which a fifth is the unseen clients'."""
    if not small:
        return tuple(shared.fashion_mnist() if data == "fashion" else shared.cifar10())
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((x / 16).reshape(-1, 8, 8), y, test_size=0.2, random_state=0, stratify=y)
    return x, y, x_test, y_test


def estimator(wanted: dict, small: bool, device: str | None) -> Any:
    training = TRAINING | {"batch_size": 8, "schedule": "constant"} if small else TRAINING
    network = "mlp" if small else wanted.get("learner", "cnn")
    settings = {"learner": network, "random_state": wanted["seed"], "device": device, **training}
    settings |= {"max_iter": wanted["rounds"], "classes": list(range(10))}
    name = wanted["method"]
    if name == PUBLISHED_IFCA:
        return PublishedIFCA(3, **settings | wanted.get("options", {}))
    if name in BASELINES:
        public, own = BASELINES[name]
        make = estimator_class(f"baselines.{public}")
    else:
        make, own = estimator_class("FedConceptEM"), METHODS[name]
    return make(**settings | own | wanted.get("options", {}))


# ---- scores ----


def local_accuracy(model: Any, test: dict) -> float:
    """The mean over clients of the accuracy on their own held-out rows."""
    known = model.clients_
    return float(
        np.mean([(model.predict(x, client=c if c in known else None) == y).mean() for c, (x, y) in test.items()])
    )


def global_accuracy(model: Any, unseen: list) -> float:
    """The mean over concepts of the accuracy of a client that took no part, after it has seen its labelled rows."""
    out = []
    for x, y in unseen:
        few = min(ADAPT_ROWS, len(y) // 2)
        out.append((newcomer(model, x[:few], y[:few]).predict(x[few:]) == y[few:]).mean())
    return float(np.mean(out))


def unlabelled_accuracy(model: Any, unseen: list) -> float:
    """As `global_accuracy`, of newcomers that have inputs alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inputs that leave the concept open
        return float(
            np.mean([(model.adapt(x[:ADAPT_ROWS]).predict(x[ADAPT_ROWS:]) == y[ADAPT_ROWS:]).mean() for x, y in unseen])
        )


def newcomer(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """The model for a client that took no part: adapted; in CFL its best cluster; else the one for all, which for
    clients that trained alone is the mean of their models.
    """
    if hasattr(model, "adapt"):
        return model.adapt(x, y)
    if hasattr(model, "cluster_of_"):
        joined = [model.with_own({"cluster": np.asarray(i)}) for i in range(len(model.theta_))]
        return max(joined, key=lambda m: (m.predict(x) == y).mean())
    if type(model).__name__ == "LocalOnly":
        return model.with_own({"theta": np.mean([own["theta"] for own in model.clients_.values()], axis=0)})
    return model
