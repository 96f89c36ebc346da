"""The measurements behind every table of FedConceptEM, most important first, and the tables made of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from _measure import BASELINES, ORACLE, job

HERE = Path(__file__).parent
OURS = "FedConceptEM"
GRID = (0.03, 0.06, 0.1)  # learning rates tried on a split that no table uses
PILOT_SEED = 1000
OTHER_START = 10_000  # random state of clients that train alone a second time


def pilot(rounds: int = 30) -> list[dict]:
    return [job("pilot", OURS, PILOT_SEED, rounds=rounds, options={"lr": lr, "extra": 0}) for lr in GRID]


CODE = {"batch_size": 180, "keep_momentum": True, "schedule": "constant"}
SLOWLY = {"anneal": 0.5, "average": 0.05, "e_steps": 1, "extra": 6}  # ours where clients take one step a round


def other_steps(rounds: int = 200) -> list[dict]:
    """The paper's batches of 128, and one step a round, on the split that no table uses: what they do to the distance
    between methods.
    """
    return [
        job("pilot", m, PILOT_SEED, rounds=rounds, split=split, options=options)
        for options, methods in (
            ({"batch_size": 128}, (OURS, "IFCA", "FedEM")),
            (CODE | SLOWLY, (OURS,)),
            (CODE, ("IFCA", "FedEM")),
        )
        for split in ("lda", "prior")
        for m in methods
    ]


def one_step(seeds: Iterable[int], rounds: int, methods: Iterable[str]) -> list[dict]:
    """Table 1 as the authors' code trains: it drops a batch that is not full, so that a client of 180 rows takes one step
    a round, of a rate that stays and with a momentum that lasts.
    """
    return [
        job("one step", m, s, rounds=rounds, split=split, options=CODE | (SLOWLY if m == OURS else {}))
        for s in seeds
        for split in ("lda", "prior")
        for m in methods
    ]


def table1(seeds: Iterable[int], rounds: int = 200, methods: Iterable[str] = (OURS, *BASELINES)) -> list[dict]:
    return [
        job("table1", m, s, rounds=rounds, split=split, **({"fine_tune": 1, "every": 20} if m == OURS else {}))
        for split in ("lda", "prior")
        for s in seeds
        for m in methods
    ]


def number(seeds: Iterable[int], rounds: int = 100, concepts: int = 3) -> list[dict]:
    """The number of concepts is not told."""
    options = {"n_concepts": "auto", "extra": 0}
    return [job("number", OURS, s, rounds=rounds, concepts=concepts, options=options) for s in seeds]


def noise(seeds: Iterable[int], rounds: int = 200, levels: Iterable[float] = (50.0, 10.0)) -> list[dict]:
    return [job("noise", OURS, s, rounds=rounds, options={"noise": xi}) for xi in levels for s in seeds]


def participation(seeds: Iterable[int], rounds: int = 200, shares: Iterable[float] = (0.2, 0.6)) -> list[dict]:
    return [job("participation", OURS, s, rounds=rounds, options={"fraction": f}) for f in shares for s in seeds]


def counts(seeds: Iterable[int], rounds: int = 200) -> list[dict]:
    """One and five concepts, with three and five models as in the paper; ours finds out that there is one."""
    out = []
    for concepts, models in ((1, 3), (5, 5)):
        for s in seeds:
            ours = {"n_concepts": "auto", "extra": 0} if concepts == 1 else {"n_concepts": models, "extra": 5}
            out.append(job("counts", OURS, s, rounds=rounds, concepts=concepts, options=ours))
            out.append(job("counts", "FedAvg", s, rounds=rounds, concepts=concepts))
            out.append(job("counts", "FedEM", s, rounds=rounds, concepts=concepts, options={"n_learners": models}))
            out.append(job("counts", "FeSEM", s, rounds=rounds, concepts=concepts, options={"n_clusters": models}))
    return out


def epochs(seeds: Iterable[int], rounds: int = 200, numbers: Iterable[int] = (5,)) -> list[dict]:
    methods = (OURS, "FedAvg", "IFCA", "FeSEM", "FedSoft", "FedEM")
    return [
        job("epochs", m, s, rounds=rounds, options={"local_epochs": n}) for n in numbers for m in methods for s in seeds
    ]


COMPRESSED = "encoded, compressed"  # table 1 with all test images, from images that were compressed
COMPLETE = "encoded, complete"  # table 1 with all training and test images as they are
AUTO = OURS + ", auto"
CIFAR10 = (
    OURS,
    "FedEM",
    "IFCA",
    "FedAvg",
    ORACLE,
    "FeSEM",
    "FedSoft",
    "CFL (3)",
    "Local",
    "APFL",
    "CFL",
    "pFedMe",
    AUTO,
)


def cifar10(
    seeds: Iterable[int],
    rounds: int,
    learner: str = "cnn",
    methods: Iterable[str] = CIFAR10,
    lr: float = 0.1,
    code: bool = False,
) -> list[dict]:
    """Table 2: networks from scratch on CIFAR-10, 100 clients that were dealt all of it; `code` as in `encoded`."""
    steps = CODE | {"batch_size": 128} if code else {}
    options = {"lr": lr, "augment": "crop-flip", "clip_norm": 1.0} | steps
    more = {"data": "cifar10", "learner": learner}
    if learner.startswith("resnet18"):  # as the paper has it: nothing but rounds, and a curve since they take long
        return [job("cifar10", m, s, rounds=rounds, **more, every=10, options=options) for s in seeds for m in methods]
    return [
        job("cifar10", m, s, rounds=rounds, **more, options=options | (_slowly(m) if code else {}), **_tuned_too(m))
        for s in seeds
        for m in methods
    ]


def encoded(
    seeds: Iterable[int], rounds: int, lr: float, methods: Iterable[str] = CIFAR10, code: bool = False
) -> list[dict]:
    """Table 1 on CIFAR-10: 300 clients that were dealt three copies of it, a pretrained network.

    With `code` clients train as in the authors' code: batches of 128, a rate that stays and a momentum that lasts.
    """
    more = {"data": "encoded", "learner": "mlp"}
    steps = CODE | {"batch_size": 128} if code else {}
    options = {m: {"lr": lr} | steps | (_slowly(m) if code else {}) for m in methods}
    if "pFedMe" in options:
        options["pFedMe"] |= {"lam": 1.0, "eta": lr}  # with lam=15 and eta=0.01 the shared model hardly moves
    return [
        job("encoded", m, s, rounds=rounds, **more, options=options[m], **_tuned_too(m)) for s in seeds for m in methods
    ]


def beside_alone(seeds: Iterable[int], rounds: int, lr: float, data: str = "encoded", **more: Any) -> list[dict]:
    """What each client can expect of what it keeps, beside training alone with the same network, rate and rounds.

    Training alone twice, from two random starts, shows how much of a difference is luck.
    """
    more |= {"data": data, "learner": "mlp" if data == "encoded" else "cnn", "by_client": True}
    choose = [(OURS, {"personalize": "auto"}), ("Local", {}), ("Local", {"random_state": OTHER_START})]
    return [job("alone", m, s, rounds=rounds, **more, options={"lr": lr} | own) for s in seeds for m, own in choose]


def _slowly(method: str) -> dict:
    """Ours where clients take few steps a round; extra models are for a number that was told."""
    if not method.startswith(OURS):
        return {}
    return SLOWLY if method == OURS else {k: v for k, v in SLOWLY.items() if k != "extra"}


def _tuned_too(method: str) -> dict:
    return {"fine_tune": 1, "unlabelled": True} if method.startswith(OURS) else {}


def variants(seeds: Iterable[int], rounds: int = 200) -> list[dict]:
    """What each of our changes does, and Adam (figure 10)."""
    methods = ("FedConceptEM as printed", "FedConceptEM-Adam", "FedConceptEM, 3 models from the start")
    return [job("variants", m, s, rounds=rounds, split="lda", every=20) for m in methods for s in seeds]


# ---- tables ----


def rows(found: list[dict]) -> list[dict]:
    """One row a method and setting: local and global accuracy in %, mean and spread over seeds, the paper's beside."""
    with open(HERE / "expected.toml", "rb") as file:
        paper = tomllib.load(file)
    groups: dict[tuple, list[dict]] = {}
    for one in found:
        for named in (one, _tuned(one)):
            if named:
                groups.setdefault(setting(named), []).append(named)
    paper |= {"one step": paper["table1"], COMPRESSED: paper["encoded"], COMPLETE: paper["encoded"]}
    return [_row(key, group, paper.get(key[0], {})) for key, group in groups.items()]


def setting(one: dict) -> tuple:
    options = ", ".join(f"{k}={v}" for k, v in one.get("options", {}).items())
    return one["part"], one["method"], one["split"], one.get("concepts", 3), options


def _tuned(one: dict) -> dict | None:
    """The fine-tuned twin of a measurement."""
    if "local_ft" not in one:
        return None
    return one | {"method": one["method"] + "-FT", "local": one["local_ft"], "global": one["global_ft"]}


def _row(key: tuple, group: list[dict], paper: dict) -> dict:
    part, method, split, concepts, options = key
    local, glob = (100 * np.array([g[name] for g in group]) for name in ("local", "global"))
    row = {"part": part, "method": method, "split": split, "concepts": concepts, "options": options}
    row |= {"seeds": len(group), "rounds": group[0]["rounds"], "ours": float(glob.mean()), "spread": float(glob.std())}
    row |= {
        "paper": paper.get(method, {}).get("global"),
        "local": float(local.mean()),
        "local spread": float(local.std()),
    }
    row["paper, local"] = paper.get(method, {}).get("local")
    if all("global_unlabelled" in g for g in group):
        row["unlabelled newcomers"] = 100 * float(np.mean([g["global_unlabelled"] for g in group]))
    if all("right" in g for g in group):
        row["clients in the right concept"] = float(np.mean([g["right"] for g in group]))
        row["concepts found"] = " ".join(str(g["n_concepts"]) for g in group)
    return row
