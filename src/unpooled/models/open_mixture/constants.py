"""Every fixed number of `OpenMixture`, with its reason; sends nothing.

They were chosen on development seeds (100 and above) that no reported figure uses.
"""

from __future__ import annotations

import numpy as np

TINY = 1e-300  # keeps quotients and logarithms finite
SHAPES = ("spherical", "diag", "full")  # covariance types
STRUCTURES = ("auto", "gaussians", "topics")
PARTITION_SEED = 0  # of how clients divide their rows, and spread those of columns of few values

# ---- rounds of each phase (see `phases`) ----

SEARCH_ROUNDS = 12  # Search: Gaussian mixtures of several sizes, and atoms
REFINE_ROUNDS = (2, 4, 6, 8, 10)  # rounds of Search and Shared after which the worst candidates are replaced
SETTLE_ROUNDS = 4  # Settle; and Compare, until the number of Gaussians is decided
COMPARE_ROUNDS = 12  # Compare: Gaussians against topics
SPLIT_ROUNDS = 3  # Split: EM rounds after each split of the atoms
MAX_SPLITS = 2  # Split: 80 atoms become at most 320
TIED_ROUNDS = 6  # Shared: rounds in which candidates that start with one covariance keep one
N_TIED_STARTS = 3  # Shared: such candidates per size, of k-means of the clients' centres, and as many of whitened ones
N_TIED_KEPT = 3  # of them after the first rounds, per size
SHARED_ROUNDS = 12  # Shared: Gaussian mixtures whose weights all clients share
REFIT_ROUNDS = 4  # Refit: the chosen model on all rows
# of the longest sequence of phases, which comes twice where sites have offsets
MAX_ROUNDS = 2 * (SEARCH_ROUNDS + SPLIT_ROUNDS * MAX_SPLITS + SHARED_ROUNDS + REFIT_ROUNDS)

# ---- candidates ----

HELD_OUT = 0.1  # fraction of rows held out of candidates that are validated
GOLDEN_RATIO = 0.6180339887498949  # multiples of it, modulo 1, spread the held-out rows evenly
N_INITIAL_SIZES = 8  # numbers of clusters tried first, per covariance type
N_KEPT = 2  # candidates that survive a refinement
N_PAIRS = 3  # at a refinement, candidates with up to this many pairs of a good one's Gaussians merged enter
N_SPLITS = 2  # in Search, candidates with one of this many wide Gaussians split enter too
# covariance types compete only after this many rounds: in Shared k-means starts favour spherical ones, and in Search what is far from
# its optimum is compared with what is near
SEPARATE_SHAPES = 8
# of BIC, per Gaussian ("very strong" evidence): corrects for testing every cluster at every client
CLUSTER_PENALTY = 10.0
# share of what the best local optimum gains in BIC over fewest Gaussians, from which others of its size may be preferred where rows are few
OPTIMUM_GAIN = 0.75

# ---- atoms ----

MIN_ATOMS, MAX_ATOMS = 12, 80
ROWS_PER_ATOM = 60  # the number of atoms is rows / 60 within those limits
ROWS_PER_CENTRE = 15  # a client's k-means has one centre per 15 rows
# a small client's has three if each has at least 6 rows: one centre of all its rows says nothing of clusters
MIN_CENTRES, MIN_ROWS_PER_CENTRE = 3, 6

# ---- covariances ----

COV_PRIOR_ROWS = 2.0  # every covariance is averaged with the pooled one, which counts as this many rows
TIED_ROWS = 1e9  # the same where all Gaussians of a candidate have one covariance
COV_FLOOR = 1e-6  # of the mean variance, added to every variance
MIN_WITHIN = 1e-3  # least variance within Gaussians, over that between them: rows of few distinct values have none
MIN_SCALE = 0.01  # smallest scale of an atom's covariance, relative to the pooled one

# ---- clients' own mixing weights ----

FIRST_WEIGHT_STEPS = 5  # EM steps when a client first sees a candidate
PRIOR_SHARE_ROWS = 1.0  # rows of the common weights that are added to a client's own when held-out rows are scored
FINAL_WEIGHT_STEPS = 30  # EM steps under the final model

# ---- columns of few values ----

ROWS_PER_VALUE = 5  # a client's column has few values if it has this many rows per distinct one
SAME_VALUE = 1e-9  # values that differ by less, over the range of the column, are one

# ---- merging of components ----

PRIOR_MEAN_ROWS = 0.01  # rows that the prior of a mean counts as
MAX_ALL_PAIRS = 250  # up to this many components all pairs are compared
N_NEIGHBORS = 8  # above it, only this many nearest neighbours of each
PAIRS_PER_CHUNK = 500  # pairs evaluated at a time: their scatters fit the processor's cache

# ---- how many directions clients differ in ----

TW_99 = 2.02  # 99 % quantile of the Tracy-Widom distribution: each further direction
TW_9999 = 4.32  # 99.99 % quantile: the first direction, which is tested at several cuts
P_SEPARATED = 1e-4  # p-value for a direction in which the rows of one client do not vary
VARIANCE_CUTS = (1e-3, 1e-2, 1e-1, 0.3)  # axes with less than this fraction of the largest variance are left out
N_PERMUTATIONS = 20  # of the permutation test whether components share their holders: p < 1/21
MAX_TOPICS = 30
ROWS_FOR_TOPICS = 500  # with fewer, topics must be better than Gaussians by FEW_ROWS_ERRORS standard errors
FEW_ROWS_ERRORS = 2.0  # the best of several numbers of topics is compared, which chance makes better
N_RESAMPLES = 20  # random subsets of clients for `certainty_`
TOPIC_STEPS = 150  # EM steps of the topic model at the server
TOPIC_SMOOTHING = 0.05  # at its start, of the mean atom's count, so that no atom has probability 0 in a topic
SHARE_SMOOTHING = 0.5  # at its start, rows added per client and topic

# ---- where clients do not differ ----

ROWS_PER_PIECE = 10  # atoms are split while their halves have at least this many rows on average
MAX_NUMBERS = 80 * 231  # numbers in one answer about split atoms: 80 atoms in 20 dimensions, thousands in two
HALF_MEAN = np.sqrt(2 / np.pi)  # distance of a half Gaussian's mean from the centre, in standard deviations
N_DRAWS = 5000  # rows that the server samples from the atoms
MAX_GAUSSIANS = 40
SMALL_TABLE = 1000  # up to this many rows there are further starts: in local optima of a small table chance decides
COST_DIGITS = (
    6  # digits after the point of a BIC that count: of several starts in one optimum the first is taken, in any unit
)
N_ATTEMPTS = 5  # fits of each number of Gaussians to the sample, in a small table
PATIENCE = 3  # numbers of Gaussians in a row without a better BIC that end the search
MERGE_RANGE = 5  # numbers above and below the best one that are also reached by merging pairs

# ---- clusters of several Gaussians ----

DENSER = 2.0  # a Gaussian is no cluster if at its mean another one is more than this many times as dense
CONFUSED = 0.025  # but it is, if a smaller fraction of its rows is mistaken for others' (Hennig, 2010, merges components from there)
N_PROBES = 1000  # rows drawn to find that fraction

# ---- mixed columns ----

SIZES_AT_A_TIME = 6  # numbers of clusters that are tried at once; six more as long as the largest is the best
MIN_ROWS_PER_CLUSTER = 10  # of all clients together: there are at most rows / 10 clusters
STANDS_STILL = 1e-3  # gain of log-likelihood per row and round below which a candidate has converged

# ---- certainty ----

ROWS_OF_EVIDENCE = 75.0  # more rows hardly make the number of clusters more certain

# ---- offsets and scales of sites ----

N_ALIGN_SIZES = 5  # numbers of clusters of the mixtures that sites are aligned to
N_ALIGN_KEPT = 3  # of them that go on after a pass, beside the best one of each kind
N_HALVES = 2  # axes across which a single Gaussian is split
MAX_FULL_COLUMNS = 32  # with more columns these have diagonal covariances: answers would be too long
ALIGN_ROUNDS = 5  # SUMs over these mixtures, per pass
N_VARIATIONS = 3  # passes in which a Gaussian of the best mixture is split, or two are merged
N_OWN_SPLITS = 8  # splits that get weights of clients' own where the best mixture has common ones
CLUSTER_PRIOR = 4.0  # rows that the mean covariance counts as in the second alignment, per column and two more
CHECK_FOLDS = 5  # parts of a client's rows, each held out in turn
CHECK_STEPS = 10  # EM steps on a client's weights and offset without them
ALIGN_STEPS = 2  # EM steps on a client's weights and offset, per round
# standard deviation of offsets, over that within clusters: at the start, and at most; larger ones would explain clusters
FIRST_OFFSET, MAX_OFFSET = 0.3, 0.6
MIN_OFFSET = 0.15  # columns with smaller offsets are not named; if all are smaller, there are none
FIRST_LOG_SCALE, MAX_LOG_SCALE = 0.2, 0.4  # standard deviation of logarithms of scales: at the start, and at most
MIN_LOG_SCALE = 0.1  # columns with smaller ones are not named; if all are smaller, there are none
MAX_SCALE_COLUMNS = 64  # columns whose scales are compared with each other
CLEAR_NATS = 3.0  # log evidence that offsets, and then scales, must gain, also of rows held out: 20 to 1

# ---- new clients ----

NEW_CLUSTER_GAIN = 1.0  # nats per row by which a new cluster must explain its rows better than the known ones
