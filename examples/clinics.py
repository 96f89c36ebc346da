"""Four clinics, one mixture: the federated fit is the pooled fit.

The Wisconsin table of 569 breast tumours (part of scikit-learn) is dealt to four clinics that see
very different shares of malignant tumours. One mixture of two Gaussians is fitted by sums; the fit
of scikit-learn to the pooled rows, from the same start, lies beneath it. Diagnoses are used to deal
the rows and to colour the dots, never for the fit.
"""

# %% The rows of each clinic: how large a tumour is, and how concave its outline
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture as Pooled

import unpooled as up
from unpooled.data import partition

table = load_breast_cancer()
names = list(table.feature_names)
rows = table.data[:, [names.index("mean radius"), names.index("worst concave points")]]
owner = partition.dirichlet(table.target, clients=4, alpha=0.7, min_rows=60, random_state=1)
clinics = {name: rows[owner == i] for i, name in enumerate(["north", "east", "south", "west"])}
malignant = {name: table.target[owner == i] == 0 for i, name in enumerate(clinics)}

# %% One mixture over the clinics, and the pooled fit from the same start
start = {
    "weights_init": [0.5, 0.5],
    "means_init": [[12, 0.08], [18, 0.2]],
    "precisions_init": [np.diag([0.3, 900])] * 2,
}
federated = up.GaussianMixture(2, tol=1e-9, max_iter=500, **start).fit(clinics)
pooled = Pooled(2, tol=1e-9, max_iter=500, **{name: np.array(value) for name, value in start.items()}).fit(rows)
apart = np.abs(federated.means_ / pooled.means_ - 1).max()
print(f"{federated.n_iter_} rounds of one sum; the means differ from the pooled fit by {apart:.0e} at most")

# %% The picture
BENIGN, MALIGNANT = "#3b6fb6", "#d1603d"


def ellipse(mean, covariance, **style):
    """Two standard deviations around a mean."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    return Ellipse(mean, *(4 * np.sqrt(values[::-1])), angle=angle, fill=False, **style)


def dots(axes, name, size):
    colours = np.where(malignant[name], MALIGNANT, BENIGN)
    axes.scatter(*clinics[name].T, s=size, c=colours, alpha=0.55, linewidths=0)
    axes.set(xlim=(5, 29), ylim=(-0.02, 0.31))


figure = plt.figure(figsize=(11, 4.6), layout="constrained")
grid = figure.add_gridspec(2, 4, width_ratios=[1, 1, 0.05, 2.2])
for place, name in zip([grid[0, 0], grid[0, 1], grid[1, 0], grid[1, 1]], clinics):
    axes = figure.add_subplot(place)
    dots(axes, name, size=7)
    axes.set_title(f"{name}: {len(clinics[name])} tumours that stay", fontsize=10)
    axes.tick_params(labelsize=8)
axes = figure.add_subplot(grid[:, 3])
for name in clinics:
    dots(axes, name, size=9)
for mean, covariance in zip(pooled.means_, pooled.covariances_):
    axes.add_patch(ellipse(mean, covariance, edgecolor="#bbbbbb", linewidth=7))
for mean, covariance in zip(federated.means_, federated.covariances_):
    axes.add_patch(ellipse(mean, covariance, edgecolor="#111111", linewidth=1.5))
axes.plot([], [], color="#111111", lw=1.5, label=f"unpooled: {federated.n_iter_} rounds of one sum")
axes.plot([], [], color="#bbbbbb", lw=7, label=f"pooled fit (means within {apart:.0e})")
axes.plot([], [], "o", color=BENIGN, label="benign")
axes.plot([], [], "o", color=MALIGNANT, label="malignant")
axes.legend(loc="lower right", fontsize=9)
axes.set(xlabel="mean radius", ylabel="worst concave points", title="one model of all 569 tumours")
figure.savefig("clinics.png", dpi=110)
