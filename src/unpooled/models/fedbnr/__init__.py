"""FedBNR: Bayesian regression on features that the clients learn together, with calibrated intervals.

Read in this order: `estimator` (the server), `kernel_learning` (its questions: gradients or local training of the features),
`distillation` (learning from rows at the server), `round_choice` (which round is kept), `held_out_clients` (clients kept apart to
calibrate intervals for clients never seen), `checks` (parameters that cannot work). The last layer is exact and shared with
`BayesianRegression`: see `unpooled.models.regression`.
"""

from unpooled.models.fedbnr.checks import check_device
from unpooled.models.fedbnr.estimator import FIRST_NOISE, FIRST_PRIOR, FedBNR
from unpooled.models.fedbnr.kernel_learning import Task, train

__all__ = ["FIRST_NOISE", "FIRST_PRIOR", "FedBNR", "Task", "check_device", "train"]
