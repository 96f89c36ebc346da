"""FedBNR: regression by a Gaussian process with a kernel that all clients learn together; two SUMs per round.

The first SUM of a round is of the last layer's statistics (`Stats`): it gives the server the evidence of all rows, the best noise and
prior, and the posterior. The second depends on `kernel`: "exact" sums the gradient of the global evidence, "average" sums kernels trained
at the clients, "distill" sums their Gram matrices on the server's rows. Errors on held-out rows are part of the second SUM. After the last
round, one SUM places the features of the last layer, one of squares chooses the grid they are rounded to, one fits it to all rows, and
one of a histogram of residuals recalibrates the intervals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.errors import TooFewClients
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, descent
from unpooled.maths.bayes_linear import Stats
from unpooled.maths.calibration import histogram
from unpooled.maths.feature_maps import features, start
from unpooled.models.fedbnr.budget import Size, fits_a_grid, n_frequencies, rounds_to_learn_in, thinning
from unpooled.models.fedbnr.checks import check_module, check_parameters
from unpooled.models.fedbnr.kernel_regression import KernelRegression
from unpooled.models.fedbnr.last_map import SUM, more_frequencies, sum_map, weigh, with_theta
from unpooled.models.fedbnr.marginals import Marginals, marginals
from unpooled.models.fedbnr.round_choice import Best
from unpooled.models.fedbnr.rounds import exact_step, local_step, moved, overflowed, rows_at_server
from unpooled.models.fedbnr.settled import settled_lengths, settled_scaling
from unpooled.models.fedbnr.state import State
from unpooled.models.regression import (
    Design,
    Scaling,
    check_clients,
    check_group_name,
    check_targets,
    compress_heavy,
    find_groups,
    histograms,
    put_on_grid,
    standardise,
    sum_statistics,
)
from unpooled.tree import Tree

FIRST_NOISE, FIRST_PRIOR = -1.0, 1.0  # log variances at the start of local training


class FedBNR(KernelRegression):
    """Gaussian process regression with a learned kernel and an exact Bayesian last layer over all clients.

    Parameters
    ----------
    kernel : {"exact", "average", "distill"}, default="exact"
        How the kernel is learned: by gradients of the evidence of all rows, by federated averaging, or by distillation on `server_data`.
    features : str or torch.nn.Module, default="auto"
        The feature map: "ard" or "rff" (random Fourier features with a length scale per column or one for all), "additive" (a sum of
        functions of single columns), "deep", "residual", "replicated" (of a network's outputs), "exponential", "polynomial", or a
        module from (n, d) to (n, k). "auto" learns the length scales of "ard" and, with `n_frequencies="auto"`, then fits a sum of
        kernels: linear, additive (splines, with knots where a column bends y), and of all columns together, at long and at short length
        scales. The evidence decides how much each of them counts.
    n_frequencies : int or "auto", default="auto"
        Random frequencies; each gives a cosine and a sine. "auto" takes as many as a budget of bytes allows, at most 100: all clients
        together send up to 2 MB, and 5 MB more per 10,000 values (rows times columns) beyond the first. The scales of "ard", "rff" and
        "additive" are then learned with few frequencies in at most 10 rounds, and the last layer is fitted with more features. These are
        rounded to a grid, so that their second moments are whole numbers of four bytes. With more than 100 columns, 150 clients, or 1,000
        clients times columns, histograms of columns and residuals may exceed that.
    spectrum : {"rbf", "matern12", "matern32", "matern52"}, default="rbf"
        The stationary kernel that the frequencies are drawn for.
    frequencies : {"fixed", "free", "shifted"}, default="fixed"
        Whether frequencies stay as drawn, are learned, or are outputs of a small network on normal draws.
    hidden : tuple of int, default=(128, 128)
        Widths of the hidden layers of "deep", "residual" and "replicated".
    latent_dim : int, default=8
        Outputs of that network.
    activation : {"tanh", "silu", "relu"}, default="tanh"
        Activation of that network.
    degree : int, default=2
        Degree of "polynomial".
    constant : float, default=1.0
        Constant term of "polynomial".
    optimizer : {"auto", "lbfgs", "adam"}, default="auto"
        Optimiser of `kernel="exact"`; "auto" is L-BFGS for maps without a network.
    learning_rate : float, default=0.03
        Learning rate of Adam at the server.
    weight_decay : float, default=0.0
        Decoupled weight decay of Adam at the server.
    max_iter : int, default=60
        Largest number of rounds.
    patience : int, default=20
        Rounds without a smaller error on held-out rows after which learning stops.
    local_epochs : int, default=10
        Adam steps per client and round, for "average" and "distill".
    local_rate : float, default=0.003
        Learning rate of these steps.
    server_noise : bool, default=True
        Whether noise and prior variance are those of the largest global evidence, or the average over clients as published.
    server_data : tuple (X, y) or None, default=None
        Rows at the server: needed by "distill"; otherwise they choose the round in place of held-out rows.
    distill_weight : float, default=1.0
        Weight of the difference of Gram matrices in the distillation loss.
    distill_steps : int, default=50
        Adam steps of distillation per round.
    distill_rate : float, default=0.003
        Learning rate of these steps.
    validation_fraction : float, default=0.1
        Fraction of rows held out to choose the round and to recalibrate.
    recalibrate : bool or "clients", default=True
        Whether `interval` uses quantiles of left-out residuals. True: as far as they differ from the model's own by more than chance;
        for new rows of the same clients. "clients" leaves out one client at a time from the last layer, for clients never seen.
    refit : bool, default=True
        Whether the last layer is fitted to the held-out rows too once the round is chosen; residuals are then left-out residuals.
    group_by : str, int or None, default=None
        Name or index of a column whose equal values mark rows that belong together, as in `BayesianRegression`; only with `kernel="exact"`.
    inputs : {"robust", "standard"}, default="robust"
        Scaling of columns: "robust" compresses columns with far outliers by arcsinh (one more SUM).
    missing : {"impute", "refuse"}, default="impute"
        Whether missing values are replaced by the mean over all clients, with a warning, or refused.
    device : str, default="cpu"
        Device on which features are trained.
    random_state : int or None, default=None
        Seed of the frequencies, the network and the held-out rows.

    Attributes
    ----------
    best_round_ : int
        The round whose kernel is kept.
    features_ : str
        The feature map of the last layer: the given one, "ard" or "sum of kernels".
    n_sums_ : int
        SUMs asked in all.
    noise_variance_ : array of shape (n_outputs,)
        Variance of y about its mean.
    log_marginal_likelihood_ : float
        Log evidence of the fitted targets.
    histogram_ : array of shape (n_outputs, n_bins)
        Left-out standardised residuals, counted by bin.
    design_effect_ : array of shape (n_outputs,)
        With `recalibrate="clients"`: how many rows tell as much as one row of a new client; 1 where clients are alike.

    References
    ----------
    Federated Bayesian neural regression (FedBNR), as described in docs/decisions/fedbnr-two-sums-a-step.md.
    Rahimi, Recht, Random features for large-scale kernel machines, NeurIPS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, size=(200, 1))
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = up.FedBNR(n_frequencies=20, max_iter=5, random_state=0).fit(x, y, by=np.arange(200) % 4)
    >>> mean, std = model.predict(x, return_std=True)
    >>> bool(np.abs(y - mean).mean() < 0.15)
    True
    """

    def __init__(
        self,
        kernel: str = "exact",
        *,
        features: Any = "auto",
        n_frequencies: int | str = "auto",
        spectrum: str = "rbf",
        frequencies: str = "fixed",
        hidden: tuple[int, ...] = (128, 128),
        latent_dim: int = 8,
        activation: str = "tanh",
        degree: int = 2,
        constant: float = 1.0,
        optimizer: str = "auto",
        learning_rate: float = 0.03,
        weight_decay: float = 0.0,
        max_iter: int = 60,
        patience: int = 20,
        local_epochs: int = 10,
        local_rate: float = 0.003,
        server_noise: bool = True,
        server_data: Any = None,
        distill_weight: float = 1.0,
        distill_steps: int = 50,
        distill_rate: float = 0.003,
        validation_fraction: float = 0.1,
        recalibrate: bool | str = True,
        refit: bool = True,
        group_by: str | int | None = None,
        inputs: str = "robust",
        missing: str = "impute",
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.features = features
        self.n_frequencies = n_frequencies
        self.spectrum = spectrum
        self.frequencies = frequencies
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.activation = activation
        self.degree = degree
        self.constant = constant
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.patience = patience
        self.local_epochs = local_epochs
        self.local_rate = local_rate
        self.server_noise = server_noise
        self.server_data = server_data
        self.distill_weight = distill_weight
        self.distill_steps = distill_steps
        self.distill_rate = distill_rate
        self.validation_fraction = validation_fraction
        self.recalibrate = recalibrate
        self.refit = refit
        self.group_by = group_by
        self.inputs = inputs
        self.missing = missing
        self.device = device
        self.random_state = random_state

    # ---- before any round ----

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        check_targets(fed)
        check_parameters(self)
        check_group_name(fed, self.group_by)
        check_clients(self.recalibrate, fed)

    # ---- rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Scaling, columns and the first kernel."""
        self.seed_ = int(rng.integers(2**31))
        self.__dict__.pop("features_", None)  # of an earlier fit
        scaling, sums = standardise(fed, self._share(), self.seed_, self.missing, needs_held=not self._grows())
        scaling = settled_scaling(scaling) if self._grows() else scaling
        d = len(scaling.x_mean)
        size = Size(float(sums.all_rows), d, len(fed.names))
        scaling, known = self._columns(fed, scaling, size)
        kernel = start(self._learning_spec(size), d, rng)
        check_module(self, kernel, d)
        rows_at_server(self, Design(scaling, kernel))  # bad server_data is refused before any round
        groups = find_groups(fed, self.group_by, d)
        theta = tree.flatten(kernel.theta)
        optimiser: Tree = ()
        if self.kernel == "exact":
            optimiser = descent.lbfgs(theta) if self._uses_lbfgs() else descent.adam(theta)
        n_sums = 2 + (known is not None) + (self.group_by is not None)
        design = Design(scaling, kernel, groups)
        rounds = rounds_to_learn_in(size) if self._grows() else None
        return State(design, optimiser, FIRST_NOISE, FIRST_PRIOR, None, 0, self.seed_, n_sums, known, rounds)

    def _columns(self, fed: Federation, scaling: Scaling, size: Size) -> tuple[Scaling, Marginals | None]:
        """(scaling, distribution of each column or None); heavy columns are compressed with inputs="robust". One SUM."""
        if not (self.inputs == "robust" or self._sums_kernels()):
            return scaling, None
        counts = histograms(fed, scaling, self._share(), self.seed_, thinning(size) if self._grows() else 1)
        robust = compress_heavy(scaling, counts) if self.inputs == "robust" else scaling
        return robust, marginals(counts, scaling, robust)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """Two SUMs: statistics of the last layer, then a gradient or local training."""
        self.seed_ = state.seed
        state = state._replace(round=state.round + 1)
        try:
            stats = sum_statistics(fed, state.design, **self._asks())
        except TooFewClients:
            if not (isinstance(state.optimiser, descent.LBFGS) and overflowed(fed)):
                raise
            return moved(state, descent.shorten(state.optimiser)), {"sums": 1}
        step = exact_step if self.kernel == "exact" else local_step
        return step(self, fed, state, stats)

    def done(self, state: State, history: list[dict]) -> bool:
        """Whether the held-out score has not improved for `patience` rounds."""
        since = state.round - state.best.round if state.best is not None and np.isfinite(state.best.score) else 0
        return since >= self.patience or (state.rounds is not None and state.round >= state.rounds)

    # ---- after the last round ----

    def finish(self, fed: Federation, state: State) -> None:
        """Take the best kernel, refit the last layer and recalibrate."""
        self.seed_ = state.seed
        self._remember(fed, state.design.scaling)
        self.n_sums_ = state.spent + sum(row["sums"] for row in self.history_)
        best = state.best
        if best is None:  # max_iter=0: the last layer alone
            stats = sum_statistics(fed, state.design, **self._asks())
            best = Best(state.design.kernel.theta, stats, state.log_noise, state.log_prior, math.inf, 0)
            self.n_sums_ += 1
        self.best_round_ = best.round
        self.log_variances_ = (best.log_noise, best.log_prior)
        design = with_theta(state.design, best.theta)
        if self._grows():
            self._fit_last_map(fed, design, state.marginals, float(best.stats.n))
        else:
            self.features_ = self._map_name()
            self._settle(design, best.stats)
            if self.refit and self._share() > 0:
                self._settle(design, self._ask(fed))
                self.n_sums_ += 1
        self._calibrate(fed, self.recalibrate)

    def _fit_last_map(self, fed: Federation, learned: Design, known: Marginals | None, fitted: float) -> None:
        """The last layer with more features than the kernel was learned with, fitted to all rows."""
        size = Size(fitted / (1 - self._share()), len(learned.scaling.x_mean), len(fed.names))
        learned = settled_lengths(learned)
        if not self._sums_kernels():
            self.features_ = self.features
            design = more_frequencies(learned, self._spec() | {"m": n_frequencies(size)}, self.seed_)
            self._settle(*self._last_sums(fed, design, fits_a_grid(size)))
            return
        assert known is not None
        self.features_ = SUM
        design = sum_map(fed, learned, known, size, self.seed_)
        self.n_sums_ += 1
        self._settle(*weigh(*self._last_sums(fed, design, fits_a_grid(size))))

    def _last_sums(self, fed: Federation, design: Design, on_grid: bool) -> tuple[Design, Stats]:
        """(design, with features on a grid if wanted; sums of the last layer): one SUM, with a grid two.

        If other clients answer than when the grid was chosen, totals may exceed four bytes: they are asked for again in eight.
        """
        asked = self._last_asks()
        if on_grid:
            design, rows = put_on_grid(fed, design, **asked)
            stats = sum_statistics(fed, design, **asked, packed=True)
            self.n_sums_ += 2
            if math.isclose(stats.n, rows, rel_tol=1e-9):
                return design, stats
        self.n_sums_ += 1
        return design, sum_statistics(fed, design, **asked)

    def _calibrate(self, fed: Federation, wanted: bool | str) -> None:
        """Recalibrate by clients' rows, or by the server's own."""
        if not (wanted and self.server_data is not None):
            super()._calibrate(fed, wanted)
            self.n_sums_ += bool(wanted)
            return
        x, y, group = rows_at_server(self, self.design_)[1]
        mean, variance = bayes_linear.predict(self.posterior, features(self._spec(), self.design_.kernel, x), group)
        self.histogram_ = histogram((y - mean) / np.sqrt(variance), np.ones(len(x)))
        self.n_clients_checked_ = 0
