"""A round of FedGMM, FedEM and FedAvg with linear learners, against a plain loop over clients in torch, on one thread.

30 clients x 3000 rows, d = 32, batch 128, one local epoch. The loop is what one would write: a DataLoader and optim.SGD for each
client and learner, responsibilities by cross-entropy, the Gaussians' statistics in torch.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from unpooled.baselines import FedAvg, FedEM
from unpooled.client import Client
from unpooled.datasets import classification
from unpooled.local import Local
from unpooled.models.fedgmm.estimator import FedGMM

TARGETS = {"FedGMM 3x3": 0.30, "FedGMM 3x3 newton": 0.30, "FedEM M=3": 0.08, "FedAvg": 0.05}
TURN = 5  # rounds of ours for one of the loop, which is far longer and leaves the caches cold
SETTINGS = {"batch_size": 128, "momentum": 0.9, "lr": 0.05, "random_state": 0, "personalize": "none"}


def main(clients: int, rows: int, repeats: int) -> None:
    torch.set_num_threads(1)
    threadpool_limits(1)
    task = classification.paper(clients, rows, parts=(1.0, 0.0, 0.0), random_state=0)
    data = {n: (x.astype(np.float32), y) for n, (x, y) in task.train.items()}
    fed = [Local([Client(n, *pair) for n, pair in data.items()], threads=1) for _ in range(4)]
    one = {"starts": ("tied",), "warmup": 1, "max_iter": 10**6, **SETTINGS}
    ours = {
        "FedGMM 3x3": rounds_of(FedGMM(3, 3, optimizer="sgd", tol=0.0, **one), fed[0]),
        "FedGMM 3x3 newton": rounds_of(FedGMM(3, 3, tol=0.0, **one), fed[1]),
        "FedEM M=3": rounds_of(FedEM(3, max_iter=10**6, **SETTINGS), fed[2]),
        "FedAvg": rounds_of(FedAvg(max_iter=10**6, **SETTINGS), fed[3]),
    }
    loops = {"FedGMM 3x3": Loop(data, 3, 3), "FedEM M=3": Loop(data, 0, 3), "FedAvg": Loop(data, 0, 1)}
    loops["FedGMM 3x3 newton"] = loops["FedGMM 3x3"]
    times: dict[str, list[float]] = {name: [] for name in ours}
    theirs: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeats):
        for name, round_ in ours.items():
            theirs[name].append(cpu(loops[name].round))
            times[name].append(cpu(round_, TURN))
    print(f"{clients} clients x {rows} rows, CPU seconds a round, median of {repeats} (spread)")
    for name in ours:
        mine, loop = times[name], theirs[name]
        ratios = [b / a for a, b in zip(mine, loop)]
        seconds = f"{statistics.median(mine):.3f} ({min(mine):.3f} to {max(mine):.3f}), wanted {TARGETS[name]:.2f}"
        faster = f"{statistics.median(ratios):.0f} times ({min(ratios):.0f} to {max(ratios):.0f})"
        print(f"{name:<18}{seconds}; torch loop {statistics.median(loop):.2f}, {faster}")


def rounds_of(estimator, fed):
    """A function that runs one joint round more each time; starts and warm-up are over."""
    moments = estimator.rounds(fed)
    for _ in range(4):
        next(moments)
    return lambda: next(moments)


def cpu(work, times: int = 1) -> float:
    """CPU seconds of one of so many."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


class Loop:
    """One client after the other, one learner after the other."""

    def __init__(self, data, gaussians: int, learners: int):
        self.sets = [TensorDataset(torch.tensor(x), torch.tensor(y), torch.arange(len(y))) for x, y in data.values()]
        d = self.sets[0].tensors[0].shape[1]
        self.learners = [torch.nn.Linear(d, 2) for _ in range(learners)]
        self.means, self.covs = torch.randn(gaussians, d), torch.eye(d).repeat(gaussians, 1, 1)
        self.pi = [torch.full((max(gaussians, 1), learners), 1 / (max(gaussians, 1) * learners)) for _ in self.sets]

    def round(self) -> None:
        answers, moments = [], []
        for i, rows in enumerate(self.sets):
            q = self.responsibilities(i, rows)
            if len(self.means):
                moments.append(self.moments(rows.tensors[0], q.sum(2)))
            answers.append((self.train(rows, q.sum(1)), q.sum((0, 1))))
        for k, learner in enumerate(self.learners):
            total = sum(gamma[k] for _, gamma in answers)
            average = [sum(gamma[k] * m[k][j] for m, gamma in answers) / total for j in range(2)]
            learner.load_state_dict({"weight": average[0], "bias": average[1]})
        if moments:
            n, x, xx = (sum(m[j] for m in moments) for j in range(3))
            self.means = x / n[:, None]
            self.covs = (
                xx / n[:, None, None] - self.means[:, :, None] * self.means[:, None, :] + 1e-3 * torch.eye(x.shape[1])
            )

    def responsibilities(self, i: int, rows) -> torch.Tensor:
        x, y, _ = rows.tensors
        with torch.no_grad():
            loss = torch.stack([F.cross_entropy(learner(x), y, reduction="none") for learner in self.learners], -1)
            log_q = self.pi[i].log() - loss[:, None, :]
            if len(self.means):
                gaussians = torch.distributions.MultivariateNormal(self.means, self.covs)
                log_q = log_q + gaussians.log_prob(x[:, None, :])[:, :, None]
            q = torch.softmax(log_q.flatten(1), -1).view(log_q.shape)
            self.pi[i] = q.mean(0)
        return q

    def moments(self, x, r):
        return r.sum(0), r.T @ x, torch.einsum("nk,nd,ne->kde", r, x, x)

    def train(self, rows, weights) -> list[tuple[torch.Tensor, torch.Tensor]]:
        models = []
        for k, learner in enumerate(self.learners):
            model = torch.nn.Linear(learner.in_features, 2)
            model.load_state_dict(learner.state_dict())
            sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            for x, y, index in DataLoader(rows, batch_size=128, shuffle=True):
                sgd.zero_grad()
                loss = F.cross_entropy(model(x), y, reduction="none")
                (loss @ weights[index, k] / len(y)).backward()
                sgd.step()
            models.append((model.weight.detach(), model.bias.detach()))
        return models


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.clients, arguments.rows, arguments.repeats)
