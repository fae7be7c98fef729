"""Graphs that earlier processes made, from the cache folder: found by what a function is, without tracing it.

An entry has the graph, with the calls that it serves, and its operators with all that their kernels are compiled from. It is two
lines of JSON: what any process needs, and what only one does that compiles, differentiates twice or exports. Its key is made of
the function's :func:`.fingerprint.fingerprint`, the kinds of the arguments, the versions of Python, torch and this package, and of
whatever else a trace depends on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from .. import plan_file
from ..registry.dynamic import record_of, tables_of
from ..registry.store import cache_key, default_cache_folder, publish, read_all
from .codec import NotEncodable, decode, encode
from .composite import Composite
from .fingerprint import fingerprint
from .graph import Graph
from .graph_file import encoded_graph, encoded_kind, key_and_graph
from .installation import versions
from .kernels import KnownOperator, known_operator, register

if TYPE_CHECKING:
    from ..generator.product import CpuKernel, Family

Json = dict[str, Any]
_SUFFIX = ".graph"
_MOST_CONSTANTS = 64  # elements of a tensor that is made within a function


def address_of(
    fn: Callable[..., Any], title: str, spec: Any, kinds: Sequence[Any], autocast: Any
) -> str | None:
    """The key of the entries that may serve a call, or None if no other process can know of them.

    ``AVO_OPS_REMEMBER=0`` switches this off.
    """
    if os.environ.get("AVO_OPS_REMEMBER") == "0":
        return None
    known = fingerprint(fn)
    if known is None:
        return None
    try:
        arguments = encode(pytree.tree_unflatten(list(range(len(kinds))), spec))
        call = [arguments, [[encoded_kind(k), _device_of(k)] for k in kinds], encode(autocast)]
    except NotEncodable:
        return None
    return cache_key([known, json.dumps([title, call]).encode(), *_circumstances()])


def find(address: str, title: str) -> Iterator[Graph]:
    """The graphs that there are, with their operators registered."""
    folder = default_cache_folder()
    if folder is None:
        return
    for _, content in read_all(folder, address, _SUFFIX):
        try:
            data, rest = _lines_of(content)
            plan = plan_file.of_data({**data["plan"], "tables": _Tables(rest)}, "an entry of the cache")
            for i, (operator, made) in enumerate(zip(plan["operators"], data["made"], strict=True)):
                known = _decoded_operator(operator, plan["families"], made, _made_of(rest, i))
                register(record_of(operator, known.define), known, made["tables"])
            _, graph = key_and_graph(data["graph"], title, _constant)
        except Exception:  # such as an operation that this build of torch lacks: the function is traced
            continue
        yield graph


def keep(address: str, graph: Graph, spec: Any, kinds: Sequence[Any], autocast: Any) -> None:
    """Make an entry of a graph, if all of it has a place in a file and the folder can be written to."""
    folder = default_cache_folder()
    if folder is None or not isinstance(graph.composite, Composite):
        return
    try:
        operators = [known_operator(name) for name in dict.fromkeys(graph.variant.operators)]
        # An operator that was found in an entry shares the records of all others there.
        records = {name: one.records[name] for one in operators for name in one.families}
        plan = plan_file.data_of([one.operator for one in operators], records)
        rest = {"tables": plan.pop("tables"), "made": [_encoded_rest(one) for one in operators]}
        data = {
            "graph": encoded_graph(graph, spec, kinds, autocast, _encoded_constant),
            "plan": plan,
            "made": [_encoded_operator(one) for one in operators],
        }
        lines = (json.dumps(line, allow_nan=False) for line in (data, rest))
        publish(folder, address, "\n".join(lines).encode(), _SUFFIX)
    except (NotEncodable, OSError, ValueError):
        return


def _device_of(kind: Any) -> str:
    return str(kind[1]) if kind is not float and len(kind) == 3 else ""


def _circumstances() -> list[bytes]:
    # A default device is a mode of this module's, which takes longer to import than a graph to find.
    device = torch.get_default_device() if "torch.utils._device" in sys.modules else torch.device("cpu")
    return [str((torch.get_default_dtype(), device)).encode(), *versions()]


# ---- operators and constants ----


def _encoded_operator(known: KnownOperator) -> Json:
    """What the plan does not have of an operator, for the first line of an entry."""
    return {
        "families": list(known.families),
        "sources": known.sources,
        "double": known.double,
        "tables": tables_of(known.operator, known.records),
    }


def _encoded_rest(known: KnownOperator) -> Json:
    """The same for the second line; of its families all but the variants."""
    return {
        "families": {
            name: {
                f.name: getattr(family, f.name) for f in dataclasses.fields(family) if f.name != "variants"
            }
            for name, family in known.families.items()
        },
        "cpu": [dataclasses.asdict(kernel) for kernel in known.cpu()],
        "definition": encode(known.definition()),
    }


def _decoded_operator(
    operator: Json, records: Mapping[str, Json], made: Json, rest: Callable[[], Json]
) -> KnownOperator:
    def cpu() -> tuple[CpuKernel, ...]:
        from ..generator.product import CpuKernel

        return tuple(CpuKernel(**kernel) for kernel in rest()["cpu"])

    @lru_cache(maxsize=1)
    def definition() -> Callable[..., Any]:
        found: Callable[..., Any] = decode(rest()["definition"])
        return found

    families = _Families(made["families"], rest, records)
    return KnownOperator(operator, records, families, made["sources"], cpu, definition, made["double"])


def _lines_of(content: bytes) -> tuple[Json, Callable[[], Json]]:
    """The first line of an entry, and what gives the second."""
    first, _, second = content.partition(b"\n")
    data: Json = json.loads(first)
    return data, lru_cache(maxsize=1)(lambda: json.loads(second))


def _made_of(rest: Callable[[], Json], index: int) -> Callable[[], Json]:
    return lambda: rest()["made"][index]


class _Tables(Sequence[Any]):
    """The tables of variants of an entry."""

    def __init__(self, rest: Callable[[], Json]) -> None:
        self._rest = rest

    def __getitem__(self, index: Any) -> Any:
        return self._rest()["tables"][index]

    def __len__(self) -> int:
        return len(self._rest()["tables"])


class _Families(Mapping[str, Any]):
    """Families by name, made when they are asked for: what runs on the CPU needs none of them."""

    def __init__(self, names: Sequence[str], rest: Callable[[], Json], records: Mapping[str, Json]) -> None:
        self._names, self._rest, self._records = names, rest, records

    def __getitem__(self, name: str) -> Family:
        from ..generator.product import Family

        about = self._rest()["families"][name]
        params = tuple(map(tuple, about["params"]))
        return Family(**{**about, "params": params, "variants": self._records[name]["variants"]})

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _encoded_constant(tensor: torch.Tensor) -> Any:
    """A tensor in an entry, in place of the number that it has in a bundle."""
    if type(tensor) is not torch.Tensor or tensor.numel() > _MOST_CONSTANTS or not tensor.is_cpu:
        raise NotEncodable("a tensor")
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist() if tensor.numel() else []
    return [encode(tensor.dtype), list(tensor.shape), data]


def _constant(data: Any) -> torch.Tensor:
    dtype, shape, content = data
    if not content:
        return torch.empty(shape, dtype=decode(dtype))
    return torch.tensor(content, dtype=torch.uint8).view(decode(dtype)).reshape(shape)
