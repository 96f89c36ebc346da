"""How often `Pooling`'s tests reject where sites have one model, how often where they do not, and whether its recommendation is right.

Level and power: federations of 4 and 20 sites of 60 to 240 rows with a normal, a skewed and a binary column; three families. Planted are
shifts of P(x) (means of columns by .25 standard deviations), of P(y) (levels by .4) and of P(y | x) (slopes by .3), up at every second site
and down at the others.

Recommendation: ten federations of each kind (one model, own intercepts, groups of sites, own weights of shared models, own fit),
6 to 12 sites. All strategies are fitted to all rows and judged on 400 new rows of each site. Counted is how often the recommended one
is the best or within one standard error by site of it: first that of their difference, which is small, then that of the best one's
loss; and how often, in the first sense, the strategy would be that the federation was drawn from, had it been known.

    python benchmarks/pooling_tests.py level --repeats 500
    python benchmarks/pooling_tests.py power --repeats 100
    python benchmarks/pooling_tests.py recommend --first 100
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.models.pooling import Pooling, results, small_glm, verdict
from unpooled.models.pooling.rows import prepared
from unpooled.models.pooling.sites import STRATEGIES, densities, site_models

SLOPES = np.array([0.6, -0.4, 0.5])
EFFECT = {"normal": 1.0, "binomial": 1.0, "poisson": 0.5}  # what slopes and differences are multiplied by
LEVEL = {"normal": 0.5, "binomial": -0.4, "poisson": 0.3}
TESTS = (("P(x)", "lr"), ("P(x)", "score"), ("P(y)", "lr"), ("P(y)", "score"),
         ("P(y | x)", "lr"), ("P(y | x)", "score"), ("intercepts", "lr"), ("slopes", "lr"))  # fmt: skip


def columns(rng: np.random.Generator, n: int, shift: np.ndarray | float = 0.0) -> np.ndarray:
    """A normal, a skewed and a binary column, each of standard deviation 1."""
    binary = (rng.random(n) < 0.3) / np.sqrt(0.21)
    return np.column_stack([rng.normal(size=n), rng.exponential(size=n) - 1, binary]) + shift


def targets(rng: np.random.Generator, family: str, eta: np.ndarray) -> np.ndarray:
    if family == "normal":
        return eta + rng.normal(size=len(eta))
    if family == "binomial":
        return (rng.random(len(eta)) < small_glm.mean(family, eta)).astype(float)
    return rng.poisson(np.exp(eta)).astype(float)


def planted(rng: np.random.Generator, family: str, sites: int, kind: str) -> dict[str, tuple]:
    """A federation in which nothing, P(x), P(y) or P(y | x) differs between sites."""
    found = {}
    for i in range(sites):
        n = int(rng.integers(60, 241))
        sign = 1 if i % 2 else -1
        moved = 0.25 * sign * (kind == "P(x)")
        level = LEVEL[family] + 0.4 * sign * (kind == "P(y)")
        slopes = EFFECT[family] * (SLOPES + 0.3 * sign * (kind == "P(y | x)"))
        x = columns(rng, n, moved)
        found[f"site {i}"] = (x, targets(rng, family, level + x @ slopes))
    return found


def p_values(family: str, sites: int, kind: str, seed: int) -> list[float]:
    rng = np.random.default_rng([seed, sites, *map(ord, kind + family)])
    fed = federate(planted(rng, family, sites, kind), threads=1)
    model = Pooling(family, cv=None, sites=False, random_state=seed).fit(fed)
    return [model.tests_[name][test]["p_value"] for name, test in TESTS]


def rates(kinds: tuple[str, ...], args: argparse.Namespace) -> None:
    """Share of federations in which each test rejects at 5 %."""
    print(f"{args.repeats} federations a line; the standard error of .05 is {np.sqrt(0.0475 / args.repeats):.4f}")
    print(f"{'':<34}" + "".join(f"{name + ' ' + test:>16}" for name, test in TESTS), flush=True)
    for kind in kinds:
        for family in args.families:
            for sites in args.sites:
                p = np.array([p_values(family, sites, kind, args.first + s) for s in range(args.repeats)])
                line = f"{kind + ' shifted, ' + family + ', ' + str(sites) + ' sites':<34}"
                print(line + "".join(f"{rate:>16.3f}" for rate in (p < 0.05).mean(0)), flush=True)


# ---- the recommendation ----


class Kept(Pooling):
    """Pooling that remembers the fitted strategies."""

    def _compare_strategies(self, fed: Any, plan: Any, state: Any) -> None:
        self.kept = results.fitted(plan, state)
        self.losses = results.held_out(fed, plan, self.kept)
        super()._compare_strategies(fed, plan, state)


def drawn(
    rng: np.random.Generator, family: str, kind: str
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Rows and new rows of every site of a federation of one kind: (x, y, new x, new y)."""
    sites = int(rng.integers(6, 13))
    components = rng.normal(size=(3 if sites > 8 else 2, 3))  # of groups, and those that are mixed
    found = []
    for i in range(sites):
        n = int(rng.integers(80, 301))
        level, slopes = LEVEL[family], SLOPES
        weights = rng.dirichlet(np.full(len(components), 0.4))
        if kind == "own intercepts":
            level = level + rng.normal()
        if kind == "own fit":
            level, slopes = level + rng.normal(), rng.normal(size=3)
        x = columns(rng, n + 400)
        each = np.tile(slopes, (len(x), 1))
        if kind == "groups":
            each = np.tile(components[i % len(components)], (len(x), 1))
        if kind == "own weights":
            each = components[rng.choice(len(components), size=len(x), p=weights)]
        y = targets(rng, family, level + EFFECT[family] * (x * each).sum(1))
        found.append((x[:n], y[:n], x[n:], y[n:]))
    return found


def new_losses(model: Kept, data: list[tuple], family: str) -> np.ndarray:
    """(sites, strategies) mean loss of new rows under every strategy, fitted to all rows."""
    frame, plan, found = model.kept.partial.frame, model._plan, []
    chosen = verdict.chosen(model.losses, plan.sizes, model.n_sites_)
    for i, (x, y, new_x, new_y) in enumerate(data):
        own = prepared(frame, Client(f"site {i}", x, y), family, plan.cv)
        z = np.column_stack([np.ones(len(new_x)), (new_x - frame.mean) / frame.sd])
        new_y = (new_y - frame.y_mean) / frame.y_sd if family == "normal" else new_y
        rows = small_glm.Rows(z, z, new_y, np.ones(len(z)))
        models = site_models(model.kept, own, family, plan.sizes)
        found.append([-densities(models[c], family, rows)[:, -1].mean() for c in chosen])
    return np.array(found)


def within_one_error(loss: np.ndarray, strategy: int, paired: bool) -> bool:
    """Whether a strategy is the best or within one standard error by site of it: that of their difference, or of the best one's loss."""
    best = int(loss.mean(0).argmin())
    apart = loss[:, strategy] - loss[:, best]
    spread = apart if paired else loss[:, best]
    return bool(apart.mean() <= spread.std(ddof=1) / np.sqrt(len(spread)))


def recommend(args: argparse.Namespace) -> None:
    for family in args.families:
        for kind in ("one model", "own intercepts", "groups", "own weights", "own fit"):
            said, losses = [], []
            for s in range(args.federations):
                rng = np.random.default_rng([args.first + s, *map(ord, kind + family)])
                data = drawn(rng, family, kind)
                fed = federate({f"site {i}": (x, y) for i, (x, y, _, _) in enumerate(data)}, threads=1)
                model = Kept(family, sites=False, random_state=0).fit(fed)
                losses.append(new_losses(model, data, family))
                said.append(model.recommended_)
            strategies = [STRATEGIES.index(name) for name in said]
            strict, usual = (
                sum(within_one_error(*pair, paired) for pair in zip(losses, strategies)) for paired in (True, False)
            )
            always = sum(within_one_error(loss, STRATEGIES.index(kind), True) for loss in losses)
            best = [STRATEGIES[int(loss.mean(0).argmin())] for loss in losses]
            print(
                f"{family:<9} {kind:<15} {strict:2d} and {usual:2d} of {len(said)}; its own strategy always: {always:2d}; "
                f"said {counted(said)}; best {counted(best)}",
                flush=True,
            )


def counted(names: list[str]) -> str:
    return ", ".join(f"{strategy} {names.count(strategy)}" for strategy in STRATEGIES if strategy in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("level", "power", "recommend"))
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--federations", type=int, default=10, help="of each kind, for recommend")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sites", type=int, nargs="+", default=[4, 20])
    parser.add_argument("--families", nargs="+", default=list(small_glm.FAMILIES))
    parser.add_argument("--kinds", nargs="+", default=["P(x)", "P(y)", "P(y | x)"], help="of shifts, for power")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.part == "recommend":
        recommend(args)
    else:
        rates(("nothing",) if args.part == "level" else tuple(args.kinds), args)


if __name__ == "__main__":
    main()
