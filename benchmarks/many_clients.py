"""Ten thousand clients of a hundred rows: the cost of a round against the same rows pooled, and the memory above the data."""

import argparse
import resource
import statistics
import time
import warnings

import numpy as np

import unpooled as up
from unpooled.data.federate import federate
from unpooled.models.mixture.em import e_step, personal_e_step

K, D, ROWS = 5, 16, 100


def rss() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1e6


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def cpu(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main(clients: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * ROWS, D))
    owner = rng.permutation(np.repeat(np.arange(clients), ROWS))
    federate(x[:1000], by=owner[:1000] % 7).sum(e_step.using(shape="full"), (_params(x[:1000]),))  # everything imported
    with_data, start = rss(), time.process_time()
    many = federate(x, by=owner)
    print(f"{clients} clients from pooled rows: {time.process_time() - start:.2f} s CPU")
    one, params = federate(x), (_params(x),)
    ask = e_step.using(shape="full")
    personal = personal_e_step.using(shape="full", ids=[0])
    ways = {
        "pooled": lambda: one.sum(ask, params),
        "clients": lambda: many.sum(ask, params),
        "personal weights": lambda: many.sum(personal, params),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, work in ways.items():
            found[name].append(cpu(work))
    for name in ("clients", "personal weights"):
        ratios = [a / b for a, b in zip(found[name], found["pooled"])]
        times = f"{statistics.median(ratios):.2f} times pooled ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:<18}{statistics.median(found[name]):.2f} s CPU a round, {times}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        up.GaussianMixture(K, max_iter=3, random_state=0).fit(many)
    print(
        f"memory above the data at its peak, a whole fit included: {peak() - with_data:.2f} GB (data {x.nbytes / 1e9:.2f} GB)"
    )


def _params(x: np.ndarray):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return up.GaussianMixture(K, max_iter=2, random_state=0).fit(x[:1000]).params()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.clients, arguments.repeats)
