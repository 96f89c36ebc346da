"""FedGMM with networks: the search for a learning rate is judged by labels that were held out."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import unpooled as up
from unpooled.data.federate import federate


def test_a_search_for_the_rate_is_judged_by_labels_held_out():
    rng = np.random.default_rng(0)
    data = {name: (x := rng.normal(size=(60, 12)), (x[:, 0] > 0).astype(int)) for name in "abc"}
    model = up.FedGMM(2, 2, learner="mlp", hidden=(8,), max_iter=25, personalize="none", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        *_, last = model.rounds(federate(data))
    labels = [row["held_out_loglik"] for row in model.history_ if "loglik" in row]
    assert last.state.loglik == max(labels)
    assert min(labels) > -2 > max(row["loglik"] for row in model.history_ if "loglik" in row)
