"""Regression with forgetting: a site withdraws, and the model is the one it never took part in.

The diabetes table of scikit-learn (442 patients, a score of the disease one year later) is dealt to
five sites. One of them withdraws. Its sums are taken out of the fit again, and the result equals, to
rounding, a fit that never saw it. No other site is asked anything.
"""

# %% Five sites; the scores of the last are wrong
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import unpooled as up
from unpooled.data import partition

table = load_diabetes(scaled=False)
names = list(table.feature_names)
owner = partition.iid(len(table.target), 5, random_state=0)
sites = {f"site {i + 1}": (table.data[owner == i], table.target[owner == i]) for i in range(5)}
x, y = sites["site 5"]
sites["site 5"] = (x, 350 - y)  # entered the wrong way round

# %% Fit with all, forget one, and fit without it from the beginning
with_all = up.BayesianRegression().fit(sites)
forgotten = up.BayesianRegression().fit(sites).forget("site 5")
never = up.BayesianRegression().fit({name: rows for name, rows in sites.items() if name != "site 5"})
apart = np.abs(forgotten.coef_ - never.coef_).max() / np.abs(never.coef_).max()
print(f"forgotten and never seen differ by {apart:.0e}")

# %% The picture: effects per standard deviation of a column
spread = table.data.std(axis=0)
place = np.arange(len(names))
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
ax.bar(place - 0.27, with_all.coef_ * spread, 0.25, color="#d1603d", label="with site 5")
ax.bar(place, forgotten.coef_ * spread, 0.25, color="#3b6fb6", label="site 5 forgotten")
ax.bar(place + 0.27, never.coef_ * spread, 0.25, color="#a9c1e3", label="never with site 5")
ax.axhline(0, color="#333333", lw=0.8)
ax.set_xticks(place, names)
ax.set(ylabel="change of the score per standard deviation")
ax.set_title(f"forgotten and never seen differ by {apart:.0e} at most (relative)")
ax.legend()
figure.savefig("forgetting.png", dpi=110)
