"""What does a masked sum of 5,612 numbers cost (a full-covariance mixture, d = 32, K = 10)? Nodes and coordinator in one process.

A node should take at most 10 ms an exchange among 10 nodes and 50 ms among 100, send at most 3.3 times the plain bytes, and the
coordinator at most 1 s with 20 of 100 nodes lost. CPU time, medians over nodes and turns. As over a network, a node is restored from its
state for each message and writes it afterwards; both count.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import contextmanager
from fractions import Fraction
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from unpooled import wire
from unpooled.secure import MaskingCoordinator, MaskingNode, decode_total, keys

NUMBERS = 5612
CASES = ((10, 0, 0), (100, 0, 0), (100, 10, 10))  # nodes, lost in A, lost in B


class Clock:
    """CPU seconds by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def measure(self, what: str):
        start = process_time()
        yield
        self.spent[what].append(process_time() - start)

    def ms(self, what: str) -> float:
        return 1e3 * median(self.spent[what])


class Vault:
    """A node between two messages."""

    def __init__(self, name: str, secret: bytes) -> None:
        self.name, self.secret = name, secret
        self.state: bytes | None = None

    def act(self, work: Callable[[MaskingNode], Any]) -> Any:
        node = MaskingNode(self.name, self.secret, state=self.state)
        out = work(node)
        self.state = node.to_bytes()
        return out


def begin(n: int, clock: Clock) -> tuple[dict[str, Vault], MaskingCoordinator]:
    rng = np.random.default_rng(0)
    nodes = {f"hospital-{i:03d}": Vault(f"hospital-{i:03d}", rng.bytes(32)) for i in range(n)}
    hub = MaskingCoordinator("benchmark")
    for name, node in nodes.items():
        hub.add_keys(name, node.act(lambda node: node.hello("benchmark")))
    roster = hub.roster()
    for name, node in nodes.items():
        if len(clock.spent["begin"]) < 5:
            keys.is_signed_by_identity.cache_clear()  # nodes in one process would share their checks
        with clock.measure("begin"):
            begun = node.act(lambda node: node.begin(roster))
        hub.add_begun(name, begun)
    clock.spent["begin"] = clock.spent["begin"][:5]
    return nodes, hub


def answers(nodes: Collection[str]) -> dict[str, np.ndarray]:
    """Numbers of both signs and sizes from 1e-12 to 1e14."""
    rng = np.random.default_rng(1)
    size = 10.0 ** rng.uniform(-12, 14, NUMBERS)
    return {name: rng.normal(size=NUMBERS) * size for name in nodes}


def one_sum(nodes, hub, values, question: bytes, lost_a: Collection[str], lost_b: Collection[str], clock: Clock):
    """A whole sum, each side's work on its own clock; gives the total and the bytes that one node sent and got."""
    server = 0.0

    def serve(work: Callable):
        nonlocal server
        start = process_time()
        out = work()
        server += process_time() - start
        return out

    request, letters = serve(lambda: hub.ask(question))
    sent = {}
    for name in request.cohort:
        if name not in lost_a:
            with clock.measure("A"):
                masked = nodes[name].act(
                    lambda node: node.mask(request, letters[node.name], question, values[node.name])
                )
            serve(lambda name=name, masked=masked: hub.add_masked(name, masked))
            sent["A up"], sent["A down"] = len(wire.pack({}, masked)), len(letters[name]) + len(wire.pack({}, request))
    reveal = serve(hub.close)
    for name in reveal.answered:
        if name not in lost_b:
            with clock.measure("B"):
                shares = nodes[name].act(lambda node: node.reveal(reveal))
            serve(lambda name=name, shares=shares: hub.add_shares(name, shares))
            sent["B up"], sent["B down"] = len(wire.pack({}, shares)), len(wire.pack({}, reveal))
    total = serve(hub.finish)
    clock.spent["server"].append(server)
    return total, sent


def error(total, values: dict[str, np.ndarray]) -> float:
    """The largest error of a total, relative to the sum of magnitudes, against fractions; every 11th number."""
    columns = np.stack([values[name] for name in total.answered])[:, ::11].T.tolist()
    pairs = zip(decode_total(total)[::11].tolist(), columns)
    return max(float(abs(Fraction(got) - sum(map(Fraction, c))) / sum(abs(Fraction(v)) for v in c)) for got, c in pairs)


def run(n: int, n_lost_a: int, n_lost_b: int, turns: int) -> None:
    clock = Clock()
    nodes, hub = begin(n, clock)
    values = answers(nodes)
    plain = len(wire.pack({}, next(iter(values.values()))))
    rng = np.random.default_rng(2)
    sent: dict[str, int] = {}
    for turn in range(turns):
        lost = rng.permutation(list(nodes))[: n_lost_a + n_lost_b].tolist()
        total, sent = one_sum(nodes, hub, values, b"turn %d" % turn, lost[:n_lost_a], lost[n_lost_a:], clock)
        for name in hub.missing():
            hub.add_envelopes(name, nodes[name].act(lambda node: node.envelopes(hub.t)))
    with clock.measure("check"):
        nodes[total.answered[0]].act(lambda node: node.check_total(total, b"turn %d" % (turns - 1)))
    up = (sent["A up"] + sent["B up"]) / plain
    print(
        f"{n:5d} {n_lost_a:3d} + {n_lost_b:2d} {len(hub.group.neighbours[total.answered[0]]):5d} {clock.ms('begin'):9.1f} "
        f"{clock.ms('A'):8.1f} {clock.ms('B'):8.1f} {clock.ms('check'):8.1f} {clock.ms('server') / 1e3:10.3f} "
        f"{up:8.2f} {sent['A down'] / 1e3:8.1f} {sent['B down'] / 1e3:8.1f} {error(total, values):9.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    print(f"{NUMBERS} numbers, {NUMBERS * 8 / 1e3:.1f} kB plain; CPU time, median of {given.turns} sums")
    print(
        "nodes  lost A+B peers begin, ms    A, ms    B, ms check, ms  server, s up, x plain A, kB down B, kB down error/sum|x|"
    )
    for n, n_lost_a, n_lost_b in CASES:
        run(n, n_lost_a, n_lost_b, given.turns)


if __name__ == "__main__":
    main()
