"""Engines of three airlines: wear from sensors, with intervals that hold at a fourth.

One airline flies new engines, one middle-aged ones, one old ones; sensors drift with wear, not in a
straight line. No airline alone has seen the whole life of an engine. `FedBNR` learns one Gaussian
process over all of them from sums, and says for every engine how sure it is. The records are
invented, and none of the fourth airline was used in the fit.
"""

# %% Records: three sensors, and the wear that an inspection found
import matplotlib.pyplot as plt
import numpy as np

import unpooled as up

rng = np.random.default_rng(3)


def records(engines, youngest, oldest):
    """One record per engine; (sensors, wear in percent)."""
    wear = rng.uniform(youngest, oldest, engines)
    heat = 620 + 30 * np.tanh(wear / 40) + rng.normal(0, 1.0, engines)
    pressure = 550 - 0.002 * wear**2 + rng.normal(0, 1.0, engines)
    vibration = 0.3 + 0.8 / (1 + np.exp((70 - wear) / 8)) + rng.normal(0, 0.03, engines)
    return np.column_stack([heat, pressure, vibration]), wear + rng.normal(0, 2, engines)


airlines = {"alpine": records(200, 0, 40), "baltic": records(320, 30, 70), "coastal": records(150, 60, 100)}
sensors, wear = records(250, 0, 100)  # of a fourth airline

# %% One fit over the airlines
model = up.FedBNR(n_frequencies=60, max_iter=25, random_state=0).fit(airlines)
mean = model.predict(sensors)
low, high = model.interval(sensors, coverage=0.9)
inside = (low <= wear) & (wear <= high)
print(f"{model.n_sums_} sums; {inside.mean():.0%} of the fourth airline's engines lie in their 90 % intervals")

# %% What each airline would know by itself
errors = {"all three": np.sqrt(np.mean((mean - wear) ** 2))}
for name, own in airlines.items():
    alone = up.FedBNR(n_frequencies=60, max_iter=25, random_state=0).fit({name: own})
    errors[f"{name} alone"] = np.sqrt(np.mean((alone.predict(sensors) - wear) ** 2))

# %% The picture
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[1.7, 1])
order = np.argsort(mean)
place = np.arange(len(order))
left.fill_between(place, low[order], high[order], color="#c9daf0", label="90 % interval")
left.plot(place, mean[order], color="#1f4e96", label="predicted")
left.scatter(place, wear[order], s=9, c=np.where(inside[order], "#333333", "#d1603d"), label="found by inspection")
left.set(xlabel="engines of the fourth airline, by prediction", ylabel="wear, percent")
left.set_title(f"{inside.mean():.0%} of the engines lie in their 90 % intervals")
left.legend(loc="upper left")
bars = right.barh(list(errors), list(errors.values()), color=["#1f4e96", "#aaaaaa", "#aaaaaa", "#aaaaaa"])
right.bar_label(bars, fmt="%.1f", padding=3)
right.invert_yaxis()
right.set(xlabel="typical error at the fourth airline, percent of wear", xlim=(0, max(errors.values()) * 1.15))
right.set_title("what one airline alone would know")
figure.savefig("engines.png", dpi=110)
