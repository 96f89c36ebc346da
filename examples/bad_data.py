"""Bad data at five sites: what is noticed before the fit, and what during it.

One site has weights in pounds, one writes -9 where a height was not measured, one brings most of
the rows, and one answers nonsense in a round. `Describe` by site shows the first two before any
model is fitted, `Plausible` names the third, and the refusals name the fourth.
"""

# %% Five invented sites
import warnings

import matplotlib.pyplot as plt
import numpy as np

import unpooled as up
from unpooled.errors import DataWarning
from unpooled.layers.plausible import Plausible

rng = np.random.default_rng(0)


def patients(n):
    """Weight in kilograms and height in centimetres."""
    height = rng.normal(170, 9, n)
    return np.column_stack([0.9 * (height - 100) + rng.normal(8, 9, n), height])


sizes = {"aarau": 150, "bern": 180, "chur": 120, "davos": 160, "genf": 9000}
sites = {name: patients(n) for name, n in sizes.items()}
sites["bern"][:, 0] *= 2.205  # pounds
sites["davos"][rng.random(160) < 0.15, 1] = -9  # "not measured"

# %% Look before the fit: quantiles by site, from sums
looks = up.Describe(sites=True, probabilities=(0.05, 0.5, 0.95)).fit(sites)
quantiles = {name: about["quantiles"] for name, about in looks.sites_.items()}  # (3, 2) each
print({name: q[1].round(0).tolist() for name, q in quantiles.items()})

# %% Repair what the table showed, then fit; chur's answer to the fifth question is damaged on its way
repaired = {name: rows.copy() for name, rows in sites.items()}
repaired["bern"][:, 0] /= 2.205
repaired["davos"][repaired["davos"][:, 1] < 0, 1] = np.nan  # a missing value
fed = Plausible(up.Faults(up.federate(repaired), corrupt={5: {"chur": "nan"}}))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always", DataWarning)
    model = up.GaussianMixture(1, random_state=0).fit(fed)
print(*(warning.message for warning in told), sep="\n")
for refusal in fed.journal.refusals:
    print(f"round {refusal.round}: {refusal.client} was refused: {refusal.reason}")

# %% The picture
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
for ax, column, title in zip(axes, (0, 1), ("weight: bern has pounds", "height: davos has -9 for missing")):
    for place, (name, q) in enumerate(quantiles.items()):
        odd = (name, column) in (("bern", 0), ("davos", 1))
        colour = "#d1603d" if odd else "#3b6fb6"
        ax.plot(q[[0, 2], column], [place, place], color=colour, lw=3, solid_capstyle="round")
        ax.plot(q[1, column], place, "o", color=colour, markersize=9)
    ax.set(title=title, xlabel="5 %, median and 95 %")
axes[0].set_yticks(range(len(sites)), sites)
axes[0].invert_yaxis()
shares = np.array(list(fed.shares.values()))
bars = axes[2].barh(range(len(sites)), shares, color=np.where(shares > 0.8, "#d1603d", "#3b6fb6"))
axes[2].bar_label(bars, [f"{share:.0%}" for share in shares], padding=3)
axes[2].set(title="genf brings nearly all rows", xlabel="share of all rows", xlim=(0, 1.15))
figure.savefig("bad_data.png", dpi=110)
