"""Clusters of unknown number: handwritten digits at twelve sites, each with a few of them.

Nobody says how many kinds of digits there are, and no site has all of them. `OpenMixture` finds the
number by who holds what, and gives one cluster the same name at every site. The 1,797 digits are
part of scikit-learn; true digits are used to deal the rows and to check the result, not in the fit.
"""

# %% Twelve sites with three or four digits each, as twelve principal components
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

import unpooled as up

rng = np.random.default_rng(1)
images, digit = load_digits(return_X_y=True)
used = np.ptp(images, axis=0) > 0  # three pixels are empty in every image
held = [rng.choice(10, rng.integers(3, 5), replace=False) for _ in range(12)]
holders = {d: [c for c in range(12) if d in held[c]] or [int(rng.integers(12))] for d in range(10)}
owner = np.array([rng.choice(holders[d]) for d in digit])
sites = {f"site {c + 1}": images[owner == c][:, used] for c in range(12)}
truth = np.concatenate([digit[owner == c] for c in range(12)])

axes_of_all = up.PCA(n_components=12).fit(sites)  # from sums, too
sites = {name: axes_of_all.transform(rows) for name, rows in sites.items()}

# %% The clusters, their number included
model = up.OpenMixture(random_state=0).fit(sites)
found = np.concatenate([model.labels_[name] for name in sites])
score = adjusted_rand_score(truth, found)
print(f"{model.n_components_} clusters ({model.structure_}), adjusted Rand index {score:.2f}")

# %% The picture: the mean digit of each cluster, and who holds it
centres = np.zeros((model.n_components_, 64))
centres[:, used] = axes_of_all.inverse_transform(model.centers_)
holdings = np.array([model.holdings_[name] for name in sites])
k = model.n_components_
figure = plt.figure(figsize=(11, 4.4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.1])
grid = left.subplots(3, -(-k // 3))
for c, ax in enumerate(grid.ravel()):
    ax.axis("off")
    if c < k:
        ax.imshow(centres[c].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"cluster {c + 1}", fontsize=9)
left.suptitle(f"{k} clusters: their mean images")
ax = right.subplots()
shown = ax.imshow(holdings, cmap="Blues", aspect="auto")
ax.set_xticks(range(k), range(1, k + 1))
ax.set_yticks(range(12), sites)
ax.set(xlabel="cluster", title=f"who holds what (agreement with the true digits: {score:.2f})")
right.colorbar(shown, label="rows")
figure.savefig("unknown_clusters.png", dpi=110)
