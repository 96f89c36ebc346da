"""The rows of the run that is asked about: which columns it uses, checked and read once per run. Nothing is sent."""

from __future__ import annotations

import logging
from typing import Any

from unpooled import wire
from unpooled.data.schema import Wanted
from unpooled.node.changes import admit_table
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused, Unbegun
from unpooled.node.rows import Rows
from unpooled.node.secrets import node_secret
from unpooled.node.session import Session
from unpooled.node.vault import Vault, forget_old_runs

log = logging.getLogger("unpooled.node")


class OpenTable:
    """A node's table, opened with the columns of one run at a time.

    Parameters
    ----------
    name : str
        The node's name, for refusals.
    source : Source or TableSource
        Where its rows come from.
    vault : Vault
        Where the columns of each run are kept, so that a restarted node knows them.
    """

    def __init__(self, name: str, source: Any, vault: Vault):
        """Nothing is read yet."""
        self.name, self.source, self.vault = name, source, vault
        self._rows: tuple[Any, Rows] | None = None

    def rows(self, request: dict[str, Any], policy: Policy, session: Session | None) -> Rows:
        """The rows of this run, read once: the first message of a run says which columns, in which order."""
        columns, wanted = self._asked_for(request)
        policy.check_columns(columns, self.source.columns, self.name)
        self.check_labels(wanted, policy)
        if self._rows is None or self._rows[0] != (request["run"], columns, wanted):
            rows = self._read(columns, wanted)
            if session is not None and policy.min_rows_per_component > 0 and not session.study.privacy:
                least = policy.min_rows_per_component
                secret = node_secret(self.vault)
                admit_table(self.vault, rows.parts(), columns or [], least, secret)
            self._rows = (request["run"], columns, wanted), rows
        return self._rows[1]

    def _asked_for(self, request: dict[str, Any]) -> tuple[list[str] | None, Wanted]:
        """(columns, kinds of columns) of the run, kept from its first message."""
        key = f"{request['run']}/begin"
        if "columns" in request:
            content = wire.pack({"columns": request["columns"], "table": request.get("table")})
            if self.vault.get(key) != content:
                forget_old_runs(self.vault)
                self.vault[key] = content
        if key not in self.vault:
            raise Unbegun("begin")
        head = wire.unpack(self.vault[key]).head
        return head["columns"], Wanted.unpack(head.get("table"))

    def check_labels(self, wanted: Wanted, policy: Policy) -> None:
        """Labels and weights that the coordinator names must be columns that may be used, or this node's own."""
        for column, own in ((wanted.label, self.source.label), (wanted.weight, True)):
            if column is not None and self.source.columns is not None and column in self.source.columns:
                policy.check_columns([column], self.source.columns, self.name)
            elif column is not None and not own:
                raise Refused(
                    f"{self.name!r} has no column {column[:60]!r} for the labels: say label = in its node.toml"
                )

    def _read(self, columns: list[str] | None, wanted: Wanted) -> Rows:
        """Open the rows; what is wrong with them goes to the node's log, never to the coordinator."""
        try:
            return self.source.open(columns, wanted)
        except Exception as error:  # the sentence may quote a cell: it is for the node's owner alone
            log.error("the data cannot be read: %s", error)
            raise Refused(f"{self.name!r} cannot read its data: its log says why") from error
