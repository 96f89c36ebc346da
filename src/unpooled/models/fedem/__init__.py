"""FedEM and VR-FedEM: EM for any exponential family, with compressed statistics, absent clients and minibatches.

A round is one SUM, `fedem.contribute`: the parameters go down; each client of the cohort sends the change of its mean statistics. Before
the first round every client says how many rows suit the family (GATHER `fedem.inspect`). Where rounds are random, all clients are asked
for their log-likelihood every ten rounds (SUM `fedem.loglik`, 16 bytes each), and for exact statistics (SUM `fedem.exact`) where it
stands still, to find out whether the fit has converged.

Read in this order: `estimator` and `variance_reduced` (the two classes and their rounds), `checks`, `start`, `steps` and `convergence`
(parts of them), `server` (what the server keeps, and its arithmetic), `client` (the questions), `compression` (a client's answer as bytes),
`families` (the exponential families, one per file).
"""

from unpooled.models.fedem.estimator import FedEM
from unpooled.models.fedem.variance_reduced import VRFedEM

__all__ = ["FedEM", "VRFedEM"]
