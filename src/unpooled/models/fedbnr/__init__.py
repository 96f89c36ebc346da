"""FedBNR: Gaussian process regression with a kernel that all clients learn together, and prediction intervals.

What is sent, all of it as SUMs: per round the last layer's statistics (`regression.statistics`) and either a gradient of the kernel's
parameters (`fedbnr.gradient`) or kernels trained at the clients (`fedbnr.train`); once second moments of columns and targets by bin of a
column (`fedbnr.effects`), and squares of the last layer's features (`regression.squares`); before and after the rounds the SUMs of
`unpooled.models.regression`, whose scaling and last layer this room shares.

Read in this order:

- `estimator`: the server; `kernel_regression`: its feature map and last layer; `state` and `rounds`: its rounds
- `kernel_learning`: their questions
- `round_choice`: which round is kept
- `last_map`: the features of the last layer; `effects`: the question they need; `marginals`: the distribution of each column
- `budget`: how many features a budget of bytes allows; `settled`: what they are made of, the same for any split
- `distillation`: learning from rows at the server
- `checks`: parameters that are refused
"""

from unpooled.models.fedbnr.checks import check_device
from unpooled.models.fedbnr.estimator import FIRST_NOISE, FIRST_PRIOR, FedBNR
from unpooled.models.fedbnr.kernel_learning import Task, train

__all__ = ["FIRST_NOISE", "FIRST_PRIOR", "FedBNR", "Task", "check_device", "train"]
