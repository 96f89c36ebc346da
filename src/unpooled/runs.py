"""A run is a folder: config.toml, history.jsonl, ledger.jsonl, checkpoints/, model/, summary.json, report.html.

Each round ends with a checkpoint, written atomically; a run killed at any moment can be resumed from the last one and
ends with the same bits.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import unpooled
from unpooled import certificate, store
from unpooled import config as configs
from unpooled import study as studies
from unpooled.arrays import to_numpy
from unpooled.errors import RunError, UnpooledError
from unpooled.estimator import Moment
from unpooled.federation import Exchange, Tally, find_private
from unpooled.layers.followed import Followed
from unpooled.report.measured import measure
from unpooled.study import Study
from unpooled.summary import MAX_CLIENTS_SHOWN, add_to_summary, held_out, held_out_sums, summarise
from unpooled.tree import Tree, message

CHECKPOINTS = 2  # how many are kept: the last, and the one before it in case the last is damaged
LIVE_EVERY = 0.5  # seconds between two notes of how far an exchange is


class Live:
    """Writes how far the open exchange of a run is into a small file, at most twice a second, for `unpooled watch`."""

    def __init__(self, path: Path):
        """Write how far an exchange is to `path`, for `unpooled watch`."""
        self.path = path
        self._written = 0.0
        self._open = (-1, "")
        self._since = ""

    def __call__(self, tally: Tally) -> None:
        """Write the state of the current exchange, at most once per LIVE_EVERY seconds."""
        now = time.monotonic()
        this = (tally.journal.round, tally.ask.name)
        if this != self._open:
            self._open = this
            self._since = datetime.now(UTC).isoformat(timespec="milliseconds")
        if now - self._written < LIVE_EVERY:
            return
        self._written = now
        waiting = dict(list(tally.waiting.items())[:MAX_CLIENTS_SHOWN])
        body = {
            "round": this[0],
            "question": this[1],
            "since": self._since,
            "asked": tally.asked,
            "answered": tally.answered,
        }
        part = self.path.with_suffix(".part")
        with suppress(OSError):  # only for those who watch
            part.write_text(json.dumps(body | {"waiting": waiting}))
            os.replace(part, self.path)


@message("run.Saved")
class Saved(NamedTuple):
    """A checkpoint on disk: a `Moment` without the history, which has a separate file."""

    state: Tree
    rounds: int
    seed: int
    round: int
    clients: Tree
    done: bool


def create(config: configs.Config, out: Path | None, study: Study | None = None) -> Path:
    """A new run folder with its config; a folder with a run that has started is refused."""
    configs.check(config)
    name = f"{config['model']['name']}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    folder = out or Path("runs") / name
    if any((folder / "checkpoints").glob("*.zip")):
        raise RunError(
            f"{folder} holds a run already: `unpooled resume {folder}` continues it, or choose another --out"
        )
    with (
        exclusive(folder) if (folder / "config.toml").exists() else nullcontext()
    ):  # another process may be starting it
        store.write_file(folder / "config.toml", configs.dumps(config).encode())
        store.write_file(
            folder / "run.json", json.dumps({"created": _now(), "unpooled": unpooled.__version__}).encode()
        )
        if study is not None:
            store.write_file(folder / "study.toml", study.content)
    return folder


def _now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _note_start(folder: Path) -> None:
    """Add this start to run.json, which has one for each time that the run was begun or resumed."""
    path = folder / "run.json"
    begun = json.loads(path.read_text()) if path.exists() else {"unpooled": unpooled.__version__}
    begun["starts"] = [*begun.get("starts", []), datetime.now(UTC).isoformat(timespec="milliseconds")]
    store.write_file(path, json.dumps(begun).encode())


def study_of(folder: Path) -> Study | None:
    """The study of a run, or None."""
    path = folder / "study.toml"
    return studies.read(path) if path.exists() else None


def with_layers(fed: Any, folder: Path, config: configs.Config) -> Any:
    """The federation of a run inside its layers; the totals of a study are kept in the run folder."""
    study = study_of(folder)
    least = 3 if study is None else study.min_cohort
    fed = configs.layered(fed, config, min_cohort=max(3, least), folder=folder, watched=True)
    fed = fed if study is None else Followed(fed, folder / "totals")
    return configs.with_privacy(fed, config)


def go(folder: Path, watch: Callable[[Any, Moment], None], fed: Any = None) -> Any:
    """Run a folder to its end, from the last checkpoint or the start, and return the fitted estimator."""
    config = configs.read(config_of(folder))
    configs.check(config)
    with exclusive(folder):
        fed = fed if fed is not None else configs.federation(config)
        estimator = configs.estimator(config)
        saved = _latest(folder)
        _same_data(folder, fed, begun=saved is not None)
        _note_start(folder)
        fed.journal.watch = _both(Live(folder / "live.json"), getattr(watch, "asking", None))
        with _resume_hint(folder):
            for moment in estimator.rounds(fed, saved):
                _record(folder, fed, moment)
                watch(estimator, moment)
            estimator.save(folder / "model")
            if study_of(folder) is not None:
                certificate.write(folder)
            summarise(folder, fed, estimator)
            add_to_summary(folder, {"measured": _measured(folder, fed, estimator, config)})
            (folder / "live.json").unlink(missing_ok=True)
        return estimator


def _both(first: Callable[[Tally], None], second: Callable[[Tally], None] | None) -> Callable[[Tally], None]:
    """One after the other, where there is a second."""
    if second is None:
        return first

    def tell(tally: Tally) -> None:
        """Tell both how far an exchange is."""
        first(tally)
        second(tally)

    return tell


@contextmanager
def _resume_hint(folder: Path) -> Iterator[None]:
    """Add to an error how to resume the run, if it has a checkpoint."""
    try:
        yield
    except UnpooledError as error:
        if any((folder / "checkpoints").glob("*.zip")):
            error.add_note(f"the rounds before it are kept: `unpooled resume {folder}` goes on from there")
        raise


def config_of(folder: Path) -> Path:
    """The config.toml of a run; a folder without one is refused."""
    path = folder / "config.toml"
    if not path.exists():
        raise RunError(f"{folder} is not a run: there is no config.toml in it")
    return path


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock a run folder for this process; the lock ends with the process."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"could not write to {folder}: {error.strerror}; choose another --out") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(handle, 32).decode().strip()
        raise RunError(f"another process (pid {owner}) is working on {folder}: wait for it or stop it") from None
    try:
        with suppress(OSError):  # a full disk is reported by the writes that matter
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


# ---- checkpoints ----


def _record(folder: Path, fed: Any, moment: Moment) -> None:
    """Append to history and ledger, then write the checkpoint that refers to them."""
    rounds = len(moment.history)
    if rounds:
        _append(folder / "history.jsonl", [json.dumps(moment.history[-1])])
    seen = getattr(fed.journal, "recorded", 0)
    _append(folder / "ledger.jsonl", [json.dumps(e._asdict()) for e in fed.journal.exchanges[seen:]])
    _append(
        folder / "refusals.jsonl",
        [json.dumps(r._asdict()) for r in fed.journal.refusals if r.round > _round_before(fed, seen)],
    )
    fed.journal.recorded = len(fed.journal.exchanges)
    saved = Saved(moment.state, rounds, moment.seed, moment.round, moment.clients, moment.done)
    store.write(folder / "checkpoints" / f"{rounds:08}.zip", saved, secret=True)
    for old in sorted((folder / "checkpoints").glob("*.zip"))[:-CHECKPOINTS]:
        old.unlink()


def _round_before(fed: Any, seen: int) -> int:
    """The round before the exchanges that were not yet written."""
    exchanges = fed.journal.exchanges
    return exchanges[seen].round - 1 if seen < len(exchanges) else fed.journal.round


def _append(path: Path, lines: list[str]) -> None:
    """Append lines and wait until they are on disk."""
    if not lines:
        return
    try:
        with path.open("a") as out:
            out.write("".join(f"{line}\n" for line in lines))
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise RunError(f"could not write {path}: {error.strerror}; free some space") from error


def _latest(folder: Path) -> Moment | None:
    """The newest readable checkpoint, with the history up to it; later lines are removed."""
    for path in sorted((folder / "checkpoints").glob("*.zip"), reverse=True):
        try:
            saved = store.read(path)
        except RunError:
            continue
        history = _keep(folder / "history.jsonl", saved.rounds)
        for name in ("ledger.jsonl", "refusals.jsonl"):
            _keep(folder / name, saved.round)
        return Moment(saved.state, history, saved.seed, saved.round, saved.clients, saved.done)
    for name in ("history.jsonl", "ledger.jsonl", "refusals.jsonl"):
        _keep(folder / name, -1)
    return None


def _keep(path: Path, last: int) -> list[dict]:
    """Rewrite a file of JSON lines without damaged lines and lines of later rounds."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    rows = [row for row in map(_parse, lines) if row is not None and row["round"] <= last]
    store.write_file(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    return rows


def _parse(line: str) -> dict | None:
    """A line of JSON with a round; None if it is damaged."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("round"), int) else None


# ---- the data of a run ----


def _same_data(folder: Path, fed: Any, begun: bool) -> None:
    """Refuse to resume a run on different data."""
    path = folder / "data.json"
    mark = fingerprint(fed)
    if mark is None:
        return
    if begun and path.exists() and json.loads(path.read_text())["sha256"] != mark:
        raise RunError(
            f"the data differ from those that {folder} began with: start a new run, or put the old data back"
        )
    store.write_file(path, json.dumps({"sha256": mark, "unpooled": unpooled.__version__}).encode())


def fingerprint(fed: Any) -> str | None:
    """A digest of all rows in this process; None if the clients are elsewhere."""
    clients = fed.here()
    if not clients:
        return None
    digest = hashlib.sha256()
    for c in clients:
        digest.update(c.name.encode())
        for a in (c.x, c.y, c.w):
            digest.update(b"-" if a is None else _bytes_of(to_numpy(a)))
    return digest.hexdigest()


def _bytes_of(a: np.ndarray) -> bytes:
    """The bytes of an array; of objects, such as labels, those of their texts."""
    if a.dtype == object:
        a = np.ascontiguousarray(a).astype(str)
    return a.tobytes()


# ---- how well it predicts ----


def _measured(folder: Path, fed: Any, estimator: Any, config: configs.Config) -> dict[str, Any]:
    """How the model does on rows in this process, held out if [validation] asks for it; over a network, held-out losses as sums."""
    folds = config.get("validation", {}).get("cv", 0)
    if find_private(fed) is not None:
        return {}  # numbers without noise would undo the privacy of the fit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not folds:
            return measure((estimator, client) for client in fed.here())
        with _recorded(folder, fed):
            return held_out(fed, estimator, folds) if fed.here() else held_out_sums(fed, estimator, folds)


@contextmanager
def _recorded(folder: Path, fed: Any) -> Iterator[None]:
    """Append what is asked in the block to the ledger, numbered after the rounds of the fit."""
    last = fed.journal.round
    exchanges: list[Exchange] = []
    fed.journal.record = exchanges.append
    try:
        yield
    finally:
        fed.journal.record = None
        numbered = [e._replace(round=last + i) for i, e in enumerate(exchanges, 1)]
        _append(folder / "ledger.jsonl", [json.dumps(e._asdict()) for e in numbered])
