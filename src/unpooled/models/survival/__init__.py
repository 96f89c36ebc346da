"""Survival: `Cox` regression and `KaplanMeier` curves of the pooled patients, by SUMs alone.

What is sent, in the order of the files:

- `rows`: a client's rows as times, events and covariates; one SUM of counts and of the sums of covariates.
- `times`: the steps of time, found by SUMs of counts of deaths at or below thresholds, or given by the study (nothing is sent then).
- `kaplan_meier`: one SUM of deaths and censored patients by step and group.
- `cox`, `cox_questions`: two SUMs per Newton step, of risk sums by step of time and of one matrix; one small SUM stratified by site.
  `cox_start` is what comes before these steps, `cox_likelihood` the two SUMs of one step, `partial_likelihood` their mathematics.
- `cox_information`, `cox_fitted`: standard errors, and what a fitted `Cox` predicts. Nothing is sent there.
- `concordance`: SUMs of counts by step of time and cell of score; `harrell` computes the index from them.
"""

from unpooled.models.survival.cox import Cox
from unpooled.models.survival.kaplan_meier import KaplanMeier

__all__ = ["Cox", "KaplanMeier"]
