"""A check of sites' tables before anything is fitted: which columns match, and what differs. Nothing is fitted.

Read in this order: `profile` (what one site says of its table, with counts below its floor left out), `codes` (values that look
like missing), `findings` (what differs between sites), `scales` (units and scales), `names` and `levels` (columns and levels that
are written differently), `block` (the [columns] to start from).
"""

from unpooled.data.check.block import proposed, remedies
from unpooled.data.check.findings import Finding, findings
from unpooled.data.check.profile import ColumnProfile, Profile, profile, unreadable

__all__ = ["ColumnProfile", "Finding", "Profile", "findings", "profile", "proposed", "remedies", "unreadable"]
