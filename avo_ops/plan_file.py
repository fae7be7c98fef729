"""``plan.json``, the one result of the generator that is read as data: written and read here alone, by nothing but Python.

In memory a plan repeats itself: all cases of an operator with equal graphs say the same of their kernels, its three ops have
the same arguments, and most families have variants of the same tiles. The file says each of these once:

- ``tables``: lists of variants, which ``kernels`` refer to by position. A row has the values that ``columns`` names:
  ``instantiate`` the arguments of AVO_KERNEL after the symbol, "*" being the dtypes of whoever has the table; ``alone``
  for a variant that is a unit of its own; ``max_n`` is null for any width. The defaults at its end are left out, as is
  everywhere what follows from the arguments (``symbol_of``, ``_shape_of``).
- ``kernels``: what families have of dtypes. ``[position, name]`` says that the other rows of a table are in the unit of that
  name, to be put after the family's; else they are in the family's own, which is packaged.
- ``params`` stand with the family instead of each step, "rows:x" for "ptr:x stride:x"; ``source`` only where a family shares
  another's template, ``sums`` where there are some.
- ``arguments`` and ``results`` of an operator by name, to which its ops refer. An op has in its own list what it alone says
  otherwise.
- ``ops`` have the name that is in their schema; what is missing is as in the op before. What is ``saved`` is "arg:name"
  or "return:index".
- ``graphs`` of an operator, which its cases refer to: "key returns position", a digit for each number of the first two and
  "-" for none. In one, ``cuda`` has a row ``[when, families of the steps, min_arch, limit]`` for each alternative, without a
  last 0 and null; what is of nothing is left out. An operator that has all of another one's has its name in their place.
- nodes of an expression are lines, "op operands" or "op:attribute operands". An operand is the number of a line, a constant
  (never a whole number), the name of an argument whose element is loaded, or "$name" for one that is a number.
- ``lists`` has the operators over lists of tensors as they are.
- of an argument, ``kind``, ``optional`` and ``none`` only where they say something; of a CPU kernel, ``scalars`` and ``sums``
  only where there are some. Names stand between spaces.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

VERSION = 5
ANY = 1 << 62  # the widest row of a variant that takes any
# What a row of a table has, and what it is at the end of a row that ends before.
_COLUMNS = {
    "instantiate": None, "min_n": None, "max_n": None, "exact": None, "vec": None, "cols": 0, "cluster": 1, "smem": 0, "alone": 0,
}  # fmt: skip
COLUMNS = tuple(_COLUMNS)
_DEFAULT_VALUES = tuple(_COLUMNS.values())
# What a kernel is for, as its template is told it and as its name says it, if not a number of columns.
_KINDS = {"0": "", "kSingly": "_odd", "kWholeChunks": "_chunks"}


def symbol_of(family: str, arguments: str) -> str:
    """The name of a kernel, by the arguments of AVO_KERNEL after it: block, blocks of an SM, dtypes, and mostly the tile."""
    _, _, dtypes, tile = _words_of(arguments)
    if tile:
        threads, vectors, kind, _, *parts = tile
        tile = [f"t{threads}x{vectors}{_KINDS.get(kind, f'_n{kind}')}", *(f"of{n}" for n in parts)]
    return f"{family}__{'_'.join([*dtypes, *tile])}"


@lru_cache(maxsize=4096)
def _words_of(arguments: str) -> tuple[int, int, list[str], list[str]]:
    block, blocks, *found = arguments.split(", ")
    dtypes = [word for word in found if word[0] in "bf" and word[-1].isdigit()]
    return int(block), int(blocks), dtypes, found[len(dtypes) :]


def _shape_of(arguments: str, cluster: int) -> Json:
    """What else a variant says that follows from the arguments of AVO_KERNEL; ``cluster`` blocks share the threads of a row."""
    block, blocks, _, tile = _words_of(arguments)
    if not tile:
        return {"block": block, "rows": 0, "persist": 0}
    threads, persists = tile[0], tile[3]
    return {
        "block": block,
        "rows": block * cluster // int(threads),
        "persist": blocks if persists == "true" else 0,
    }


def load(folder: Path) -> Json:
    """The plan of a folder. Cases and families are expanded when they are asked for, which importing the package does not.

    Raises:
        RuntimeError: it was written for another version of this package.
    """
    path = folder / "plan.json"
    return of_data(json.loads(path.read_bytes()), str(path))


def of_data(data: Json, where: str) -> Json:
    """The plan that a file has as ``data``.

    Raises:
        RuntimeError: it was written for another version of this package.
    """
    if data.get("version") != VERSION:
        raise RuntimeError(
            f"avo_ops: {where} has version {data.get('version')}; this package reads {VERSION}"
        )
    families = Families(data["families"], data["kernels"], data["tables"])
    graphs = {entry["name"]: entry["graphs"] for entry in data["operators"]}
    operators = []
    for entry in data["operators"]:
        own = entry["graphs"]
        operators.append(
            _operator_of({**entry, "graphs": graphs[own] if isinstance(own, str) else own}, families)
        )
    return {"version": VERSION, "operators": operators, "families": families, "lists": data.get("lists", [])}


def text(operators: Sequence[Json], families: Mapping[str, Json], lists: Sequence[Json] = ()) -> str:
    """The file of a plan."""
    return _dump(data_of(operators, families, lists))


def data_of(operators: Sequence[Json], families: Mapping[str, Json], lists: Sequence[Json] = ()) -> Json:
    """A plan as its file has it."""
    params = {
        step["family"]: step["params"]
        for operator in operators
        for op in operator["ops"]
        for case in op["cases"]
        for alternative in case["cuda"]
        for step in alternative["steps"]
    }
    tables, kernels = _Once(), _Once()
    return {
        "version": VERSION,
        "operators": _operators_to(operators),
        "families": {n: _family_to(n, f, params[n], kernels, tables) for n, f in families.items()},
        "kernels": kernels.values(),
        "columns": COLUMNS,
        "tables": tables.values(),
        "lists": list(lists),
    }


class _Once:
    """Values that are said once, and their positions."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        return self._places.setdefault(json.dumps(value), len(self._places))

    def values(self) -> list[Any]:
        return list(map(json.loads, self._places))


# ---- families ----


class Families(Mapping[str, Json]):
    """The families of a plan by name."""

    def __init__(
        self, entries: Mapping[str, Json], kernels: list[Json], tables: Sequence[list[list[Any]]]
    ) -> None:
        self._entries, self._kernels, self._tables = entries, kernels, tables
        self._expanded: dict[str, Json] = {}
        self._params: dict[str, list[list[str]]] = {}

    def __getitem__(self, name: str) -> Json:
        found = self._expanded.get(name)
        if found is None:  # by two threads at once: either may win
            found = self._expanded[name] = self._family_of(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def params(self, name: str) -> list[list[str]]:
        """The parameters of a family's kernels."""
        text = self._entries[name]["params"]
        found = self._params.get(text)
        if found is None:
            found = self._params[text] = []
            for kind, *names in (word.split(":") for word in text.split()):
                found += [["ptr", *names], ["stride", *names]] if kind == "rows" else [[kind, *names]]
        return found

    def _family_of(self, name: str) -> Json:
        entry = self._entries[name]
        return {
            "source": entry.get("source", f"cuda/{name}.cu"),
            "class": entry["class"],
            "sums": entry.get("sums", 0),
            "variants": {
                dtypes: [_variant_of(name, dtypes, row, unit) for row in self._tables[i]]
                for dtypes, (i, *unit) in self._kernels[entry["kernels"]].items()
            },
        }


def _family_to(name: str, family: Json, params: list[list[str]], kernels: _Once, tables: _Once) -> Json:
    entry: Json = {"class": family["class"]}
    if family["sums"]:
        entry["sums"] = family["sums"]
    entry["params"] = re.sub(r"\bptr:(\w+) stride:\1(?!\S)", r"rows:\1", " ".join(map(":".join, params)))
    if family["source"] != f"cuda/{name}.cu":
        entry["source"] = family["source"]
    found = {}
    for dtypes, rows in family["variants"].items():
        shared = {row["unit"] for row in rows if row["unit"] != row["symbol"]}
        if len(shared) > 1:
            raise AssertionError(f"{name}: its variants for {dtypes} are in several units: {shared}")
        unit = [one.removeprefix(f"{name}__") for one in shared if one]
        found[dtypes] = [tables.place([_variant_to(name, dtypes, row) for row in rows]), *unit]
    return {**entry, "kernels": kernels.place(found)}


def _variant_of(family: str, dtypes: str, row: list[Any], unit: list[str]) -> Json:
    variant = dict(zip(COLUMNS, (*row, *_DEFAULT_VALUES[len(row) :]), strict=True))
    variant["max_n"] = ANY if variant["max_n"] is None else variant["max_n"]
    arguments = variant["instantiate"].replace("*", dtypes.replace(",", ", "))
    symbol = variant["symbol"] = symbol_of(family, arguments)
    variant["instantiate"] = f"AVO_KERNEL({symbol}, {arguments})"
    variant["unit"] = symbol if variant.pop("alone") else f"{family}__{unit[0]}" if unit else None
    return variant | _shape_of(arguments, variant["cluster"])


def _variant_to(family: str, dtypes: str, variant: Json) -> list[Any]:
    symbol, own = variant["symbol"], dtypes.replace(",", ", ")
    arguments = variant["instantiate"].partition(", ")[2].removesuffix(")")
    row = {
        **variant,
        "instantiate": f"{arguments}, ".replace(f", {own}, ", ", *, ", 1).removesuffix(", "),
        "max_n": None if variant["max_n"] == ANY else variant["max_n"],
        "alone": int(variant["unit"] == symbol),
    }
    if symbol_of(family, arguments) != symbol:
        raise AssertionError(f"{symbol} is not the name of a kernel of {arguments}")
    shape = _shape_of(arguments, variant["cluster"])
    if any(variant[name] != value for name, value in shape.items()):
        raise AssertionError(f"{symbol}: a kernel of {arguments} has {shape}")
    return _shortened([row[column] for column in COLUMNS], _DEFAULT_VALUES)


def _shortened(row: list[Any], defaults: Sequence[Any]) -> list[Any]:
    """A row without the defaults at its end; None is no default."""
    while defaults[len(row) - 1] is not None and row[-1] == defaults[len(row) - 1]:
        row.pop()
    return row


# ---- operators ----


class Cases(Sequence[Json]):
    """The cases of an op. Each is made anew when it is asked for."""

    def __init__(self, entries: list[str], graphs: list[Json], families: Families) -> None:
        self._entries, self._graphs, self._families = entries, graphs, families

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        key, returns, position = self._entries[index].split(" ")
        graph = _NOTHING | self._graphs[int(position)]
        return {
            "key": _digits_of(key),
            "returns": list(map(bool, _digits_of(returns))),
            "cpu": graph["cpu"] and _cpu_of(graph["cpu"]),
            "cuda": [self._alternative_of(*row) for row in graph["cuda"]],
            "expression": _expression_of(**graph["expression"]),
        }

    def _alternative_of(self, when: str, families: str, min_arch: int = 0, limit: Json | None = None) -> Json:
        steps = [{"family": name, "params": self._families.params(name)} for name in families.split()]
        return {"when": when, "limit": limit, "min_arch": min_arch, "steps": steps}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def _operator_of(entry: Json, families: Families) -> Json:
    arguments = {name: _argument_of(name, a) for name, a in entry["arguments"].items()}
    results = {name: {"name": name, **r} for name, r in entry["results"].items()}
    ops: list[Json] = []
    op: Json = {}
    for own in entry["ops"]:
        op = {**op, **own}
        ops.append(
            {
                **op,
                "name": own["schema"].partition("(")[0],
                "args": [arguments[a] if isinstance(a, str) else _argument_of(**a) for a in op["args"]],
                "returns": [results[r] if isinstance(r, str) else r for r in op["returns"]],
                "cases": Cases(op["cases"], entry["graphs"], families),
            }
        )
    operator = {k: v for k, v in entry.items() if k not in _OF_OPERATOR}
    autograd = {**entry["autograd"], "saved": list(map(_saved_of, entry["autograd"]["saved"].split()))}
    return {**operator, "ops": ops, "autograd": autograd}


def _operators_to(operators: Sequence[Json]) -> list[Json]:
    owners: dict[str, str] = {}  # of graphs
    entries = []
    for operator in operators:
        entry = _operator_to(operator)
        owner = owners.setdefault(json.dumps(entry["graphs"]), entry["name"])
        entries.append(entry if owner == entry["name"] else {**entry, "graphs": owner})
    return entries


def _operator_to(operator: Json) -> Json:
    graphs = _Once()
    arguments: Json = {}
    results: Json = {}

    def case_to(case: Json) -> str:
        graph = {
            "cpu": case["cpu"] and _cpu_to(case["cpu"]),
            "cuda": list(map(_alternative_to, case["cuda"])),
            "expression": _expression_to(**case["expression"]),
        }
        graph = {key: value for key, value in graph.items() if value != _NOTHING[key]}
        return f"{_digits_to(case['key'])} {_digits_to(case['returns'])} {graphs.place(graph)}"

    ops: list[Json] = []
    before: Json = {}
    for op in operator["ops"]:
        entry = {
            **{key: value for key, value in op.items() if key != "name"},
            "args": [_mention(arguments, _argument_to(a)) for a in op["args"]],
            "returns": [_mention(results, r) for r in op["returns"]],
            "cases": list(map(case_to, op["cases"])),
        }
        if not op["schema"].startswith(f"{op['name']}("):
            raise AssertionError(f"{op['name']} is not in its schema: {op['schema']}")
        ops.append({key: value for key, value in entry.items() if before.get(key) != value})
        before = entry
    autograd = operator["autograd"]
    return {
        **operator,
        "autograd": {**autograd, "saved": " ".join(map(_saved_to, autograd["saved"]))},
        "arguments": arguments,
        "results": results,
        "ops": ops,
        "graphs": graphs.values(),
    }


# What the file says of an operator for all of its ops.
_OF_OPERATOR = ("arguments", "results", "graphs")


def _saved_to(saved: Json) -> str:
    kind, what = saved.values()
    return f"{kind}:{what}"


def _saved_of(word: str) -> Json:
    kind, _, what = word.partition(":")
    return {"kind": kind, "name": what} if kind == "arg" else {"kind": kind, "index": int(what)}


def _mention(known: Json, entry: Json) -> Any:
    """The name of an argument or a result, if the operator says of it what ``entry`` does."""
    own = {key: value for key, value in entry.items() if key != "name"}
    return entry["name"] if known.setdefault(entry["name"], own) == own else entry


_DIGITS = string.digits + string.ascii_lowercase


def _digits_to(numbers: Sequence[int]) -> str:
    return "".join(_DIGITS[n] for n in numbers) or "-"


def _digits_of(text: str) -> list[int]:
    return [] if text == "-" else list(map(_DIGITS.index, text))


# The graph of a case that returns nothing.
_NOTHING: Json = {"cpu": None, "cuda": [], "expression": {"nodes": [], "results": {}}}
_NAMES = ("operands", "scalars", "sums")  # of a CPU kernel


def _cpu_to(kernel: Json) -> Json:
    return {k: " ".join(v) if k in _NAMES else v for k, v in kernel.items() if v != []}


def _cpu_of(kernel: Json) -> Json:
    return {**kernel, **{name: kernel.get(name, "").split() for name in _NAMES}}


def _alternative_to(alternative: Json) -> list[Any]:
    families = " ".join(step["family"] for step in alternative["steps"])
    row = [alternative["when"], families, alternative["min_arch"], alternative["limit"]]
    return row if row[3] else row[:3] if row[2] else row[:2]


# What an argument of these kinds says where the file does not.
_DEFAULTS: dict[str, Json] = {
    "tensor": {"kind": "tensor", "optional": False},
    "float": {"optional": False, "none": None},
}


def _argument_of(name: str, entry: Json) -> Json:
    found = {"name": name, "kind": "tensor", **entry}
    return _with(found, _DEFAULTS.get(found["kind"], {}))


def _with(entry: Json, defaults: Json) -> Json:
    return {**entry, **{name: value for name, value in defaults.items() if name not in entry}}


def _argument_to(argument: Json) -> Json:
    defaults = _DEFAULTS.get(argument["kind"], {})
    return {
        name: value for name, value in argument.items() if name not in defaults or value != defaults[name]
    }


# ---- expressions ----

_WHOLE = re.compile(r"\d+")
_CONSTANT = re.compile(r"-?(\d.*|inf)|nan")


def as_read(expression: Json) -> Json:
    """An expression as a file gives it back: with its leaves where they are first used."""
    return _expression_of(**_expression_to(**expression))


def _expression_to(nodes: Sequence[Sequence[Any]], results: Mapping[str, int]) -> Json:
    """Nodes as lines, leaves in the place where they are used."""
    whole = set(results.values())  # have a line in any case
    words: list[str] = []  # for each node, what its users say
    lines: list[str] = []
    for i, (op, operands, *attribute) in enumerate(nodes):
        leaf = None if i in whole else _leaf_to(op, *attribute)
        if leaf is None:
            head = ":".join([op, *(str(_spelled(op, a)) for a in attribute)])
            if any(_attribute_of(op, str(_spelled(op, a))) != a for a in attribute):
                raise AssertionError(f"an attribute that a line cannot say: {head}")
            leaf = str(len(lines))
            lines.append(" ".join([head, *(words[o] for o in operands)]))
        words.append(leaf)
    return {"nodes": lines, "results": {name: int(words[i]) for name, i in results.items()}}


def _leaf_to(op: str, attribute: Any = None) -> str | None:
    if op not in ("load", "scalar", "const"):
        return None
    word = f"${attribute}" if op == "scalar" else str(_spelled(op, attribute))
    return word if _leaf_of(word) == [op, [], attribute] else None


def _spelled(op: str, attribute: Any) -> Any:
    return float(attribute) if op == "const" and not isinstance(attribute, str) else attribute


def _leaf_of(word: str) -> list[Any]:
    if word[0] == "$":
        return ["scalar", [], word[1:]]
    if _CONSTANT.fullmatch(word):
        return ["const", [], float(word) if word[-1].isdigit() else word]
    return ["load", [], word]


def _expression_of(nodes: Sequence[str], results: Mapping[str, int]) -> Json:
    found: list[list[Any]] = []
    leaves: dict[str, int] = {}
    places: list[int] = []  # of the nodes that have a line

    def place(word: str) -> int:
        if _WHOLE.fullmatch(word):
            return places[int(word)]
        if word not in leaves:
            leaves[word] = len(found)
            found.append(_leaf_of(word))
        return leaves[word]

    for line in nodes:
        head, *words = line.split(" ")
        op, colon, attribute = head.partition(":")
        operands = list(map(place, words))
        places.append(len(found))
        found.append([op, operands, *([_attribute_of(op, attribute)] if colon else [])])
    return {"nodes": found, "results": {name: places[i] for name, i in results.items()}}


def _attribute_of(op: str, text: str) -> Any:
    return _leaf_of(text)[2] if op == "const" else text


def _dump(data: Json) -> str:
    """JSON with one line for each family, variant row, argument and part of a graph: it is read in reviews."""

    def write(value: Any, depth: int) -> str:
        pad = " " * depth
        flat = json.dumps(value)
        if depth >= 6 or len(flat) <= 180 or not isinstance(value, dict | list):
            return flat
        if isinstance(value, dict):
            inner = [f"{pad} {json.dumps(k)}: {write(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(inner) + f"\n{pad}}}"
        return "[\n" + ",\n".join(f"{pad} {write(v, depth + 1)}" for v in value) + f"\n{pad}]"

    return write(data, 0) + "\n"
