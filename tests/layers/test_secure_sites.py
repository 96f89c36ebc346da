"""Questions whose totals show each site's own numbers are not masked: nobody would be hidden."""

from importlib import import_module

import numpy as np
import pytest

import unpooled as up
from unpooled.client import REGISTRY
from unpooled.errors import BadParameter
from unpooled.layers.secure import mask
from unpooled.models.describe import Describe
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused, options

X = np.random.default_rng(0).normal(size=(90, 2))


def masked():
    return up.SecureSum(up.federate(X, by=np.arange(90) % 3), min_cohort=3)


def test_by_site_is_refused_under_masks_and_the_rest_is_answered():
    fed = masked()
    Describe(sites=False).fit(fed)
    assert fed.journal.exchanges
    with pytest.raises(BadParameter, match="shows each site's own numbers, which masks are to hide: use sites=False"):
        Describe(sites=True).fit(masked())


def by_site_questions():
    for room in ("describe", "glm", "pooling", "regression"):
        import_module(f"unpooled.models.{room}")  # registers its questions
    return [ask for ask in REGISTRY.values() if "sites" in options(ask)]


def test_a_node_does_not_answer_them_masked_whoever_asks():
    found = by_site_questions()
    assert len(found) >= 9
    for ask in found:
        asked = ask.using(sites=["a", "b"])
        Policy().admit(asked, 100, "a")
        with pytest.raises(Refused, match="shows each site's own numbers, whatever masks it"):
            Policy().admit(asked.then(mask, t=2, cohort=[], members=[]), 100, "a")


def test_every_question_that_is_called_by_site_declares_its_sites():
    by_site_questions()
    sums_over_sites = {"survival.scores_by_site"}  # products of scores, added over sites
    named = {name for name in REGISTRY if name.endswith("_by_site")} - sums_over_sites
    assert named <= {ask.name for ask in by_site_questions()}
