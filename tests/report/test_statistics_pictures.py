"""Pictures of statistics: well-formed, one mark for each number, no NaN in any path."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from estimators import ESTIMATORS

from unpooled.report import statistics, svg


def parsed(figure):
    assert not re.search(r"\bnan\b", figure)
    return ElementTree.fromstring(figure)


def test_a_curve_and_a_band_for_each_group():
    curve = np.array([0.9, 0.5, 0.0])
    groups = {"<old>": (curve, curve / 2, np.minimum(curve * 1.1, 1)), "young": (curve, curve, curve)}
    picture = parsed(statistics.curves([1.0, 4.0, 9.0], groups))
    assert len(picture.findall("polyline")) == 2
    assert len(picture.findall("polygon")) == 2
    assert "<old>" in "".join(t.text for t in picture.findall("text"))


def test_a_point_and_a_line_for_each_coefficient():
    picture = parsed(statistics.intervals(["a", "b"], np.array([0.5, -1]), np.array([[0.1, 0.9], [-2, 0]])))
    assert len(picture.findall("circle")) == 2


def test_withheld_bins_are_left_out():
    tables = {"age": {"rows": np.array([5.0, np.nan, 9])}, "crp": {"rows": np.array([0.0, 0])}}
    assert len(parsed(statistics.histograms(tables)).findall("rect")) == 5


def test_a_description_has_its_pictures():
    case = ESTIMATORS["Describe"]
    for body in case.make().fit(case.data()).report_figures().values():
        ElementTree.fromstring(f"<div>{body}</div>")


@pytest.mark.parametrize(
    ("ends", "texts"),
    [
        ((-25.929891, -25.929885), ("-25.9299", "+6e-06")),
        ((8.2540001e-08, 1.0), ("8.25e-08", "1")),
        ((1200.0, 1636.0), ("1,200", "1,636")),
        ((-25.93, -24.1), ("-25.93", "-24.1")),
    ],
)
def test_the_ends_of_an_axis_fit_beside_it(ends, texts):
    assert svg.ends(*ends) == texts
    assert max(map(len, texts)) <= svg.MOST_DIGITS


def test_intervals_stand_on_an_axis_of_round_numbers():
    picture = statistics.intervals(["age", "sex"], np.array([0.5, -2.0]), np.array([[0.1, 0.9], [-3.2, -0.8]]))
    assert [float(v) for v in re.findall(r'text-anchor="middle">([-\d.]+)<', picture)] == [-3, -2, -1, 0]
