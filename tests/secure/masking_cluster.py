"""Nodes and a coordinator in one process, with losses where a test wants them."""

from typing import NamedTuple

import numpy as np

from unpooled.secure import MaskingCoordinator, MaskingNode


def make_nodes(n, seed=0, **options):
    """n nodes with fixed secrets."""
    rng = np.random.default_rng(seed)
    names = [f"node{i:03d}" for i in range(n)]
    return {name: MaskingNode(name, rng.bytes(32), **options) for name in names}


class Cluster(NamedTuple):
    nodes: dict
    hub: MaskingCoordinator

    def answers(self, question, values, lost=()):
        """Exchange A: ask, and take the answers of those who are not lost."""
        request, letters = self.hub.ask(question)
        out = {}
        for name in request.cohort:
            if name not in lost:
                out[name] = self.nodes[name].mask(request, letters[name], question, values[name])
        return request, out

    def reveal(self, lost=()):
        """Exchange B: close, and take the shares of those who are not lost."""
        reveal = self.hub.close()
        for name in reveal.answered:
            if name not in lost:
                self.hub.add_shares(name, self.nodes[name].reveal(reveal))
        return reveal

    def sum(self, question, values, lost_a=(), lost_b=()):
        """A whole sum."""
        _, answers = self.answers(question, values, lost_a)
        for name, masked in answers.items():
            self.hub.add_masked(name, masked)
        self.reveal(lost_b)
        return self.hub.finish()

    def rejoin(self):
        """Nodes that missed the last sum send their envelopes for the coming one."""
        for name in self.hub.missing():
            self.hub.add_envelopes(name, self.nodes[name].envelopes(self.hub.t))


def begin(n, run="run", seed=0, min_cohort=3, lost=(), **options):
    """A cluster after exchanges 0 and 1."""
    nodes = make_nodes(n, seed, min_cohort=min_cohort, **options)
    hub = MaskingCoordinator(run, min_cohort=min_cohort)
    for name, node in nodes.items():
        hub.add_keys(name, node.hello(run))
    roster = hub.roster()
    for name, node in nodes.items():
        if name not in lost:
            hub.add_begun(name, node.begin(roster))
    return Cluster(nodes, hub)
