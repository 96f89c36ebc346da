"""Layers refuse what they cannot do before any work, in one sentence, and take NumPy's numbers for Python's."""

import numpy as np
import pytest

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.layers.compression.layer import Compressed
from unpooled.layers.compression.quantisers import Dither, Grid
from unpooled.layers.faults import Faults
from unpooled.layers.meter import Metered

DATA = {f"c{i}": np.random.default_rng(i).normal(size=(10, 2)) for i in range(3)}

REFUSED = [
    (Compressed, {"levels": 0}, "levels=0 must be a whole number of at least 1"),
    (Compressed, {"levels": 2, "quantiser": "grid"}, "give one of them"),
    (Compressed, {"memory": "no"}, "memory='no' must be True or False"),
    (Compressed, {"alpha": 0}, "alpha=0 must be above 0"),
    (Compressed, {"max_bytes": "1 GB"}, "max_bytes='1 GB' must be a whole number"),
    (Compressed, {"quantiser": "topk", "memory": False}, "set memory=True"),
    (Metered, {"budget": "1 MB"}, "budget='1 MB' must be above 0"),
    (Metered, {"budget": None}, "budget=None must be above 0"),
    (Faults, {"drop": ["c1"]}, r"drop=\['c1'\] must be a dict of lists of names by round"),
    (Faults, {"drop": {3: "c1"}}, "drop={3: 'c1'} must be a dict of lists of names"),
    (Faults, {"drop": {"soon": ["c1"]}}, "a round of drop='soon' must be a whole number"),
    (Faults, {"drop": {1: ["c9"]}}, "there is no client 'c9' to rehearse a fault with: the clients are c0, c1, c2"),
    (Faults, {"delay": {1: ["c1"]}}, "must be a dict of dicts {name: seconds}"),
    (Faults, {"delay": {1: {"c1": -1}}}, "delay=-1 must be a number of 0 or more"),
    (Faults, {"corrupt": {1: {"c1": "zap"}}}, "corrupt='zap' is not known: use one of 'nan'"),
]


@pytest.mark.parametrize(("layer", "options", "says"), REFUSED)
def test_what_cannot_work_is_refused_at_once(layer, options, says):
    with pytest.raises(BadParameter, match=says):
        layer(up.federate(DATA), **options)


@pytest.mark.parametrize("given", [np.int64(3), 3.0])
def test_a_whole_number_is_one_however_it_is_written(given):
    assert Compressed(up.federate(DATA), levels=given).quantiser == Dither(3)
    assert type(Compressed(up.federate(DATA), quantiser=Grid(given)).quantiser.levels) is int
    fits = [
        up.GaussianMixture(2, tol=np.inf, random_state=0).fit(Compressed(up.federate(DATA), levels=n)).means_
        for n in (given, 3)
    ]
    assert (fits[0] == fits[1]).all()
