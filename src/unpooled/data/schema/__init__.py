"""The schema of a table: what kind each column is, its unit, its levels and its codes for missing values. Nothing is sent.

Read in this order: `column` (Column, Own), `schema` (Schema: the columns in order, to and from TOML), `texts` and `dates` and
`units` (cells), `infer` (a column's kind from its values), `agree` (one schema over sites), `encode` (cells to numbers and back),
`design` (columns of predictors: one indicator per level but the first).
"""

from unpooled.data.schema.agree import agree
from unpooled.data.schema.column import Column, Own
from unpooled.data.schema.design import design_names, to_design
from unpooled.data.schema.encode import decode, encode
from unpooled.data.schema.infer import infer
from unpooled.data.schema.schema import Schema, Wanted, read_own
from unpooled.data.schema.texts import Texts, as_texts

__all__ = [
    "Column", "Own", "Schema", "Texts", "Wanted", "agree", "as_texts", "decode",
    "design_names", "encode", "infer", "read_own", "to_design",
]  # fmt: skip
