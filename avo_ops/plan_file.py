"""``plan.json``, the one result of the generator that is read as data: written and read here alone, by nothing but Python.

In memory a plan repeats itself: all cases of an operator with equal graphs say the same of their kernels, and most families
have variants of the same tiles. The file says each of these once:

- ``tables``: lists of variants for one pair of dtypes, which families refer to by position. A row has the values that
  ``columns`` names: ``instantiate`` the arguments of AVO_KERNEL after the symbol, which follows from them
  (``symbol_of``), ``alone`` for a variant that is a unit of its own; zeros at the end are left out, and ``max_n`` is null
  for any width. ``[position, name]`` says that its other rows are in the unit of that name, to be put after the family's;
  else they are in the family's own, which is packaged.
- ``params`` stand with the family instead of each step; ``source`` only where a family shares another's template.
- ``graphs`` of an operator, which its cases ``[key, returns, position]`` refer to. In one, ``cuda`` has a row ``[when,
  families of the steps, min_arch, limit]`` for each alternative, without a last 0 and null. An operator that has all of
  another one's has its name in their place.
- ``lists`` has the operators over lists of tensors as they are.
- of an argument, ``optional`` and ``none`` only where they say something; of a CPU kernel, no empty list of scalars or
  sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

VERSION = 4
ANY = 1 << 62  # the widest row of a variant that takes any
COLUMNS = (
    "instantiate", "min_n", "max_n", "exact", "block", "rows", "vec", "cols", "persist", "cluster", "smem", "alone",
)  # fmt: skip
# What a kernel is for, as its template is told it and as its name says it, if not a number of columns.
_KINDS = {"0": "", "kSingly": "_odd", "kWholeChunks": "_chunks"}


def symbol_of(family: str, arguments: str) -> str:
    """The name of a kernel, by the arguments of AVO_KERNEL after it: block, blocks of an SM, dtypes, and mostly the tile."""
    _, _, *found = arguments.split(", ")
    dtypes = [word for word in found if word[0] in "bf" and word[-1].isdigit()]
    tile = found[len(dtypes) :]
    if tile:
        threads, vectors, kind, _ = tile
        tile = [f"t{threads}x{vectors}{_KINDS.get(kind, f'_n{kind}')}"]
    return f"{family}__{'_'.join([*dtypes, *tile])}"


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
    families = Families(data["families"], data["tables"])
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
    tables: dict[str, int] = {}
    params = {
        step["family"]: step["params"]
        for operator in operators
        for op in operator["ops"]
        for case in op["cases"]
        for alternative in case["cuda"]
        for step in alternative["steps"]
    }
    return {
        "version": VERSION,
        "operators": _operators_to(operators),
        "families": {name: _family_to(name, f, params[name], tables) for name, f in families.items()},
        "columns": COLUMNS,
        "tables": [json.loads(table) for table in tables],
        "lists": list(lists),
    }


# ---- families ----


class Families(Mapping[str, Json]):
    """The families of a plan by name."""

    def __init__(self, entries: Mapping[str, Json], tables: Sequence[list[list[Any]]]) -> None:
        self._entries, self._tables = entries, tables
        self._expanded: dict[str, Json] = {}

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
        return [word.split(":") for word in self._entries[name]["params"].split()]

    def _family_of(self, name: str) -> Json:
        entry = self._entries[name]
        return {
            "source": entry.get("source", f"cuda/{name}.cu"),
            "class": entry["class"],
            "sums": entry["sums"],
            "variants": {
                dtypes: [_variant_of(name, row, unit) for row in self._tables[i]]
                for dtypes, (i, *unit) in entry["tables"].items()
            },
        }


def _family_to(name: str, family: Json, params: list[list[str]], tables: dict[str, int]) -> Json:
    entry: Json = {
        "class": family["class"],
        "sums": family["sums"],
        "params": " ".join(map(":".join, params)),
    }
    if family["source"] != f"cuda/{name}.cu":
        entry["source"] = family["source"]
    entry["tables"] = {}
    for dtypes, rows in family["variants"].items():
        table = json.dumps([_variant_to(name, row) for row in rows])
        shared = {row["unit"] for row in rows if row["unit"] != row["symbol"]}
        if len(shared) > 1:
            raise AssertionError(f"{name}: its variants for {dtypes} are in several units: {shared}")
        unit = [one.removeprefix(f"{name}__") for one in shared if one]
        entry["tables"][dtypes] = [tables.setdefault(table, len(tables)), *unit]
    return entry


def _variant_of(family: str, row: list[Any], unit: list[str]) -> Json:
    variant = dict(zip(COLUMNS, [*row, *[0] * (len(COLUMNS) - len(row))], strict=True))
    variant["max_n"] = ANY if variant["max_n"] is None else variant["max_n"]
    symbol = variant["symbol"] = symbol_of(family, variant["instantiate"])
    variant["instantiate"] = f"AVO_KERNEL({symbol}, {variant['instantiate']})"
    variant["unit"] = symbol if variant.pop("alone") else f"{family}__{unit[0]}" if unit else None
    return variant


def _variant_to(family: str, variant: Json) -> list[Any]:
    symbol = variant["symbol"]
    row = {
        **variant,
        "instantiate": variant["instantiate"].removeprefix(f"AVO_KERNEL({symbol}, ").removesuffix(")"),
        "alone": int(variant["unit"] == symbol),
    }
    if symbol_of(family, row["instantiate"]) != symbol:
        raise AssertionError(f"{symbol} is not the name of a kernel of {row['instantiate']}")
    row["max_n"] = None if variant["max_n"] == ANY else variant["max_n"]
    values = [row[column] for column in COLUMNS]
    while values[-1] == 0:
        values.pop()
    return values


# ---- operators ----


class Cases(Sequence[Json]):
    """The cases of an op. Each is made anew when it is asked for."""

    def __init__(self, entries: list[list[Any]], graphs: list[Json], families: Families) -> None:
        self._entries, self._graphs, self._families = entries, graphs, families

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        key, returns, position = self._entries[index]
        graph = self._graphs[position]
        cuda = [self._alternative_of(*row) for row in graph["cuda"]]
        cpu = graph["cpu"] and _with(graph["cpu"], {"scalars": [], "sums": []})
        return {"key": key, "returns": list(map(bool, returns)), **graph, "cpu": cpu, "cuda": cuda}

    def _alternative_of(
        self, when: str, families: list[str], min_arch: int = 0, limit: Json | None = None
    ) -> Json:
        steps = [{"family": name, "params": self._families.params(name)} for name in families]
        return {"when": when, "limit": limit, "min_arch": min_arch, "steps": steps}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def _operator_of(entry: Json, families: Families) -> Json:
    ops = [
        {
            **op,
            "args": list(map(_argument_of, op["args"])),
            "cases": Cases(op["cases"], entry["graphs"], families),
        }
        for op in entry["ops"]
    ]
    return {**{k: v for k, v in entry.items() if k != "graphs"}, "ops": ops}


def _operators_to(operators: Sequence[Json]) -> list[Json]:
    owners: dict[str, str] = {}  # of graphs
    entries = []
    for operator in operators:
        entry = _operator_to(operator)
        owner = owners.setdefault(json.dumps(entry["graphs"]), entry["name"])
        entries.append(entry if owner == entry["name"] else {**entry, "graphs": owner})
    return entries


def _operator_to(operator: Json) -> Json:
    graphs: dict[str, int] = {}

    def case_to(case: Json) -> list[Any]:
        cuda = [_alternative_to(a) for a in case["cuda"]]
        cpu = case["cpu"] and {name: value for name, value in case["cpu"].items() if value != []}
        graph = json.dumps({"cpu": cpu, "cuda": cuda, "expression": case["expression"]})
        return [case["key"], list(map(int, case["returns"])), graphs.setdefault(graph, len(graphs))]

    ops = [
        {**op, "args": list(map(_argument_to, op["args"])), "cases": list(map(case_to, op["cases"]))}
        for op in operator["ops"]
    ]
    return {**operator, "ops": ops, "graphs": [json.loads(graph) for graph in graphs]}


def _alternative_to(alternative: Json) -> list[Any]:
    families = [step["family"] for step in alternative["steps"]]
    row = [alternative["when"], families, alternative["min_arch"], alternative["limit"]]
    return row if row[3] else row[:3] if row[2] else row[:2]


# What an argument of these kinds says where the file does not.
_DEFAULTS: dict[str, Json] = {"tensor": {"optional": False}, "float": {"optional": False, "none": None}}


def _argument_of(entry: Json) -> Json:
    return _with(entry, _DEFAULTS.get(entry["kind"], {}))


def _with(entry: Json, defaults: Json) -> Json:
    return {**entry, **{name: value for name, value in defaults.items() if name not in entry}}


def _argument_to(argument: Json) -> Json:
    defaults = _DEFAULTS.get(argument["kind"], {})
    return {
        name: value for name, value in argument.items() if name not in defaults or value != defaults[name]
    }


def _dump(data: Json) -> str:
    """JSON with one line for each family, variant row, argument and part of a graph: it is read in reviews."""

    def write(value: Any, depth: int) -> str:
        pad = " " * depth
        flat = json.dumps(value)
        if depth >= 6 or len(flat) <= 140 or not isinstance(value, dict | list):
            return flat
        if isinstance(value, dict):
            inner = [f"{pad} {json.dumps(k)}: {write(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(inner) + f"\n{pad}}}"
        return "[\n" + ",\n".join(f"{pad} {write(v, depth + 1)}" for v in value) + f"\n{pad}]"

    return write(data, 0) + "\n"
