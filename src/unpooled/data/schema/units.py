"""Conversion of a site's column from its own unit to the federation's unit: a factor and a shift. Nothing is sent."""

from __future__ import annotations

from typing import NamedTuple

from unpooled.errors import BadParameter

SIZES = (  # one table per quantity: unit -> its size in the first of the table
    {"m": 1.0, "km": 1e3, "cm": 1e-2, "mm": 1e-3, "in": 0.0254, "ft": 0.3048},
    {"kg": 1.0, "g": 1e-3, "mg": 1e-6, "ug": 1e-9, "lb": 0.45359237, "oz": 0.028349523125, "st": 6.35029318},
    {"L": 1.0, "dL": 1e-1, "mL": 1e-3, "uL": 1e-6},
    {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0, "wk": 604800.0, "mo": 2629746.0, "y": 31556952.0},
    {"mmHg": 1.0, "kPa": 7.500617, "cmH2O": 0.735559},
    {"1": 1.0, "%": 1e-2, "permille": 1e-3},
    {"mol/L": 1.0, "mmol/L": 1e-3, "umol/L": 1e-6, "nmol/L": 1e-9, "pmol/L": 1e-12},
    {"g/L": 1.0, "mg/L": 1e-3, "mg/dL": 1e-2, "g/dL": 10.0, "ug/L": 1e-6, "ug/dL": 1e-5, "ng/mL": 1e-6, "ug/mL": 1e-3},
    {"kcal": 1.0, "kJ": 1 / 4.184},
)
SPELLINGS = {  # unit -> other ways to write it
    "in": ("inch", "inches"),
    "ft": ("feet",),
    "m": ("metre", "meter"),
    "lb": ("lbs", "pound", "pounds"),
    "s": ("second", "seconds"),
    "min": ("minutes",),
    "h": ("hour", "hours"),
    "d": ("day", "days"),
    "wk": ("week", "weeks"),
    "mo": ("month", "months"),
    "y": ("year", "years", "yr", "a"),
    "%": ("percent",),
    "1": ("fraction",),
    "mmHg": ("mmhg", "mm Hg"),
    "degC": ("celsius", "C", "°C"),
    "degF": ("fahrenheit", "F", "°F"),
    "K": ("kelvin",),
    **{unit: (unit.lower(),) for unit in ("L", "mL", "dL", "mg/dL", "g/L", "g/dL", "mg/L", "mmol/L", "umol/L")},
}
ALIASES = {text: unit for unit, texts in SPELLINGS.items() for text in texts}
TEMPERATURES = {  # unit -> (factor, shift) to degrees Celsius
    "degC": (1.0, 0.0),
    "degF": (5 / 9, -160 / 9),
    "K": (1.0, -273.15),
}
MOLAR = {  # mg/dL of one mmol/L (of one umol/L for the last two)
    "cholesterol, HDL or LDL": 38.67,
    "glucose": 18.02,
    "triglycerides": 88.57,
    "urea": 6.006,
    "calcium": 4.008,
    "creatinine, from umol/L": 1 / 88.42,
    "bilirubin, from umol/L": 1 / 17.1,
}


class Conversion(NamedTuple):
    """The federation's number is `factor` times the site's number plus `shift`."""

    factor: float = 1.0
    shift: float = 0.0


def conversion(site: str | None, wanted: str | None, factor: float | None, name: str, where: str) -> Conversion:
    """The conversion from a site's unit to the wanted one; a given `factor` is used as it is.

    `name` is the column and `where` the client, for the error message. Without a unit on either side nothing is converted.

    >>> conversion("in", "cm", None, "height", "client 'a'").factor
    2.54
    """
    if factor is not None:
        return Conversion(float(factor))
    a, b = _known(site), _known(wanted)
    if a is None or b is None or a == b:
        return Conversion()
    if a in TEMPERATURES and b in TEMPERATURES:
        (factor_a, shift_a), (factor_b, shift_b) = TEMPERATURES[a], TEMPERATURES[b]
        return Conversion(factor_a / factor_b, (shift_a - shift_b) / factor_b)
    for sizes in SIZES:
        if a in sizes and b in sizes:
            return Conversion(round(sizes[a] / sizes[b], 12))
    raise BadParameter(_unknown(site, wanted, name, where))


def _known(unit: str | None) -> str | None:
    """The unit under the name this file knows it by; unknown units stay as they are."""
    if unit is None:
        return None
    plain = unit.strip().replace("µ", "u").replace("μ", "u")
    return ALIASES.get(plain, ALIASES.get(plain.lower(), plain))


def _unknown(site: str | None, wanted: str | None, name: str, where: str) -> str:
    """The sentence that refuses two units between which no factor is known."""
    molar = {str(site), str(wanted)} & {"mmol/L", "umol/L", "µmol/L"}
    known = ", ".join(f"{factor:.4g} for {what}" for what, factor in MOLAR.items())
    hint = f" (mg/dL of one mmol/L: {known})" if molar else ""
    return f"{where} has column {name!r} in {site!r} and {wanted!r} is wanted: give factor = ... there{hint}"
