"""Where a mixture or a clustering starts: the columns' means and spreads by two SUMs, then centres.

`gathered` asks each client for the centres of its own k-means, which is one GATHER.
"""

from unpooled.models.initialization.gathered import (
    MAX_CLIENTS,
    Centre,
    Centres,
    Frame,
    centres,
    cluster_centres,
    frame,
    from_centres,
    local_centres,
    look,
    override,
    random_means,
    spread,
    wide,
)

__all__ = [
    "MAX_CLIENTS",
    "Centre",
    "Centres",
    "Frame",
    "centres",
    "cluster_centres",
    "frame",
    "from_centres",
    "local_centres",
    "look",
    "override",
    "random_means",
    "spread",
    "wide",
]
