"""`SecureSum(fed)`: every SUM is masked, so that the server learns the total and no client's own answer.

Once a run two exchanges of keys; then per SUM two exchanges: the masked answers, and shares of the masks of those who answered or were
lost. `unpooled.secure` has the protocol; this layer carries its messages. Up to a third of the clients may drop out at any point.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled import store, tree
from unpooled.client import KEYS, STEP, Ask, Client, client, digest
from unpooled.errors import BadParameter, MaskingRefused, TooFewClients
from unpooled.federation import Federation, Layer
from unpooled.secure.messages import Begun, Envelopes, Keys, Masked, MaskRequest, RevealRequest, Shares, Total
from unpooled.tree import Tree

if TYPE_CHECKING:
    from unpooled.secure import MaskingCoordinator, MaskingNode

NAME = "secure"  # the layer's letters
STATE = "masking"  # what a client keeps its side of the protocol under
COMBINATIONS = "a masked sum needs every client's whole answer"


# ---- the client's side ----


@client("secure.keys", KEYS, batched=False)
def keys(run: str, client: Client) -> Keys:
    """This client's public keys of a run."""
    client.secrets.pop(STATE, None) if _run(client) != run else None
    return _masking(client, lambda node: node.hello(run))


@client("secure.begin", KEYS, batched=False)
def begin(roster: dict[str, Keys], client: Client) -> Begun:
    """Secrets for the first sum, sealed for the other clients of the roster."""
    return _masking(client, lambda node: node.begin(roster))


@client("secure.envelopes", KEYS, batched=False)
def envelopes(t: int, client: Client) -> Envelopes:
    """Secrets for sum `t`, for a client that missed the last one."""
    return _masking(client, lambda node: node.envelopes(t))


@client("secure.mask", STEP, batched=False)
def mask(up: Tree, client: Client, *, t: int, cohort: list, members: list) -> Masked:
    """The answer with masks that cancel in the total."""
    request = MaskRequest(t, cohort, members)  # type: ignore[arg-type]  # names in a list until they are read
    letter = client.letters.get(NAME, b"")
    return _masking(client, lambda node: node.mask(request, letter, client.asked(), up))


@client("secure.reveal", KEYS, batched=False)
def reveal(request: RevealRequest, client: Client) -> Shares:
    """Shares of the masks, of those who answered and of those who were lost."""
    return _masking(client, lambda node: node.reveal(request))


def masking_node(client: Client) -> MaskingNode:
    """This client's side of the protocol, as it was kept after the last message."""
    from unpooled.secure import MaskingNode

    kept = client.secrets
    if "secret" not in kept:
        kept["secret"] = secrets.token_bytes(32)
    settings = kept.settings() if hasattr(kept, "settings") else {}  # a node's key, pins and least cohort
    return MaskingNode(client.name, kept["secret"], state=kept.get(STATE), **settings)


def _masking(client: Client, act: Callable[[MaskingNode], Any]) -> Any:
    """Let the client's masking node act, and keep its state before anything leaves."""
    node = masking_node(client)
    answer = act(node)
    client.secrets[STATE] = node.to_bytes()  # kept before anything leaves
    return answer


def _run(client: Client) -> str:
    """The run that the client has keys for, "" when it has none."""
    return masking_node(client).run if STATE in client.secrets else ""


# ---- the server's side ----


class SecureSum(Layer):
    """Mask every SUM, so that the server learns totals over clients and no single answer.

    In process this is a test of the arithmetic, not a protection: whoever runs the process holds all rows. Over a network each
    node masks its own answers, and its policy may insist on it (`secure = "required"`).

    Parameters
    ----------
    inner : Federation
        Whose answers are masked.
    min_cohort : int, default=3
        The fewest clients that a total may be of. With two, each could subtract itself and see the other.
    folder : Path, default=None
        Where the protocol is kept between two exchanges, so that a run that is killed goes on with it.

    Notes
    -----
    A GATHER has no total and is refused. So are layers that need single answers (`Compressed`) and cohorts: a masked sum asks all
    clients, of whom more than two thirds must answer.

    References
    ----------
    Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> sites = {name: np.random.default_rng(i).normal(size=(50, 2)) for i, name in enumerate("abc")}
    >>> plain = up.GaussianMixture(2, init_params="random", random_state=0, max_iter=5, tol=0).fit(up.federate(sites))
    >>> masked = up.GaussianMixture(2, init_params="random", random_state=0, max_iter=5, tol=0)
    >>> masked = masked.fit(up.SecureSum(up.federate(sites)))
    >>> bool(np.allclose(plain.means_, masked.means_, rtol=1e-12))
    True
    """

    masks = True  # answers are hidden: totals that show single sites are refused

    def __init__(self, inner: Federation, *, min_cohort: int = 3, folder: Path | None = None):
        super().__init__(inner)
        if min_cohort < 3:
            raise BadParameter(f"min_cohort={min_cohort!r} must be at least 3: of two clients each could see the other")
        self.min_cohort = min_cohort
        self.folder = folder
        self.total: Total | None = None  # the last total with its tag, for nodes to check
        self.evidence: Tree = None  # what the last total was made of, for `unpooled verify`
        self._hub: MaskingCoordinator | None = None

    # ---- what cannot be masked is refused before anything is sent ----

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Keys may be gathered; any other single answer is refused."""
        if ask.kind == KEYS:
            return self.inner.gather(ask, down)
        raise BadParameter(f"{ask.name} is a GATHER, which cannot be masked: choose a model or a start that uses sums")

    def only(self, names: Sequence[str]) -> Federation:
        """All clients, or a refusal: masks need the cohort that exchanged keys."""
        if set(names) == set(self.names):
            return self
        raise BadParameter(f"some of the clients were to be asked, but {COMBINATIONS}: use fraction=1")

    # ---- a masked sum ----

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask for masked answers, then for the shares that take the masks off their total."""
        if ask.by_site:
            raise BadParameter(
                f"the total of {ask.name} shows each site's own numbers, which masks are to hide: use sites=False"
            )
        if any(step.undo is not None for step in ask.steps):
            raise BadParameter(f"{ask.steps[-1].name} needs single answers, but {COMBINATIONS}: leave Compressed out")
        hub = self._begun()
        self._refill(hub)
        request, letters = hub.ask(digest(ask, down))
        options = {"t": request.t, "cohort": list(request.cohort), "members": list(request.members)}
        masked = ask.then(mask, undo=self._take, undo_total=self._unmask, **options)
        return self.inner.sum(masked.telling(NAME, letters), down)

    def _begun(self) -> MaskingCoordinator:
        """The coordinator of this run; at its start keys are exchanged."""
        from unpooled.secure import MaskingCoordinator

        if self._hub is None:
            hub = MaskingCoordinator(secrets.token_hex(16), min_cohort=self.min_cohort)
            for name, found in self._enough(self.inner.gather(keys, hub.run)).items():
                hub.add_keys(name, found)
            for name, begun in self.inner.gather(begin, hub.roster()).items():
                hub.add_begun(name, begun)
            self._hub = hub
            self._keep()
        return self._hub

    def _enough(self, found: dict[str, Keys]) -> dict[str, Keys]:
        """The keys, when at least `min_cohort` clients gave theirs."""
        if len(found) < self.min_cohort:
            why = self.journal.last_refusal()
            raise TooFewClients(
                f"{len(found)} of {len(self.names)} clients gave keys for masked sums, {self.min_cohort} are needed{why}"
            )
        return found

    def _refill(self, hub: MaskingCoordinator) -> None:
        """Clients that missed the last sum are asked for what the coming one needs."""
        late = [name for name in hub.not_begun() if name in self.names]
        if late:
            for name, begun in self.inner.only(late).gather(begin, hub.roster()).items():
                hub.add_begun(name, begun)
        lacking = [name for name in hub.missing() if name in self.names and name not in hub.not_begun()]
        if not lacking:
            return
        for name, sealed in self.inner.only(lacking).gather(envelopes, hub.t).items():
            hub.add_envelopes(name, sealed)

    def _take(self, sent: Masked, name: str) -> Tree:
        """A masked answer; what is added up meanwhile is nothing."""
        hub = self._begun()
        try:
            hub.add_masked(name, sent)
        except MaskingRefused as error:
            raise tree.SchemaError(str(error)) from error
        return np.zeros(())

    def _unmask(self, nothing: Tree, names: Sequence[str]) -> Tree:
        """The second exchange: collect shares of those who answered, and decode the total."""
        from unpooled.secure import decode_total

        hub = self._begun()
        request = hub.close()
        self._keep()  # asked again after a crash, it must be the same
        for name, shares in self.inner.only(request.answered).gather(reveal, request).items():
            hub.add_shares(name, shares)
        self.evidence = hub.state()
        try:
            self.total = hub.finish()
        except TooFewClients as error:  # and why they did not send their shares
            raise TooFewClients(f"{error}{self.journal.last_refusal()}") from error
        self._keep()
        return decode_total(self.total)

    # ---- a run that is stopped and resumed ----

    def snapshot(self) -> Tree:
        """The inner state and the coordinator's side of the masks, for a checkpoint."""
        state = self._hub.state() if self._hub is not None and not self.here() else None
        return {"inner": self.inner.snapshot(), "masking": state}

    def restore(self, saved: Tree) -> None:
        """Go back to a checkpoint; the newest state on disk counts, since a round may have been half done."""
        self.inner.restore(saved.get("inner", {}))
        self._hub, self.total, self.evidence = None, None, None
        state = saved.get("masking")
        if state is not None:
            from unpooled.secure import MaskingCoordinator

            self._hub = MaskingCoordinator.from_state(self._newest(state))

    def _newest(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the folder holds of this run, which may be ahead of the last checkpoint."""
        path = self._path
        kept = store.read(path) if path is not None and path.exists() else saved
        return kept if kept["run"] == saved["run"] else saved

    @property
    def _path(self) -> Path | None:
        """The file of the coordinator's side of the masks."""
        return None if self.folder is None else self.folder / "masking.zip"

    def _keep(self) -> None:
        """Write the coordinator's side of the masks to its file, readable by the owner alone."""
        if self._path is not None and self._hub is not None:
            store.write(self._path, self._hub.state(), secret=True)
