"""A check cannot be made an oracle: the coordinator's codes do not change what a node tells of its table."""

import csv

import numpy as np

from unpooled.data.check import Profile
from unpooled.data.schema import Column, Schema, Wanted
from unpooled.node.source import FileTable, TableSource

VALUES = [*np.random.default_rng(0).integers(40, 60, size=200), 73]  # one patient of 73


def source(tmp_path):
    path = tmp_path / "rows.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["age", "patient_id"], *([v, i] for i, v in enumerate(VALUES))])
    return TableSource("basel", FileTable(path))


def told(tmp_path, *codes):
    schema = Schema((Column("age", "real", missing=tuple(codes)),))
    return source(tmp_path).profile(["age", "patient_id"], Wanted(schema), floor=5).pack()


def test_a_value_named_as_missing_is_not_counted_by_differences(tmp_path):
    plain = told(tmp_path)
    for codes in (["73"], ["41", "42", "43"], [str(v) for v in sorted(set(VALUES)) if v != 73]):
        assert told(tmp_path, *codes) == plain


def test_counts_below_the_floor_do_not_leave(tmp_path):
    counts = [n for column in told(tmp_path)["columns"] for n in (*column["levels"].values(), column["repeated"])]
    assert all(n == 0 or n >= 5 for n in counts)


def test_a_level_of_another_site_is_shown_as_it_can_be_printed(tmp_path):
    body = told(tmp_path)
    body["columns"][0]["levels"] = {"female\x1b[8m": 7}
    assert Profile.unpack(body).columns[0].levels == {"female?[8m": 7}
