"""The learner engine: k classifiers per client, trained over many clients at once with weighted rows.

Sent by this package itself, beside what single linear learners (`exact`), clients' choices (`own_nets` with `label_shift` and
`personal`, a TELL each, and a SUM of losses) and newcomers (`newcomers`, `input_groups` and `group_models`, SUMs) need:
`learners.label_counts` (SUM, rows per class, again before networks are chosen) or, over a network without `classes=`,
`learners.table_summary` (GATHER, label names), once at the start of a run. Everything else is sent by the algorithms.

An algorithm that trains learners is a question and a server step. For a mixture of k models (see `baselines/fedem.py`):

    class Down(NamedTuple):
        theta: Float[Array, "k p"]              # k flat models

    class Up(NamedTuple):
        theta: Float[Array, "k p"]              # sum of mass x model: the weights are part of the statistic
        mass: Float[Array, "k"]
        loglik: Float[Array, ""]

    @client("my_model.local_round", SUM)        # batched: the same lines run for one client or many stacked
    def local_round(down: Down, client: Client, *, trainer: dict) -> Up:
        trainer = Trainer(**trainer)
        rows = trainer.rows(client)                                    # x (..., n, d), y codes (..., n), w (..., n)
        log_p = trainer.log_likelihood(down.theta, rows) + log_pi      # (..., n, k), plus the algorithm's own terms
        r, norm = responsibilities(log_p)                              # (..., n, k), (..., n)
        client.state["pi"] = ...                                       # (..., k) stays at the client
        theta = trainer.train(down.theta, client, rows, r)             # (..., k, p) local epochs of SGD
        mass = (r * rows.w[..., None]).sum(-2)                         # (..., k)
        return Up(mass[..., None] * theta, mass, (norm * rows.w).sum(-1))

    class MyModel(LearnerEstimator): ...        # classes, learner, schedule, cohorts, predictions (`estimator.py`)

`theta` is (k, p) for shared models, or (..., k, p) for models of each client (personal models, interpolations): they are
flat vectors, so an average, a distance or a proximal term is one line. Epochs, momentum, proximal term, weight decay and
device are fields of `Trainer`. A cohort is `fed.sample(fraction, rng)`. To remove model k, remove row k of theta. Under
norm="local" a client's BatchNorm stays with it: `trainer.with_own` before training and `trainer.keep_own` after.

`linear` and `mlp` are batched products over clients x models, in NumPy, or in torch on a device. Any other module is
torch: one model after the other on a CPU, and all at once on a GPU, plain convolutional networks as batched products
(`banded`), others by `torch.func.vmap`. With `train(..., idle=IDLE)` models with next to no share of a client's rows are
not trained there. Minibatches are drawn by each client's own generator, so results do not depend on stacking.

Read in this order: `trainer` (how learners are trained), `estimator` (the base class, built on `choices`, `adapting` and
`predictions`), `labels` and `rows` (what clients train on), `mixing` (responsibilities and averages), `sgd` and `newton` (the two
optimizers), `search` (the learning rate), `exact`, `curvatures`, `polishing`, `penalties`, `left_out` and
`regularisation` (linear learners at the optimum), `personal`, `judging`, `bases`, `candidates`, `corrections`, `stacking`,
`calibration` and `own_nets` (what each client keeps), `newcomers`, `input_groups` and `group_models` (clients without labels),
`registry` (learners by name), `dense`, `modules`, `nets`, `banded` and `batched` (the learners).
"""

from unpooled.learners import (  # they register questions and messages
    calibration,
    curvatures,
    exact,
    group_models,
    input_groups,
    left_out,
    newcomers,
    newton,
    own_nets,
    penalties,
    personal,
    regularisation,
    search,
)
from unpooled.learners.labels import find_classes
from unpooled.learners.registry import register
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import IDLE, Trainer, as_option, check_device, learning_rate

__all__ = [
    "IDLE",
    "Rows",
    "Trainer",
    "as_option",
    "calibration",
    "check_device",
    "curvatures",
    "exact",
    "find_classes",
    "group_models",
    "input_groups",
    "learning_rate",
    "left_out",
    "newcomers",
    "newton",
    "own_nets",
    "penalties",
    "personal",
    "register",
    "regularisation",
    "search",
]
