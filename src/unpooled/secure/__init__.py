"""Masked sums: the coordinator learns the total over the nodes that answered, and no node's own share.

This package knows arrays and trees only: no federation, no network, no files. A layer above carries the messages; each
message is a NamedTuple of names, numbers and uint8 or uint64 arrays (`messages.py`) and travels as any other Tree.

The order of exchanges. `node` is a `MaskingNode`, one per node and run; `hub` is the run's `MaskingCoordinator`::

    once per run
      0  keys     up    node.hello(run)                         -> hub.add_keys(name, ...)
      1  roster   down  hub.roster()
                  up    node.begin(roster)                      -> hub.add_begun(name, ...)
    for each sum
      A  mask     down  request, letters = hub.ask(question)       one letter per node
                  up    node.mask(request, letter, question, answer) -> hub.add_masked(name, ...)
      B  reveal   down  hub.close()                                who answered
                  up    node.reveal(...)                        -> hub.add_shares(name, ...)
                  total = hub.finish(); decode_total(total)
      with the next question: node.check_total(total, question)

`question` is what was asked (question, options, parameters) as bytes, the same at every node and at the coordinator. A
`letter` is what the coordinator sends to one node alone.

Nodes that drop out. A node that misses A is left out of that sum. `hub.missing()` names the nodes without envelopes for
the coming sum; each is asked for `node.envelopes(hub.t)`, which go to `hub.add_envelopes`, and takes part again. Those
in `hub.not_begun()` need the roster first. A node that misses B changes nothing as long as more than two thirds of the
holders of each node's shares answer; otherwise `finish` raises `TooFewClients`, and the same B may be asked again
later. Answers that come after `close` never enter a total.

Rules. After each call, a node's `to_bytes()` goes to its vault before the reply leaves. A question that is asked again
is summed over the nodes of its first total, and fails if one of them is missing. Whatever a node or the coordinator
does not accept raises `MaskingRefused`.

Read in this order: `ring` (numbers as integers modulo 2^192), `masks`, `shamir`, `graph` (who masks with whom), `keys`,
`envelopes`, `tags` (totals that cannot be altered), `layout` (a Tree as one vector), `messages`, `group`; `member` and
`node` for the node's side, `mailbox`, `unmask` and `coordinator` for the coordinator's.

References
----------
Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017.
Bell, Bonawitz, Gascon, Lepoint, Raykova, Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "MaskingNode": "unpooled.secure.node",
    "MaskingCoordinator": "unpooled.secure.coordinator",
    "decode_total": "unpooled.secure.coordinator",
    "fingerprint": "unpooled.secure.keys",
    "identity_bytes": "unpooled.secure.keys",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: only those who mask need `cryptography`."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unpooled.secure' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        if error.name == "cryptography":
            raise ImportError("masked sums need cryptography: pip install 'unpooled[flower]'") from error
        raise
