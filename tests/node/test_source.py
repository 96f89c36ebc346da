"""Tables at the node: four kinds, the same rows; other names and orders are mapped; chunks give the same sums."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
from toy import Centre, total, wander

from unpooled import wire
from unpooled.errors import BadData, BadParameter, DataNotFound
from unpooled.node import config as configs
from unpooled.node.questions import schema
from unpooled.node.site import Site
from unpooled.node.source import FileTable, SqlTable, TableSource

COLUMNS = ["age", "chol", "pulse"]
ROWS = np.random.default_rng(0).normal(size=(500, 3)).round(6)
ROWS[7, 1] = np.nan
LABEL = np.arange(500) % 2


def write_csv(folder, delimiter=","):
    lines = [delimiter.join([*COLUMNS, "sick"])]
    lines += [
        delimiter.join(["" if np.isnan(v) else repr(float(v)) for v in r] + [str(y)]) for r, y in zip(ROWS, LABEL)
    ]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return FileTable(folder / "t.csv")


def write_parquet(folder):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(
        pa.table({**{c: ROWS[:, j] for j, c in enumerate(COLUMNS)}, "sick": LABEL}), folder / "t.parquet"
    )
    return FileTable(folder / "t.parquet")


def write_npz(folder):
    np.savez(folder / "t.npz", x=ROWS, columns=np.array(COLUMNS), sick=LABEL)
    return FileTable(folder / "t.npz")


def fill(url):
    """The rows in a database, through SQLAlchemy."""
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    columns = [sa.Column(c, sa.Numeric(18, 6) if c == "pulse" else sa.Float(53)) for c in COLUMNS]
    held = sa.Table(
        "patients",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        *columns,
        sa.Column("sick", sa.Integer),
    )
    cells = [[None if np.isnan(v) else float(v) for v in r] for r in ROWS]
    with engine.begin() as db:
        held.create(db)
        db.execute(
            held.insert(), [{"id": i, **dict(zip(COLUMNS, r)), "sick": int(LABEL[i])} for i, r in enumerate(cells)]
        )
    engine.dispose()


def write_sqlite(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns that SQLite keeps decimals as floats
        fill(f"sqlite:///{folder / 't.db'}")
    return SqlTable(f"sqlite:///{folder / 't.db'}", table="patients", order="id")


WRITERS = {
    "csv": write_csv,
    "semicolons": lambda f: write_csv(f, ";"),
    "parquet": write_parquet,
    "npz": write_npz,
    "sqlite": write_sqlite,
}


@pytest.fixture(params=WRITERS, name="table")
def table_(request, tmp_path):
    return WRITERS[request.param](tmp_path)


def source(table, **how):
    return TableSource("zurich", table, columns={c: c for c in COLUMNS}, label="sick", **how)


def test_every_kind_gives_the_same_rows(table):
    (client,) = source(table).open(None).parts()
    np.testing.assert_array_equal(client.x, ROWS)
    np.testing.assert_array_equal(client.y, LABEL)


@pytest.mark.parametrize("chunk_rows", [1, 77, 500, 10_000])
def test_chunks_hold_every_row_once_in_order(table, chunk_rows):
    rows = source(table, chunk_rows=chunk_rows).open(COLUMNS)
    parts = list(rows.parts())
    assert max(len(p.w) for p in parts) <= chunk_rows
    np.testing.assert_array_equal(np.concatenate([p.x for p in parts]), ROWS)
    np.testing.assert_array_equal(np.concatenate([p.y for p in parts]), LABEL)
    assert rows.n_rows == 500
    assert rows.whole == (chunk_rows >= 500)


def test_columns_are_mapped_and_ordered(table):
    here = TableSource("z", table, columns={"heart rate": "pulse", "Alter": "age"})
    assert here.columns == ["heart rate", "Alter"]
    (client,) = here.open(["Alter", "heart rate"]).parts()
    np.testing.assert_array_equal(client.x, ROWS[:, [0, 2]])


def test_a_column_that_is_not_there_is_named(table):
    with pytest.raises(BadData, match=r"no column 'puls': did you mean 'pulse'\?"):
        TableSource("z", table, columns={"p": "puls"}).open(None)
    with pytest.raises(BadData, match="no column 'ill'"):
        TableSource("z", table, label="ill").open(None)


def request_for(question, round=1):
    head = {"kind": "ask", "run": "r1", "round": round, "seed": 0, "base": 0, "floor": 0, "how": "sum", "steps": []}
    head |= {"ask": question.name, "schema": schema(question.name), "options": {}, "columns": ["age", "pulse"]}
    return wire.pack(head, Centre(np.zeros(2)))


def test_a_table_in_chunks_answers_what_adds_over_rows_and_says_so_of_the_rest(table):
    whole, chunked = (Site("z", source(table, chunk_rows=n), {}) for n in (0, 77))
    a, b = (wire.unpack(s.reply(request_for(total))).value() for s in (whole, chunked))
    np.testing.assert_allclose(a.x, b.x, rtol=1e-12)
    assert "needs all rows at once" in wire.unpack(chunked.reply(request_for(wander))).head["refused"]


def test_a_query_serves_as_a_table(tmp_path):
    write_sqlite(tmp_path)
    table = SqlTable(
        f"sqlite:///{tmp_path / 't.db'}",
        query="select id, age, chol + 1 as more from patients where sick = 1;",
        order="id",
    )
    (client,) = TableSource("z", table, columns={"age": "age", "more": "more"}).open(None).parts()
    np.testing.assert_allclose(client.x, ROWS[LABEL == 1][:, :2] + [0, 1])


def test_an_empty_table_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("age,chol\n")
    for chunk_rows in (0, 10):
        with pytest.raises(BadData, match="is empty"):
            TableSource("z", FileTable(tmp_path / "t.csv"), chunk_rows=chunk_rows).open(None)


# ---- node.toml ----


def write_config(folder, text):
    (folder / "policy.toml").write_text("")
    (folder / "node.toml").write_text(text)
    return folder / "node.toml"


def test_a_node_is_what_its_file_says(tmp_path):
    write_csv(tmp_path)
    path = write_config(tmp_path, 'name = "zurich"\n[data]\npath = "t.csv"\nlabel = "sick"\n')
    site = configs.site(configs.read(path))
    assert (site.name, site.source.columns, site.source.label) == ("zurich", COLUMNS, True)
    with pytest.raises(Exception, match="in use by another node"):
        configs.site(configs.read(path))
    site.vault.close()


WRONG = {
    "key": ('name = "z"\nlinkk = "x"\n[data]\npath = "t.csv"', BadParameter, "did you mean 'link'"),
    "data key": ('name = "z"\n[data]\npth = "t.csv"', BadParameter, "did you mean 'path'"),
    "no data": ('name = "z"', BadParameter, r"no \[data\]"),
    "no name": ('[data]\npath = "t.csv"', BadParameter, "no name"),
    "name with a control character": ('name = "a\\nb"\n[data]\npath = "t.csv"', BadParameter, "no name"),
    "two places": ('name = "z"\n[data]\npath = "t.csv"\nurl = "sqlite://"', BadParameter, "either a path"),
    "not TOML": ("name", BadParameter, "is not TOML"),
    "kind": ('name = "z"\nlink = 3\n[data]\npath = "t.csv"', BadParameter, "node.toml: link=3 should be a string"),
    "kind of path": ('name = "z"\n[data]\npath = 3', BadParameter, r"\[data\] of node.toml: path=3 should be a string"),
    "kind of rows": ('name = "z"\n[data]\npath = "t.csv"\nchunk_rows = "x"', BadParameter, "should be a whole number"),
    "kind of columns": ('name = "z"\n[data]\npath = "t.csv"\ncolumns = 3', BadParameter, "columns=3 should be a table"),
    "no file": ('name = "z"\n[data]\npath = "nowhere.csv"', DataNotFound, "is not a file"),
}


@pytest.mark.parametrize(("text", "error", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_before_anything_connects(tmp_path, text, error, why):
    with pytest.raises(error, match=why):
        configs.site(configs.read(write_config(tmp_path, text)))


# ---- a real PostgreSQL ----


def binary(name):
    found = shutil.which(name)
    return found or next((str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


@pytest.fixture(scope="module")
def postgres():
    """The url of a server of our own, on a socket in a folder; it ends with the tests."""
    initdb, server = binary("initdb"), binary("postgres")
    if not (initdb and server):
        pytest.skip("there is no PostgreSQL server here: apt install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # pytest's own folders are closed to other users
    as_user = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(folder, "nobody")
        as_user = {"user": "nobody"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **as_user}
    subprocess.run([initdb, "-D", folder / "db", "-U", "tester", "-A", "trust", "--no-sync"], check=True, **quiet)
    process = subprocess.Popen([server, "-D", folder / "db", "-k", folder, "-c", "listen_addresses=", "-F"], **quiet)
    url = f"postgresql+psycopg://tester@/postgres?host={folder}"
    try:
        wait_for(url)
        fill(url)
        yield url
    finally:
        process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
        process.wait(20)
        shutil.rmtree(folder)


def wait_for(url):
    import sqlalchemy as sa

    for attempt in range(100):
        try:
            sa.create_engine(url, poolclass=sa.NullPool).connect().close()
            return
        except sa.exc.OperationalError:
            if attempt == 99:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("chunk_rows", [0, 77])
def test_postgresql_gives_the_same_rows(postgres, chunk_rows):
    parts = list(
        source(SqlTable(postgres, table="public.patients", order="id"), chunk_rows=chunk_rows).open(None).parts()
    )
    np.testing.assert_array_equal(np.concatenate([p.x for p in parts]), ROWS)
    np.testing.assert_array_equal(np.concatenate([p.y for p in parts]), LABEL)


TYPED = """SELECT i AS id, i::int2 AS small, (i * 3)::int4 AS whole, i::int8 << 40 AS large, NULLIF(i, 2)::int8 AS gap8,
NULLIF(i, 3)::int4 AS gap4, (i / 10.0)::float4 AS single, (i / 7.0)::float8 AS double, (i / 100.0)::numeric(9, 2) AS money,
i %% 2 = 0 AS even, NULL::float8 AS nothing, 'infinity'::float8 * i AS endless FROM generate_series(1, 5) AS i"""


def test_numbers_copied_are_those_of_the_driver(postgres):
    table = SqlTable(postgres, query=TYPED.replace("%%", "%"), order="id")
    names = table.names()
    columns, order = table._columns(names)
    (fetched,) = table._fetched(table._statement(columns, order), names, 100)
    parts = list(table.chunks(names, 2))
    assert [len(p["id"]) for p in parts] == [2, 2, 1]
    for name in names:
        ours = np.concatenate([p[name].astype(fetched[name].dtype) for p in parts])
        np.testing.assert_array_equal(ours, fetched[name], err_msg=name)
        (whole,) = (p[name] for p in table.chunks(names, 5))
        assert whole.dtype == fetched[name].dtype, name


def test_columns_of_texts_come_through_the_driver(postgres):
    table = SqlTable(postgres, query="SELECT 'a' || i AS name, i AS number FROM generate_series(1, 3) AS i")
    (part,) = table.chunks(["name", "number"], 10)
    assert part["name"].tolist() == ["a1", "a2", "a3"]
    assert part["number"].tolist() == [1, 2, 3]


def test_a_reader_that_stops_early_and_an_empty_table_leave_nothing_behind(postgres):
    many = SqlTable(postgres, query="SELECT i AS id FROM generate_series(1, 100000) AS i")
    reader = many.chunks(["id"], 10)
    assert next(reader)["id"].tolist() == list(range(1, 11))
    reader.close()
    assert list(SqlTable(postgres, query="SELECT 1.5::float8 AS id WHERE false").chunks(["id"], 10)) == []


def test_a_query_that_fails_halfway_says_why(postgres):
    broken = SqlTable(postgres, query="SELECT 1 / (5 - i) AS id FROM generate_series(1, 9) AS i")
    with pytest.raises(BadData, match="division by zero"):
        list(broken.chunks(["id"], 2))
