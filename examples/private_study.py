"""A private study: what epsilon costs.

12,000 invented patients of three hospitals, two measurements. A mixture is fitted without noise, and
with differential privacy at several values of epsilon. The smaller epsilon is, the less any single
row can be told from the result, and the further the ellipses stray.
"""

# %% Three hospitals
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

import unpooled as up

rng = np.random.default_rng(0)
healthy = rng.multivariate_normal([55, 190], [[80, 40], [40, 900]], size=9000)
ill = rng.multivariate_normal([70, 290], [[60, -30], [-30, 1200]], size=3000)
rows = rng.permutation(np.concatenate([healthy, ill]))
hospitals = up.federate({"basel": rows[:5000], "bern": rows[5000:9000], "genf": rows[9000:]})

# %% Bounds come from what a column is, not from the data
bounds = {"0": (0, 110), "1": (50, 700)}  # years, mg/dl
exact = up.GaussianMixture(2, random_state=0).fit(hospitals)
epsilons = (0.1, 0.3, 1.0, 3.0)
models = {}
for epsilon in epsilons:
    private = up.Private(
        hospitals, epsilon=epsilon, delta=1e-6, bounds=bounds, secret=b"for a picture that repeats......"
    )
    models[epsilon] = up.GaussianMixture(2, random_state=0).fit(private)
    print(private.accountant)
lost = [max(exact.score(rows) - model.score(rows), 1e-6) for model in models.values()]


# %% The picture
def ellipse(mean, covariance, **style):
    """Two standard deviations around a mean."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    return Ellipse(mean, *(4 * np.sqrt(values[::-1])), angle=angle, fill=False, **style)


COLOURS = ["#d1603d", "#e0a12e", "#4a9d6f", "#3b6fb6"]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
left.scatter(*rows[::6].T, s=2, color="#bbbbbb")
for (epsilon, model), colour in zip(models.items(), COLOURS):
    left.plot([], [], color=colour, label=f"epsilon {epsilon}")
    for mean, covariance in zip(model.means_, model.covariances_):
        left.add_patch(ellipse(mean, covariance, edgecolor=colour, lw=1.6))
for mean, covariance in zip(exact.means_, exact.covariances_):
    left.add_patch(ellipse(mean, covariance, edgecolor="#111111", lw=1.2, ls="--"))
left.plot([], [], color="#111111", ls="--", label="without noise")
left.set(xlabel="age", ylabel="cholesterol, mg/dl", xlim=(20, 100), ylim=(80, 420))
left.legend(loc="upper left", fontsize=9)
right.loglog(epsilons, lost, "o-", color="#333333")
right.set_xticks(epsilons, [str(e) for e in epsilons])
right.minorticks_off()
right.set(xlabel="epsilon", ylabel="log-likelihood lost per row", title="what privacy costs")
figure.savefig("private_study.png", dpi=110)
