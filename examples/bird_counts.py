"""Bird counts with missing visits: how a population went, from surveys that were never complete.

Volunteers of three regions count birds at 90 sites over 20 years, but most years most sites have no
visit, and the sites visited in late years are the good ones. Counts that are simply added up stay
level, while the population halves. `FedMissEM` fits the effects of sites and years from sums, fills in the
missing visits and gives totals with standard errors. The counts are invented, so the truth is known.
"""

# %% Visits of three regions: rows of (site, year, count)
import matplotlib.pyplot as plt
import numpy as np

import unpooled as up

rng = np.random.default_rng(7)
sites, years = 90, 20
quality = rng.normal(2.2, 0.9, sites)
trend = -0.035 * np.arange(years) + 0.12 * np.sin(np.arange(years))
truth = np.exp(quality[:, None] + trend)
counts = rng.poisson(truth)
eager = (np.arange(years) - 10) * (quality[:, None] - 2.2) / 12  # good sites are visited more and more
visited = rng.random((sites, years)) < 1 / (1 + np.exp(0.4 - 0.9 * eager - 0.05 * np.arange(years)))
site, year = np.nonzero(visited)
visits = np.column_stack([site, year, counts[visited]]).astype(float)
regions = {name: visits[site % 3 == i] for i, name in enumerate(["coast", "hills", "lowland"])}
print(f"{visited.mean():.0%} of all visits were made")

# %% One model over the regions: a region's visits stay with it
model = up.FedMissEM(family="poisson", n_sites=sites, n_dates=years, random_state=0).fit(regions)
print(f"rank {model.rank_} of the interaction of sites and years, {model.n_iter_} rounds")

# %% The picture
when = 2005 + np.arange(years)
added = np.array([counts[visited[:, t], t].sum() for t in range(years)])
band = 1.645 * model.totals_std_
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.imshow(np.where(visited, np.log1p(counts), np.nan)[np.argsort(quality)], aspect="auto", cmap="viridis")
left.set(xlabel="year", ylabel="sites, the best at the bottom", title="what was counted (white: no visit)")
left.set_xticks(range(0, years, 5), when[::5])
right.fill_between(when, model.totals_ - band, model.totals_ + band, color="#c9e4d3", label="90 % band")
right.plot(when, model.totals_, color="#2c7a4b", label="total, missing visits filled in")
right.plot(when, truth.sum(axis=0), color="#111111", ls="--", label="truth")
right.plot(when, added, color="#d1603d", label="counts as they came in, added up")
right.set(xlabel="year", ylabel="birds", title="the decline that raw counts hide", ylim=(0, None))
right.set_xticks(when[::5])
right.legend(fontsize=9)
figure.savefig("bird_counts.png", dpi=110)
