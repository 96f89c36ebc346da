"""Should these sites be pooled, and who gains? Tests of shift, pooling strategies compared in shared rounds, and a page per site.

What is sent: two SUMs of column sums, one of features of x and y, one per Newton step of one model and of own intercepts, one of how
far sites lie apart, one per round of EM for the strategies in between, one of held-out losses; then, unless `sites=False`, a few
numbers site by site.

Read in this order: `rows` (a client's rows), `small_glm` (models of few rows), `questions` (tests, one model, own intercepts), `mixtures`
(groups, own weights and personalised coefficients, by EM), `starts` (where EM begins), `sites` (held-out losses, leave one site out),
`path` (the server's Newton steps), `rounds` (the order of all that), `homogeneity` and `verdict` (tests, losses, recommendation),
`results` (the last SUMs), `checks` (what is refused), `pages` and `fitted` (what is shown), `estimator`.
"""

from unpooled.models.pooling.estimator import Pooling

__all__ = ["Pooling"]
