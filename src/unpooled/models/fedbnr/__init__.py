"""FedBNR: Gaussian process regression with a kernel that all clients learn together, and prediction intervals.

What is sent, all of it as SUMs: per round the last layer's statistics (`regression.statistics`) and either a gradient of the kernel's
parameters (`fedbnr.gradient`) or kernels trained at the clients (`fedbnr.train`); before and after the rounds the SUMs of
`unpooled.models.regression`, whose scaling and last layer this room shares.

Read in this order:

- `estimator`: the server
- `kernel_learning`: its questions
- `budget`: how many frequencies a budget of bytes allows
- `round_choice`: which round is kept; `map_choice`: which feature map
- `distillation`: learning from rows at the server
- `checks`: parameters that are refused
"""

from unpooled.models.fedbnr.checks import check_device
from unpooled.models.fedbnr.estimator import FIRST_NOISE, FIRST_PRIOR, FedBNR
from unpooled.models.fedbnr.kernel_learning import Task, train

__all__ = ["FIRST_NOISE", "FIRST_PRIOR", "FedBNR", "Task", "check_device", "train"]
