"""FedGEM: clusters when their number is unknown and clients hold different ones, as published, with the errors of its code corrected.

What it is
----------
Every client runs EM on its own isotropic components. Around each new centre there is a ball of centres under which the client's
expected log-likelihood is not below its value before the step. Components of different clients whose balls overlap form a
super-cluster, and the server moves their centres towards each other within their balls.

What is sent
------------
========================  ======  ==========================================================================
question                  kind    answer
========================  ======  ==========================================================================
``fedgem.begin``          GATHER  once: k-means centres of the client's rows, and the squared distances to them
``fedgem.local_step``     GATHER  every round: centre, radius and count of each component of the client
``fedgem.silhouettes``    SUM     once: silhouettes of several sets of centres, with final_radius="auto"
========================  ======  ==========================================================================

A component of fewer than `min_count` rows is not sent. The server sends everybody's new centres, by client name.

Reading order
-------------
1. `estimator`: the public class.
2. `questions`: what clients are asked.
3. `super_clusters`: what the server does with all clients' balls.
4. `balls`: the geometry of balls.
"""

from unpooled.models.fedgem.estimator import FedGEM

__all__ = ["FedGEM"]
