"""OpenMixture: clusters when their number is unknown and clients hold different ones.

What it is
----------
Several candidate models are fitted side by side by EM, all in the same rounds, and compared by BIC or by held-out rows. Two structures
are possible. "gaussians": every cluster is one Gaussian. "topics": a cluster is a group of Gaussian atoms that the same clients hold
together. Every client has its own mixing weights of the clusters; they stay at the client.

What is sent
------------
====================================  ======  =====================================================================================
question                              kind    answer
====================================  ======  =====================================================================================
``open_mixture.describe``             GATHER  once: counts, means and scatters of a local mixture, and local k-means centres
``open_mixture.align``                SUM     8 times: statistics of mixtures with and without an offset per client
``open_mixture.keep_offsets``         TELL    once: whether clients keep their offsets; if so, `describe` is asked again
``open_mixture.candidate_stats``      SUM     every round: sufficient statistics and log-likelihoods of all candidates
``open_mixture.count_atoms``          GATHER  once: the expected number of the client's rows in every Gaussian
``open_mixture.atom_products``        SUM     once: outer products of the rows' responsibilities
``open_mixture.holdings``             GATHER  at the end: the expected number of the client's rows in every cluster
``open_mixture.describe_unexplained`` GATHER  `partial_fit` only: local components that no known cluster explains
====================================  ======  =====================================================================================

In `describe`, `describe_unexplained` and `holdings` nothing is sent that stands for fewer than `min_count` rows.

Reading order
-------------
1. `estimator`: the public class; one round is one SUM.
2. `phases`: the phases of a fit, in order, and what each one passes to the next.
3. `candidates`: a candidate model, its M-step and its BIC; `covariances`: how covariances are shrunk.
4. `questions`: what clients are asked; `client_weights`: the clients' own mixing weights.
5. `site_offsets`: offsets of sites, found before the rounds.
   `initial`: the first candidates, from what clients described; `merging` and `agglomeration`: which components are one.
6. `grouping`, `directions`, `topics`: which Gaussians the same clients hold, and how many groups there are.
7. `shared_weights`: the fit where clients do not differ.
8. `certainty`: the probability of each number of clusters, and the dendrogram.
9. `new_clients`: `partial_fit`.
10. `constants`: every fixed number, with its reason.
"""

from unpooled.models.open_mixture.estimator import OpenMixture

__all__ = ["OpenMixture"]
