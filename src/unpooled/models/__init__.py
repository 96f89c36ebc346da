"""The algorithms, one package each; the docstring of a package says what it sends and in which order to read its files.

Clusters and densities
    `mixture` (GaussianMixture, exact EM), `mixed` (MixedMixture, columns of any kind), `open_mixture` (OpenMixture, an
    unknown number of clusters that clients hold in part), `fedgem` (FedGEM), `fedem` (FedEM and VR-FedEM, which send
    less), `initialization` (where mixtures start, from sums alone).

Missing values
    `mixture_imputer` (MixtureImputer, tables), `fedmissem` (FedMissEM, counts of sites by dates).

Classifiers
    `fedgmm` (FedGMM, Gaussians and learners together), `fedconceptem` (FedConceptEM, one model per concept); the learners
    that they train are in `unpooled.learners`.

Regression
    `glm` (GLM, LinearRegression, LogisticRegression), `regression` (BayesianRegression, and what Bayesian regressions
    share), `fedbnr` (FedBNR, a learned kernel).

Statistics
    `describe` (Describe), `survival` (Cox, KaplanMeier), `pca` (PCA), `pooling` (Pooling, whether to pool at all).

Differential privacy
    `private` (mixtures, k-means, regression and moments within a budget of epsilon).
"""
