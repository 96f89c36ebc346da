"""Which concept a client has, from its weights and fits."""

import numpy as np

from unpooled.models.fedconceptem.estimator import concept_of


def test_the_largest_weight_decides_where_it_is_clear():
    assert concept_of(np.array([0.1, 0.85, 0.05]), np.array([2.0, 1.0, 0.0])) == 1


def test_the_fit_decides_among_large_weights():
    omega, fit = np.array([0.35, 0.01, 0.64]), np.array([0.95, 3.0, 0.85])
    assert concept_of(omega, fit) == 0
    assert concept_of(omega, None) == 2


def test_the_concept_found_before_the_rounds_stays_unless_another_fits_clearly_better():
    omega = np.array([0.86, 0.14, 0.0])
    assert concept_of(omega, np.array([1.49, 1.41, -1.4]), found=1) == 1
    assert concept_of(omega, np.array([1.49, 1.0, -1.4]), found=1) == 0
