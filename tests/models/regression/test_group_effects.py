"""Which rows belong to which group: values are identified by a hash."""

import numpy as np

from unpooled.models.regression import group_effects as groups


def test_a_value_is_the_same_in_either_precision_and_zero_is_one_value():
    values = np.round(np.random.default_rng(0).normal(size=1000), 3)
    assert (groups.hashed(values, groups.N_HASHES) == groups.hashed(values.astype(np.float32), groups.N_HASHES)).all()
    assert groups.hashed(np.array([0.0]), 64) == groups.hashed(np.array([-0.0]), 64)
    assert len(np.unique(groups.hashed(np.arange(600.0), groups.N_HASHES))) > 595


def test_members_are_found_by_value_and_missing_values_have_no_group():
    values = np.array([3.5, 7.25, 1.0])
    known = groups.Groups(np.asarray(1.0), np.sort(groups.hashed(values[:2], groups.N_HASHES)).astype(float))
    found = groups.members(known, np.column_stack([values[[0, 1, 2, 0, 0]], [3.5, 7.25, 1.0, np.nan, 3.5]]))
    assert found[0] == found[4]
    assert sorted(found[:2]) == [0, 1]
    assert found[2] == found[3] == -1
    assert groups.members(None, np.ones((2, 2))) is None
