"""The server's side: an ordinary fit, over whoever is behind Flower's grid."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import unpooled as up
from unpooled.flower import Flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    wanted = context.run_config
    model = up.GaussianMixture(int(wanted["components"]), max_iter=int(wanted["rounds"]), random_state=0)
    model.fit(Flower(grid, min_clients=int(wanted["min-clients"]), say=print))
    print(
        f"{model.n_iter_} rounds, log-likelihood {model.lower_bound_:.6f} a row, weights {model.weights_.round(4).tolist()}"
    )
    if wanted["out"]:
        model.save(Path(str(wanted["out"])))
