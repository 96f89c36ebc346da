"""All clients' models trained at once on a GPU, against a plain loop over clients and learners on the same GPU.

80 clients x 3 learners of the small CNN (FedGMM's figure) and 300 x 3 (FedConceptEM's), 180 images each, one local epoch, batch 60.
Both take the same minibatches from the same start, so their models are compared too. Without a GPU it runs a tiny case on the CPU.
Run: `PYTHONPATH=src python3 benchmarks/learners_gpu.py`.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from unpooled.client import Client
from unpooled.learners import Trainer, nets
from unpooled.learners.mixing import responsibilities
from unpooled.learners.sgd import minibatches

K, N, SIDE, CLASSES, BATCH = 3, 180, 28, 10, 60


def main(cases: list[int], repeats: int, device: str) -> None:
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}")
    for clients in cases:
        case(clients, repeats, device)


def case(clients: int, repeats: int, device: str) -> None:
    rng = np.random.default_rng(0)
    stack = Client(
        "stack",
        torch.tensor(rng.normal(size=(clients, N, SIDE * SIDE)), dtype=torch.float32, device=device),
        rng.integers(CLASSES, size=(clients, N)),
        torch.ones((clients, N), device=device),
        stacked=True,
        members=tuple(f"c{i}" for i in range(clients)),
    )
    trainer = Trainer("cnn", SIDE**2, list(range(CLASSES)), batch_size=BATCH, lr=0.05, momentum=0.9, device=device)
    theta = torch.tensor(trainer.start(np.random.default_rng(1), K), device=device)
    ways = {"ours": lambda: ours(trainer, theta, stack), "plain loop": lambda: loop(trainer, theta, stack)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    answers = {name: work() for name, work in ways.items()}  # compiles, warms up
    for _ in range(repeats):
        for name, work in ways.items():
            times[name].append(timed(work, device))
    print(f"\n{clients} clients x {K} learners x {N} images: seconds a round, median of {repeats} (spread)")
    for name, seconds in times.items():
        ratios = [a / b for a, b in zip(times["plain loop"], seconds)]
        spread = f"({min(seconds):.3f} to {max(seconds):.3f})"
        print(
            f"  {name:<28}{statistics.median(seconds):.3f} {spread}, {statistics.median(ratios):.1f} times the loop's speed"
        )
    apart = (answers["ours"] - answers["plain loop"]).abs().max()
    print(f"  largest difference of any parameter from the loop's: {float(apart):.2g}")


def ours(trainer: Trainer, theta: torch.Tensor, stack: Client) -> torch.Tensor:
    me = stack.at(0, 1)
    rows = trainer.rows(me)
    r, _ = responsibilities(trainer.log_likelihood(theta, rows))
    return trainer.train(theta, me, rows, r)


def loop(trainer: Trainer, theta: torch.Tensor, stack: Client) -> torch.Tensor:
    """One client after the other, one learner after the other, with optim.SGD."""
    order = minibatches(stack.at(0, 1), 1, BATCH)
    y_all = torch.as_tensor(stack.y, device=stack.x.device)
    models = [module_of(flat).to(stack.x.device) for flat in theta]
    out = torch.empty((len(stack.x), *theta.shape), device=theta.device)
    for c, (x, y) in enumerate(zip(stack.x, y_all)):
        with torch.no_grad():
            loss = torch.stack([F.cross_entropy(m(x), y, reduction="none") for m in models], -1)
            r = torch.softmax(-loss, -1)
        for k in range(K):
            model = module_of(theta[k]).to(x.device)
            sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            for places, real in zip(order.rows[c], order.real[c]):
                chosen = torch.as_tensor(places[real], device=x.device)
                sgd.zero_grad()
                losses = F.cross_entropy(model(x[chosen]), y[chosen], reduction="none")
                (losses @ r[chosen, k] / len(chosen)).backward()
                sgd.step()
            out[c, k] = nn.utils.parameters_to_vector(model.parameters()).detach()
    return out


def module_of(flat: torch.Tensor) -> nn.Module:
    model = nets.cnn(SIDE**2, CLASSES)
    nn.utils.vector_to_parameters(flat.detach().cpu().clone(), model.parameters())
    return model


def timed(work, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="*", help="default: 80 and 300 on a GPU, 4 on a CPU")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    main(arguments.clients or ([80, 300] if where == "cuda" else [4]), arguments.repeats, where)
