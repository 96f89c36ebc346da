"""Should these sites be pooled, and who gains? Tests of shift, a ladder of models in shared rounds, and a page for each site.

What is sent: two SUMs of column sums, one of features of x and y, one per Newton step for one law and own intercepts, one of how far sites
lie apart, one per EM round for groups, own weights and personal coefficients, one of held-out losses; then, unless `sites=False`, a few
numbers site by site.

Read in this order: `rows` (a client's rows), `questions` (tests, one law, own intercepts), `mixtures` (the rungs in between, by EM) and
`starts` (where EM begins), `sites` (held-out losses, leave one site out), `path` (the server's Newton steps), `rounds` (the order of it
all), `verdict` (tests, ladder, recommendation), `results` (the last SUMs), `checks` (what is refused), `pages` and `face` (what is said
to whom), `estimator`.
"""

from unpooled.models.pooling.estimator import Pooling

__all__ = ["Pooling"]
