"""Operations on trees (nested NamedTuples, tuples, lists and dicts of arrays): map, add, flatten, save, check against a
schema.

Leaves are arrays and numbers; `None`, strings and booleans are structure: they are kept, never added. A NamedTuple that
is sent or saved has a lasting name, given by `@message("room.Type")`, so that the file which defines it may move.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from unpooled.arrays import all_finite, kind, nbytes, to_numpy
from unpooled.names import import_home

Tree = Any  # an array or number, or a NamedTuple / tuple / list / dict of Trees

_STRUCTURE = (type(None), str, bool)
KINDS = {"f": ("f", "floats"), "i": ("iu", "integers"), "n": ("fiu", "numbers")}  # of a schema: NumPy's kinds, in words


def _children(t: Tree) -> list | None:
    """The parts of a node in a fixed order (dicts by key), None for a leaf."""
    if isinstance(t, dict):
        return [t[k] for k in sorted(t)]
    if isinstance(t, tuple | list):
        return list(t)
    return None


def _remake(like: Tree, children: list) -> Tree:
    """A node of the same type with other parts."""
    if isinstance(like, dict):
        return dict(zip(sorted(like), children))
    return type(like)(*children) if hasattr(like, "_fields") else type(like)(children)


def leaves(t: Tree) -> list:
    """The arrays of `t`, in a fixed order."""
    children = _children(t)
    if children is None:
        return [] if isinstance(t, _STRUCTURE) else [t]
    return [leaf for child in children for leaf in leaves(child)]


def rebuild(like: Tree, new: Iterable) -> Tree:
    """A tree with the structure of `like` and other leaves."""
    it = iter(new)

    def build(t):
        children = _children(t)
        if children is None:
            return t if isinstance(t, _STRUCTURE) else next(it)
        return _remake(t, [build(c) for c in children])

    return build(like)


def map(f: Callable, *ts: Tree) -> Tree:
    """Apply `f` to the leaves of trees of one structure, leaf by leaf."""
    return rebuild(ts[0], [f(*xs) for xs in zip(*(leaves(t) for t in ts))])


def add(a: Tree, b: Tree) -> Tree:
    """The sum of two trees, leaf by leaf."""
    return map(lambda x, y: x + y, a, b)


def at(t: Tree, i: int) -> Tree:
    """Entry `i` of every leaf: one tree of a stack."""
    return map(lambda a: a[i], t)


def size(t: Tree) -> int:
    """Bytes of all arrays together."""
    return sum(nbytes(a) for a in leaves(t))


def flatten(t: Tree) -> np.ndarray:
    """All numbers as one float64 vector; `unflatten` is its inverse."""
    parts = [to_numpy(a).astype(np.float64).ravel() for a in leaves(t)]
    return np.concatenate(parts) if parts else np.zeros(0)


def unflatten(vector: np.ndarray, like: Tree) -> Tree:
    """The inverse of `flatten`: the vector cut into leaves with the shapes of `like`."""
    shapes = [np.shape(a) for a in leaves(like)]
    cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
    return rebuild(like, [part.reshape(s) for part, s in zip(np.split(vector, cuts), shapes)])


# ---- the schema: annotations state the dtypes and shapes of a message ----


class SchemaError(ValueError):
    """A value does not fit its annotations."""


def dims(value: Tree, schema: Any) -> dict[str, Any]:
    """The sizes of the named axes of a value: {"k": 3, "d": 2}."""
    bound: dict[str, Any] = {}
    check(value, schema, bound, finite=False)
    return bound


def copied(bound: dict[Any, Any]) -> dict[Any, Any]:
    """A copy of the sizes of named axes, those of repeated parts included."""
    return {name: copied(size) if isinstance(size, dict) else size for name, size in bound.items()}


def check(value: Tree, schema: Any, bound: dict[str, Any] | None = None, *, finite: bool = True, lead: int = 0) -> None:
    """Raise SchemaError if shapes, dtypes or numbers of `value` do not fit `schema`; sizes of named axes go into
    `bound`.

    With `lead=1` the value is a stack of values on a leading axis, checked together.
    """
    _check(value, schema, {} if bound is None else bound, _Options(finite, lead), "")


class _Options(NamedTuple):
    """What a check looks at."""

    finite: bool
    lead: int  # leading axes that are not part of the schema


def _check(value: Tree, schema: Any, bound: dict[str, Any], options: _Options, at: str) -> None:
    """Check one node against its part of the schema; `bound` holds the sizes of named axes seen so far."""
    if isinstance(schema, type) and hasattr(schema, "_fields"):  # asking an annotation for its attributes takes long
        _check_fields(value, schema, bound, options, at)
    elif get_origin(schema) is Annotated:
        _check_array(value, schema.__metadata__[0], bound, options, at)
    elif get_origin(schema) is tuple:
        _check_tuple(value, get_args(schema), bound, options, at)
    elif get_origin(schema) is dict:
        for key in sorted(_expect(value, dict, at)):
            _check(value[key], get_args(schema)[1], dict(bound), options, f"{at}[{key!r}]")
    elif schema is None or schema is type(None):
        if value is not None:
            raise SchemaError(f"{at or 'the answer'} should be None, got {type(value).__name__}")
    elif schema is str or schema is int:
        if type(value) is not schema:
            raise SchemaError(f"{at or 'the answer'} should be a {schema.__name__}, got {type(value).__name__}")
    elif options.finite:  # a part without annotation may have any shape, but its numbers must be finite
        for leaf in leaves(value):
            _check_finite(leaf, at)


def _expect(value: Any, kind: Any, at: str) -> Any:
    """The value; refused unless it is of this type."""
    if not isinstance(value, kind):
        raise SchemaError(
            f"{at or 'the answer'} should be a {getattr(kind, '__name__', 'tuple')}, got {type(value).__name__}"
        )
    return value


def _check_fields(value, schema, bound, options, at):
    """Check a NamedTuple field by field."""
    types = hints(schema)
    _expect(value, tuple, at)
    if len(value) != len(schema._fields):
        raise SchemaError(
            f"{at or 'the answer'} should have the fields {', '.join(schema._fields)}, got {len(value)} parts"
        )
    for name, part in zip(schema._fields, value):
        _check(part, types[name], bound, options, f"{at}.{name}" if at else name)


def _check_tuple(value, args, bound, options, at):
    """Check a tuple part by part; in tuple[T, ...] every part has named axes of its own."""
    _expect(value, tuple | list, at)
    repeated = len(args) == 2 and args[1] is Ellipsis
    if not repeated and len(value) != len(args):
        raise SchemaError(f"{at or 'the answer'} should have {len(args)} parts, got {len(value)}")
    for i, part in enumerate(value):  # each part of tuple[T, ...] has named axes of its own
        part_bound = bound.setdefault(i, {}) if repeated else bound
        _check(part, args[0] if repeated else args[i], part_bound, options, f"{at}[{i}]")


def _check_array(value, spec, bound, options, at):
    """Check an array's type, shape, finiteness and sign."""
    allowed, words = KINDS[spec.kind]
    try:
        found = kind(value)
    except ValueError:  # tuples within tuples, or of different lengths
        raise SchemaError(f"{at or 'the answer'} should be an array, got {type(value).__name__}") from None
    if found not in allowed:
        raise SchemaError(f"{at or 'the answer'} should hold {words}, got kind {found!r}")
    _check_shape(tuple(getattr(value, "shape", ()))[options.lead :], spec.dims, bound, at)
    if options.finite:
        _check_finite(value, at)
    if (
        spec.bound.startswith(">=0")
        and options.finite
        and bool((value < 0).any() if hasattr(value, "any") else value < 0)
    ):
        raise SchemaError(f"{at or 'the answer'} holds a negative number")


def _check_shape(shape: tuple, names: tuple[str, ...], bound: dict, at: str) -> None:
    """Check a shape against names of axes, numbers, or a name with * that stands for any number of axes."""
    wanted: list = []
    for name in names:
        if name.startswith("*"):
            wanted.extend(bound.setdefault(name, shape[len(wanted) : len(shape) - len(names) + len(wanted) + 1]))
        elif name.isdigit():
            wanted.append(int(name))
        else:
            wanted.append(bound.setdefault(name, shape[len(wanted)] if len(wanted) < len(shape) else None))
    if tuple(wanted) != shape:
        raise SchemaError(f"{at or 'the answer'} should have shape {tuple(wanted)} ({' '.join(names)}), got {shape}")


def _check_finite(value: Any, at: str) -> None:
    """Refuse what is not a number, NaN and infinities."""
    found = kind(value)
    if found not in "fiub":
        raise SchemaError(f"{at or 'the answer'} holds {np.asarray(value).dtype} instead of numbers")
    if found == "f" and not all_finite(value):
        what = "NaN" if np.isnan(to_numpy(value)).any() else "an infinite number"
        raise SchemaError(f"{at or 'the answer'} holds {what}")


@cache
def hints(schema: type) -> dict[str, Any]:
    """The annotations of a message's fields."""
    return get_type_hints(schema, include_extras=True)


def row_counts(value: Tree, schema: Any) -> Iterator[Any]:
    """The leaves that the schema marks as counts of rows (">=0 rows"), wherever they stand."""
    if hasattr(schema, "_fields"):
        types = hints(schema)
        for name, part in zip(schema._fields, value):
            yield from row_counts(part, types[name])
    elif get_origin(schema) is tuple:
        args = get_args(schema)
        repeated = len(args) == 2 and args[1] is Ellipsis
        for i, part in enumerate(value):
            yield from row_counts(part, args[0] if repeated else args[i])
    elif get_origin(schema) is dict:
        for part in value.values():
            yield from row_counts(part, get_args(schema)[1])
    elif _counts_rows(schema):
        yield value


def row_schemas(schema: Any) -> Iterator[Any]:
    """The parts of a schema that are marked as counts of rows."""
    if hasattr(schema, "_fields"):
        for part in hints(schema).values():
            yield from row_schemas(part)
    elif get_origin(schema) in (tuple, dict):
        for part in get_args(schema):
            yield from row_schemas(part)
    elif _counts_rows(schema):
        yield schema


def _counts_rows(schema: Any) -> bool:
    """Whether the schema marks this array as a count of rows."""
    spec = getattr(schema, "__metadata__", [None])[0]
    return "rows" in getattr(spec, "bound", "").split()


# ---- saving: structure as JSON, arrays beside it, no pickle ----

MESSAGES: dict[str, type] = {}  # lasting name -> NamedTuple
Message = TypeVar("Message", bound=type)


def message(name: str) -> Callable[[Message], Message]:
    """Give a NamedTuple the lasting name under which it is sent and saved."""

    def register(cls: Message) -> Message:
        """Enter the type under the chosen name; a second type must not take it."""
        known = MESSAGES.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{name} is the name of {known.__module__}.{known.__qualname__} already: choose another")
        MESSAGES[name] = cls
        cls.__message__ = name  # type: ignore[attr-defined]
        return cls

    return register


def _name(cls: type) -> str:
    """The lasting name of a message type; "module:Class" for a type outside this package that has none."""
    name = getattr(cls, "__message__", None)
    if name is None and cls.__module__.startswith("unpooled."):
        raise TypeError(f"{cls.__qualname__} of {cls.__module__} has no lasting name: mark it with @message")
    return name or f"{cls.__module__}:{cls.__qualname__}"


def pack(t: Tree) -> tuple[str, list[np.ndarray]]:
    """(structure as JSON, arrays): what `unpack` needs to give `t` back."""
    arrays: list[np.ndarray] = []

    def describe(t: Tree) -> Any:
        """The structure of a tree as JSON, arrays replaced by their place."""
        if isinstance(t, (*_STRUCTURE, int, float)):
            return {"value": t}
        if isinstance(t, dict):
            return {"dict": {k: describe(t[k]) for k in sorted(t)}}
        if hasattr(t, "_fields"):
            return {"type": _name(type(t)), "items": [describe(c) for c in t]}
        if isinstance(t, tuple | list):
            return {type(t).__name__: [describe(c) for c in t]}
        arrays.append(to_numpy(t))
        return {"array": len(arrays) - 1}

    return json.dumps(describe(t)), arrays


def structure(t: Tree) -> str:
    """The structure of a value without its numbers; two values with the same structure differ in numbers and shapes
    only.
    """
    return json.dumps(_outline(t))


def _outline(t: Tree) -> Any:
    """The structure of a tree with its types, numbers left out."""
    if isinstance(t, dict):
        return {k: _outline(t[k]) for k in sorted(t)}
    if isinstance(t, tuple | list):
        return [type(t).__name__, *(_outline(c) for c in t)]
    return t if isinstance(t, _STRUCTURE) else "number"


def unpack(structure: str, arrays: list[np.ndarray], *, importing: bool = True) -> Tree:
    """The tree that `pack` described; with `importing=False` (messages) only types already imported are made."""

    def build(node: Any) -> Tree:
        """The tree that a structure describes."""
        (kind, body), *rest = node.items()
        if kind == "value" and isinstance(body, (int, float, *_STRUCTURE)):
            return body
        if kind == "array" and type(body) is int and 0 <= body < len(arrays):
            return arrays[body]
        if kind == "dict":
            return {k: build(v) for k, v in body.items()}
        if kind == "type":
            return _named_tuple(body, importing)(*[build(c) for c in rest[0][1]])
        return {"tuple": tuple, "list": list}[kind](build(c) for c in body)

    try:
        return build(json.loads(structure))
    except SchemaError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise SchemaError(f"the structure of a saved or sent value is broken ({type(error).__name__})") from error


def _named_tuple(name: str, importing: bool) -> type:
    """A message type by name, from this package or a module already imported: loading a file never imports other code."""
    if importing:
        import_home(name)
    found: Any = MESSAGES.get(name)
    if found is None:
        module, _, qualname = name.partition(":")
        found = sys.modules.get(module)
        for part in qualname.split("."):
            found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise SchemaError(
            f"{name[:80]!r} is not a known message type: import the module that defines it before loading"
        )
    return found


def iter_paths(t: Tree, at: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) pairs for messages: ('means', array), ('[0].n', array)."""
    if isinstance(t, dict):
        for k in sorted(t):
            yield from iter_paths(t[k], f"{at}[{k!r}]")
    elif isinstance(t, tuple | list):
        fields = getattr(t, "_fields", None)
        for i, c in enumerate(t):
            if fields:
                path = f"{at}.{fields[i]}" if at else fields[i]
            else:
                path = f"{at}[{i}]"
            yield from iter_paths(c, path)
    elif not isinstance(t, _STRUCTURE):
        yield at, t


def describe(t: Tree) -> str:
    """The leaves of a value with their shapes, as text: "n (3), x (3 x 2), loglik"."""
    leaves = []
    for path, leaf in iter_paths(t):
        shape = " x ".join(str(size) for size in np.shape(leaf))
        leaves.append(f"{path or 'value'} ({shape})" if shape else path or "value")
    return ", ".join(leaves) or "nothing"
