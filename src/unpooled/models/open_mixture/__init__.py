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
``tables.moments``                    SUM     once: number, sum and sum of squares of each column, to scale it by
``open_mixture.steps``                SUM     once: per column, at how many clients it has few values, and the distance of neighbouring ones
``open_mixture.describe``             GATHER  once: counts and means of local clusters, and scatters of the components of a local mixture
``open_mixture.align``                SUM     25 times: statistics of mixtures with and without an offset and scale per client
``open_mixture.check_offsets``        SUM     once: the log-likelihood of rows under the offset and scale that the client's other rows give
``open_mixture.scale_moments``        SUM     once if scales seem to be there: moments of the logarithms of the client's scales
``open_mixture.keep_offsets``         TELL    once: which offsets and scales clients keep, if any; the same is described again then
``open_mixture.assign_rows``          TELL    once if there are offsets: the clusters; rows keep their probabilities of them at the client
``open_mixture.realign``              SUM     six times then: statistics of one Gaussian per cluster, with an offset per client
``open_mixture.keep_realigned``       TELL    once then: the new offsets are kept; the same is described again, and the rounds start anew
``open_mixture.candidate_stats``      SUM     every round: sufficient statistics and log-likelihoods of all candidates
``open_mixture.atom_products``        SUM     once: outer products of the rows' responsibilities, and of the clients' counts
``open_mixture.count_atoms``          GATHER  once if clients differ: the expected number of the client's rows in every Gaussian
``open_mixture.holdings``             GATHER  at the end: the expected number of the client's rows in every cluster
``open_mixture.describe_unexplained`` GATHER  `partial_fit` only: local components that no known cluster explains
``open_mixture.mixed_stats``          SUM     every round where columns are mixed: statistics of mixed mixtures of many sizes
``open_mixture.mixed_holdings``       GATHER  at the end where columns are mixed: the client's expected rows in every cluster
====================================  ======  =====================================================================================

In the GATHERs nothing is sent that stands for fewer than `min_count` rows, nor is the difference of two numbers that are sent: a client
describes one partition of its rows, and counts add up to all its rows. Where columns are mixed nothing is described: a fit starts from
the sums that `MixedMixture` starts from.

Reading order
-------------
1. `estimator`: the public class; one round is one SUM.
   `units` and `few_values`: what is done to columns before everything else.
2. `phases`: the phases of a fit, in order, and what each one passes to the next.
3. `candidates`: a candidate model, its M-step and its BIC; `covariances`: how covariances are shrunk.
4. `descriptions` and `questions`: what clients are asked; `client_weights`: the clients' own mixing weights.
5. `site_offsets`, `site_references` and `site_questions`: offsets and scales of sites, found before the rounds; `scale_direction`: which
   scales are clusters; `realignment`: offsets that are estimated again once clusters are found.
   `initial`: the first candidates, from what clients described; `merging` and `agglomeration`: which local components are one.
6. `grouping`, `directions`, `topics`: which Gaussians the same clients hold, and how many groups there are.
7. `shared_weights`: the fit where clients do not differ; `several_gaussians`: which Gaussians are clusters.
8. `certainty`: the probability of each number of clusters, and the dendrogram.
9. `mixed_columns` and `mixed_questions`: the fit where columns are mixed.
10. `results`: what a fit leaves; `inference`: what it can do with new rows; `new_clients`: `partial_fit`.
11. `constants`: every fixed number, with its reason.
"""

from unpooled.models.open_mixture.estimator import OpenMixture

__all__ = ["OpenMixture"]
