"""FedConceptEM: one classifier per concept, where clients may label the same input differently.

What is sent:

- `learners.label_counts` (SUM, once): rows per class; over a network without `classes=`, `learners.table_summary`
  (GATHER) instead.
- with n_concepts="auto": `learners.column_sums`, `fedconceptem.sketch_moments`, `fedconceptem.probes`, `fedconceptem.score_moments` and
  `fedconceptem.score_means` (SUMs, before the first round) and `fedconceptem.assign` (TELL).
- `fedconceptem.initialise` (SUM, once): how many clients have a single class.
- `fedconceptem.concept_round` (SUM, every round): k models weighted by rows, a k x classes table of labels, and a few
  numbers per model.
- after the run, for linear learners: Newton sums (`learners.part_curvature`) and those of one learner of all rows (`learners.curvature`,
  or `slope` and `block_slope`), SUMs.
- after the run: `learners.calibration_losses` (SUM), for linear learners `learners.second_moments` and `learners.judge_candidates`
  (SUMs), and `learners.personalise` (TELL); for networks also the sums of `learners.input_groups` and `learners.group_models`.
- `fedconceptem.fine_tune` (TELL, once, with `fine_tune` > 0): nothing comes back.

A client's weights of the concepts never leave it.

Read in this order: `estimator` and `server_steps` (the server), `discovery` and `probes` (the number of concepts, and its
questions), `rounds` (the questions of a round),
`removal` (models that are not needed), `prediction` (what a fitted model does with new rows), `label_tables` (label shares from noisy
counts).
"""

from unpooled.models.fedconceptem.estimator import FedConceptEM

__all__ = ["FedConceptEM"]
