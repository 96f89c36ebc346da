"""The learner engine: k classifiers trained over many clients at once, weighted by any rule of responsibility.

An algorithm that trains learners is a question and a server step. All of it, for a mixture of k models (see
`baselines/fedem.py`):

    class Down(NamedTuple):
        theta: Float[Array, "k p"]              # k flat models

    class Up(NamedTuple):
        theta: Float[Array, "k p"]              # sum of mass x model: weights live inside the statistic
        mass: Float[Array, "k"]
        loglik: Float[Array, ""]

    @client                                     # batched: the very same lines run for one client or many stacked
    def local_round(down: Down, client: Client, *, trainer: dict) -> Up:
        trainer = Trainer(**trainer)
        rows = trainer.rows(client)                                    # x (..., n, d), y codes (..., n), w (..., n)
        log_p = trainer.log_likelihood(down.theta, rows) + log_pi      # (..., n, k), plus whatever the rule adds
        r, norm = responsibilities(log_p)                              # (..., n, k), (..., n)
        client.state["pi"] = ...                                       # (..., k) stays at the client
        theta = trainer.train(down.theta, client, rows, r)             # (..., k, p) local epochs of SGD
        mass = (r * rows.w[..., None]).sum(-2)                         # (..., k)
        return Up(mass[..., None] * theta, mass, (norm * rows.w).sum(-1))

    class MyModel(LearnerEstimator): ...        # labels, learner, schedule, cohorts, predictions (`estimator.py`)

`mixing.py` has `responsibilities`, `mass`, `shares`, `log_shares` and, for the server, `average(total, weight,
before)`. What varies: `theta` may be (k, p), the same for all, or (..., k, p), each client's own (personal models, k
+ 1 models, interpolations: they are flat vectors, so an average, a distance or a proximal pull is one line). Several
epochs, momentum kept or not, proximal term, weight decay and device are fields of `Trainer`. A cohort is
`fed.sample(fraction, rng)`. To drop model k, drop row k of theta. Under norm="local" a client's BatchNorm stays with
it: `trainer.with_own` before training and `trainer.keep_own` after.

Where it runs: `linear` and `mlp` are batched products over clients x models, in NumPy (torch on a device); any other
module is torch, one after the other on a CPU and all at once on a GPU: plain convolutional networks as batched products
(`banded.py`), the rest by `torch.func.vmap`. With `train(..., idle=IDLE)` models that answer for next to none of a
client's rows are not trained there. Minibatches are drawn by each client's own generator, so results do not depend on
who is stacked with whom.
"""

from unpooled.learners.registry import register
from unpooled.learners.rows import Rows, kinds
from unpooled.learners.trainer import IDLE, Trainer, as_option, check_device, learning_rate

__all__ = ["IDLE", "Rows", "Trainer", "as_option", "check_device", "kinds", "learning_rate", "register"]
