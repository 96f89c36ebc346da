"""FLamby's Fed-Heart-Disease with its own split: accuracy of classifiers with default parameters, columns by their kinds.

FLamby leaves out slope, ca and thal and rows with missing values, and holds back 34 % of each hospital's patients, drawn with
scikit-learn's train_test_split (seed 43, stratified by outcome). Its published figures are with scaling by site.

    python benchmarks/heart_sites.py                 needs heart_disease_4hospitals.csv.gz in $UNPOOLED_DATA
    python benchmarks/heart_sites.py --splits 60     FedAvg's shared model and what hospitals keep, over as many other splits
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import unpooled as up
from unpooled import baselines
from unpooled.datasets.shared import find

COLUMNS = {
    "age": "real",
    "sex": "binary",
    "cp": {"kind": "category", "levels": [1, 2, 3, 4]},
    "trestbps": "real",
    "chol": "real",
    "fbs": "binary",
    "restecg": {"kind": "category", "levels": [0, 1, 2]},
    "thalach": "real",
    "exang": "binary",
    "oldpeak": "real",
}
FLAMBY = {"pooled": 0.795, "FedAvg": 0.748, "best federated": 0.785}
MODELS = {
    "LogisticRegression": lambda: up.LogisticRegression(),
    "FedAvg": lambda: baselines.FedAvg(random_state=0),
    "FedGMM": lambda: up.FedGMM(random_state=0),
    "FedConceptEM": lambda: up.FedConceptEM(random_state=0),
}


def patients(seed: int = 43) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test patients, as FLamby splits them; with another seed, another split of the same kind."""
    table = pd.read_csv(find("heart_disease_4hospitals"))[["hospital", *COLUMNS, "num"]].dropna()
    table = table.assign(disease=np.where(table.num > 0, "yes", "no")).drop(columns="num")
    train, test = [], []
    for _, own in table.groupby("hospital", sort=False):
        two = own.disease.value_counts()
        stratify = own.disease if len(two) > 1 and (two > 2).all() else None
        rows = train_test_split(
            np.arange(len(own)), test_size=0.34, train_size=0.66, random_state=seed, shuffle=True, stratify=stratify
        )
        train.append(own.iloc[sorted(set(range(len(own))) - set(rows[1]))])
        test.append(own.iloc[sorted(rows[1])])
    return pd.concat(train), pd.concat(test)


def pooled(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """scikit-learn's logistic regression on the pooled rows, with the same columns: which test patients are right."""
    both = pd.get_dummies(pd.concat([train, test])[list(COLUMNS)], columns=["cp", "restecg"], drop_first=True)
    x, new = both.iloc[: len(train)].astype(float), both.iloc[len(train) :].astype(float)
    mean, scale = x.mean(), x.std()
    model = LogisticRegression(max_iter=1000).fit((x - mean) / scale, train.disease)
    return np.asarray(model.predict((new - mean) / scale) == test.disease)


def line(name: str, right: np.ndarray, test: pd.DataFrame, seconds: float) -> str:
    sites = [right[(test.hospital == h).to_numpy()].mean() for h in test.hospital.unique()]
    by_site = ", ".join(f"{s:.3f}" for s in sites)
    return f"  {name:<28} {right.mean():.3f}   {np.mean(sites):.3f}   ({by_site})   {seconds:.1f} s"


def right_and_loss(test: pd.DataFrame, p: np.ndarray) -> tuple[float, float]:
    """How many test patients are right, and the sum of their log-losses; p of "no" and "yes"."""
    ill = (test.disease == "yes").to_numpy(int)
    return float((p.argmax(1) == ill).sum()), float(-np.log(p[np.arange(len(p)), ill]).sum())


def shared_and_kept(seed: int) -> dict[str, tuple[float, ...]]:
    """A hospital's (test patients, right and loss with the shared model, right and loss with what it keeps)."""
    train, test = patients(seed)
    model = baselines.FedAvg(random_state=0).fit(up.federate(train, by="hospital", label="disease", columns=COLUMNS))
    found = {}
    for hospital, own in test.groupby("hospital", sort=False):
        answers = model.predict_proba(own), model.predict_proba(own, client=str(hospital))
        found[str(hospital)] = (len(own), *right_and_loss(own, answers[0]), *right_and_loss(own, answers[1]))
    return found


def many_splits(splits: int) -> None:
    """Accuracy and log-loss per patient over splits 0, 1, ...: of all patients and of each hospital's."""
    found = [shared_and_kept(seed) for seed in range(splits)]
    every = np.array([list(split.values()) for split in found])  # splits, hospitals, five numbers
    print(f"{splits} splits        accuracy shared, kept   log-loss shared, kept")
    for name, sums in [("all", every.sum((0, 1))), *zip(found[0], every.sum(0), strict=True)]:
        n, *rest = sums
        right, loss, right_kept, loss_kept = np.array(rest) / n
        print(f"  {name:<14} {right:.3f}  {right_kept:.3f}             {loss:.3f}  {loss_kept:.3f}")
    change = every.sum(1)[:, 3] - every.sum(1)[:, 1]
    print(f"  what hospitals keep: more patients right in {(change > 0).sum()} splits, fewer in {(change < 0).sum()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=0, help="how many other splits (default: FLamby's alone)")
    splits = parser.parse_args().splits
    if splits:
        many_splits(splits)
    else:
        flambys_split()


def flambys_split() -> None:
    train, test = patients()
    sizes = ", ".join(f"{h} {(train.hospital == h).sum()}/{(test.hospital == h).sum()}" for h in test.hospital.unique())
    print(f"training/test patients: {sizes}")
    print(f"FLamby, all test patients: {', '.join(f'{k} {v:.3f}' for k, v in FLAMBY.items())}")
    print(f"  {'':<28} all     mean of sites (each)")
    print(line("scikit-learn, pooled", pooled(train, test), test, 0.0))
    fed = up.federate(train, by="hospital", label="disease", columns=COLUMNS)
    for name, make in MODELS.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make().fit(fed)
        seconds = time.perf_counter() - start
        print(line(name, np.asarray(model.predict(test) == test.disease), test, seconds))
        if getattr(model, "clients_", None):
            own = [model.predict(test[test.hospital == h], client=h) for h in test.hospital.unique()]
            print(line(f"{name}, personal", np.concatenate(own) == test.disease.to_numpy(), test, seconds))


if __name__ == "__main__":
    main()
