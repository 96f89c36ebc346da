"""Six hospitals with missing values: which kinds of patients are there, and who sees which.

Six invented hospitals measured eight things, not all of them everywhere: one hospital hardly ever
measures heart rate, another one cholesterol. BIC chooses the number of kinds of patients, every
hospital keeps its own shares of them, and a missing value is filled in from the others of its row.
"""

# %% The tables: NaN is a missing value
import matplotlib.pyplot as plt
import numpy as np

import unpooled as up
from unpooled.data import builtin

hospitals = builtin.load("hospitals")
missing = {name: np.isnan(x).mean(axis=0) for name, x in hospitals.clients.items()}

# %% How many kinds of patients? All candidates share the same rounds
chosen = up.GaussianMixture([1, 2, 3, 4, 5], tol=1e-4, random_state=0).fit(hospitals)
kinds = chosen.n_components_
print("BIC by number of kinds:", {k: round(bic) for k, bic in sorted(chosen.bics_.items())})

# %% Shared kinds, and each hospital's own shares, which never leave it
model = up.GaussianMixture(kinds, personal_weights=True, tol=1e-5, max_iter=300, random_state=0).fit(hospitals)
order = np.argsort(model.means_[:, 0])  # by age
shares = {name: personal.weights_[order] for name, personal in model.personal_.items()}
rows = np.concatenate(list(hospitals.clients.values()))
profile = (model.means_[order] - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0)

# %% The picture: what was measured, what the kinds are like, who sees which
COLOURS = ["#3b6fb6", "#e0a12e", "#c0504d", "#4a9d6f", "#8467b0"]
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
left.imshow(np.array(list(missing.values())), cmap="Blues", vmin=0, vmax=1, aspect="auto")
left.set_xticks(range(8), hospitals.columns, rotation=60, ha="right")
left.set_yticks(range(6), missing)
for (i, j), share in np.ndenumerate(np.array(list(missing.values()))):
    left.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=7, color="white" if share > 0.5 else "#333333")
left.set_title("share of values missing")

ages = [f"kind {k + 1}: {mean:.0f} years on average" for k, mean in enumerate(model.means_[order, 0])]
for k in range(kinds):
    middle.plot(profile[k], range(8), "o-", color=COLOURS[k], label=ages[k])
middle.axvline(0, color="#999999", lw=0.8)
middle.set_yticks(range(8), hospitals.columns)
middle.invert_yaxis()
middle.set(xlabel="standard deviations from the mean of all", title=f"the {kinds} kinds that BIC chose")
middle.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1)

low = np.zeros(6)
for k in range(kinds):
    width = np.array([share[k] for share in shares.values()])
    right.barh(list(shares), width, left=low, color=COLOURS[k])
    low += width
right.invert_yaxis()
right.set(xlabel="share of the hospital's patients", title="who sees which", xlim=(0, 1))
figure.savefig("hospitals.png", dpi=110)
