"""A client that leaves in the middle ends the run in a sentence: no number is made of sums that do not fit together."""

import numpy as np
import pytest
from estimators import ESTIMATORS

import unpooled as up
from unpooled.data.federate import federate
from unpooled.errors import TooFewClients


@pytest.mark.parametrize("name", ["Describe", "PCA", "Cox", "Cox by site", "KaplanMeier"])
@pytest.mark.parametrize("at", [2, -1])
def test_a_client_that_leaves_ends_the_run(name, at):
    case = ESTIMATORS[name]
    whole = federate(case.data())
    case.make().fit(whole)
    last, n = whole.journal.round if at == -1 else at, len(whole.names)
    with pytest.raises(TooFewClients, match=rf"{n - 1} of {n} clients answered .* and {n} the first question"):
        case.make().fit(up.Faults(federate(case.data()), drop={last: whole.names[:1]}))


def test_a_client_that_never_answers_is_left_out():
    case = ESTIMATORS["KaplanMeier"]
    data = case.data()
    fed = federate(data)
    case.make().fit(fed)
    always = {r: ["c3"] for r in range(1, fed.journal.round + 1)}
    found = case.make().fit(up.Faults(federate(data), drop=always))
    del data["c3"]
    np.testing.assert_array_equal(found.survival_, case.make().fit(data).survival_)
