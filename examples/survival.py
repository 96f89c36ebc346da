"""Survival at three hospitals: curves, a test and hazard ratios of all patients together.

Each hospital has too few patients of its own. `KaplanMeier` and `Cox` give what the pooled rows
would give, from counts and sums. `min_count=5` joins steps of time until each holds enough patients,
so that no time of death of a single patient can be read off. The 600 patients are invented.
"""

# %% Age, treatment, smoking, days under observation, and whether the patient died
import matplotlib.pyplot as plt
import numpy as np

import unpooled as up

rng = np.random.default_rng(0)
n = 600
age, treated, smokes = rng.normal(60, 9, n), rng.integers(0, 2, n), rng.random(n) < 0.3
days = np.ceil(rng.exponential(900 * np.exp(-0.04 * (age - 60) + 0.6 * treated - 0.4 * smokes)))
last_seen = rng.integers(100, 1500, n)
rows = np.column_stack([age, treated, smokes, np.minimum(days, last_seen), days <= last_seen]).astype(float)
hospitals = {name: rows[i::3] for i, name in enumerate(["Basel", "Bern", "Chur"])}

# %% Curves by treatment with the log-rank test; hazard ratios
curves = up.KaplanMeier(duration=3, event=4, by=1, min_count=5).fit(hospitals)
cox = up.Cox(duration=3, event=4).fit(hospitals)
print(cox.summary())

# %% The picture
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=[1.4, 1])
for group, colour, label in ((0, "#d1603d", "not treated"), (1, "#3b6fb6", "treated")):
    times = np.concatenate([[0], curves.times_])
    left.step(times, np.concatenate([[1], curves.survival_[group]]), where="post", color=colour, label=label)
    low, high = (np.concatenate([[1], ends[group]]) for ends in (curves.lower_, curves.upper_))
    left.fill_between(times, low, high, step="post", color=colour, alpha=0.15)
left.set(xlabel="days", ylabel="alive", ylim=(0, 1), xlim=(0, None))
left.set_title(f"log-rank test: p = {curves.logrank_['p_value']:.1g}")
left.legend()

labels = ["age, ten years", "treated", "smokes"]
unit = np.array([10, 1, 1])
ratios = np.exp(cox.coef_ * unit)
low, high = np.exp(cox.confidence_interval_ * unit[:, None]).T
right.errorbar(ratios, range(3), xerr=[ratios - low, high - ratios], fmt="o", color="#333333", capsize=4)
right.axvline(1, color="#999999", lw=0.8)
right.set_yticks(range(3), labels)
right.invert_yaxis()
right.set_xscale("log")
right.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
right.minorticks_off()
right.set(xlabel="hazard ratio with 95 % interval", title="Cox regression over all hospitals")
figure.savefig("survival.png", dpi=110)
