"""Mathematics that several models share: pure functions of arrays. Knows nothing of clients and sends nothing.

- Gaussian mixtures: `gaussian` (covariances of four shapes), `mixture` (E-step and M-step), `shapes` and `kernel` (one pass over the rows),
  `missing` and `patterns` (rows with missing values), `imputation`, `local_mixture` (one small table), `distances`.
- Regression: `bayes_linear` (sums and posterior), `predictive` and `calibration` (intervals), `feature_maps` with `random_features` and
  `sum_of_kernels`, `fitc` (sparse Gaussian processes), `logistic` (linear classifiers).
- Optimisers: `descent` (Adam and L-BFGS), `torch_training` (feature maps in torch).
- Rows and ranks: `folds` and `hashing` (which rows are held out), `grids` (numbers that do not depend on the split), `searching` and
  `ordered` (quantiles and distinct values from counts).
"""
