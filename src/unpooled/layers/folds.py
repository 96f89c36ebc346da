"""A federation of the rows outside of one fold, for cross-validation: every question is put to those rows alone.

Which rows they are is each client's secret (`maths.folds`); what is sent is what the question sends.
"""

from __future__ import annotations

from dataclasses import replace

from unpooled.arrays import is_torch, to_numpy
from unpooled.client import VIEW, Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.maths.folds import FOLDS, fold_of


@client("folds.training_rows", VIEW, batched=False)
def training_rows(client: Client, /, *, folds: int, fold: int) -> Client:
    """The client without the rows of one fold."""
    if folds not in FOLDS or not 0 <= fold < folds:
        raise BadParameter(f"folds={folds!r} must be one of {', '.join(map(str, FOLDS))}, and fold={fold!r} below it")
    y = None if client.y is None else to_numpy(client.y)
    kept = fold_of(to_numpy(client.x), y, folds) != fold
    rows = client.x.new_tensor(kept).bool() if is_torch(client.x) else kept
    if client.y is not None:
        y = client.y[rows if is_torch(client.y) else kept]
    return replace(client, x=client.x[rows], y=y, w=client.w[rows], memo={})


class Folded(Layer):
    """The rows of all clients but those of one fold of each; around any federation.

    Parameters
    ----------
    inner : Federation
    folds : {2, 5, 10}
        Into how many folds each client's rows are cut.
    fold : int
        The fold that is left out, counted from 0.
    """

    def __init__(self, inner: Federation, folds: int, fold: int):
        """Leave out fold `fold` of `folds` at every client."""
        super().__init__(inner)
        self.folds, self.fold = folds, fold

    def wrap(self, ask: Ask) -> Ask:
        """The question with a step ahead of it that takes the training rows."""
        return ask.then(training_rows, folds=self.folds, fold=self.fold)
