"""FedGMM: a joint model of inputs and labels, with shared Gaussians and learners and weights of each client's own.

What is sent:

- `learners.label_counts` (SUM, once): rows per class; over a network without `classes=`, `learners.table_summary`
  (GATHER) instead.
- `initialization.look`, `initialization.spread` (SUMs, once): means and variances of the columns.
- `pca.moments`, `fedgmm.residual_moments` (SUMs, once, with `embedding=`): principal axes, as `PCA` finds them.
- `fedgmm.embedded_counts`, `fedgmm.embedded_cells` (SUMs, some 30 at most): rows of small regions, then counts, sums and
  variances of those that hold enough; k-means over all rows, from which the Gaussians start. With `init_params="gather"`
  instead `fedgmm.embedded_centres` (GATHER, once): local k-means centres.
- `fedgmm.warm_up` (SUM, the first `warmup` rounds): counts, sums and second moments per Gaussian.
- `fedgmm.label_means` (SUM, once, for linear learners): rows and sums by Gaussian and class.
- `fedgmm.newton_round` or `fedgmm.sgd_round` (SUM, every other round): the same statistics per Gaussian, and per learner a
  gradient with second derivatives (without them where they are too large, see `bounded`), or a model weighted by its rows.
- In a study `fedgmm.class_rows`, `fedgmm.pair_rows` (SUMs, before rounds in which a Gaussian or a learner may hold few rows): whole rows of
  each; those of few are left out (`few_rows`).
- `fedgmm.density_moments`, `fedgmm.density_counts`, `fedgmm.held_out_counts` (SUMs, once): histograms of log densities, for
  novelty thresholds; `fedgmm.shift_thresholds` (TELL) corrects the clients' own.
- `fedgmm.calibration_losses` (SUM, once): log-losses over a grid of calibrations; `fedgmm.judge_candidates` (SUM, once, for linear
  learners): how well each candidate for what clients keep explains their rows; `fedgmm.personalise` (TELL).
- For networks whose clients' inputs differ, `initialization.look` once more and the sums of `learners.input_groups` and
  `learners.group_models`: a network for each group of clients.

A client's weights of the pairs of Gaussian and learner never leave it.

Read in this order: `estimator`, `trial` and `m_step` (the server), `rounds` (the questions of a round), `embedding` and `initialization`
(the start), `few_rows` (what a study does without), `prediction` (what a fitted model does with new rows), `choice` (what each client
keeps), `bounded` (wide learners), `covariances` (repair of singular ones), `novelty` and `leave_one_out` (thresholds), `weighted_e_step`
and `row_cache` (the mathematics of a round and how it is kept fast).
"""

from unpooled.models.fedgmm.estimator import FedGMM

__all__ = ["FedGMM"]
