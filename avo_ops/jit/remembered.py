"""Graphs that earlier processes made, from the cache folder: found by what a function is, without tracing it.

An entry has the graph, with the calls that it serves, and its operators with all that their kernels are compiled from. Its key is
made of the function's :func:`.fingerprint.fingerprint`, the kinds of the arguments, the versions of Python, torch and this package,
and of whatever else a trace depends on.
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
from .kernels import KnownOperator, known_operator, register

if TYPE_CHECKING:
    from ..generator.product import Family

Json = dict[str, Any]
_SUFFIX = ".graph"
_MOST_CONSTANTS = 64  # elements of a tensor that is made within a function
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
            data = json.loads(content)
            plan = plan_file.of_data(data["plan"], "an entry of the cache")
            for operator, made in zip(plan["operators"], data["made"], strict=True):
                known = _decoded_operator(operator, plan["families"], made)
                register(record_of(operator, known.definition), known, made["tables"])
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
        records = {name: record for one in operators for name, record in one.records.items()}
        data = {
            "graph": encoded_graph(graph, spec, kinds, autocast, _encoded_constant),
            "plan": plan_file.data_of([one.operator for one in operators], records),
            "made": [_encoded_operator(one) for one in operators],
        }
        publish(folder, address, json.dumps(data, allow_nan=False).encode(), _SUFFIX)
    except (NotEncodable, OSError, ValueError):
        return


def _device_of(kind: Any) -> str:
    return str(kind[1]) if kind is not float and len(kind) == 3 else ""


def _circumstances() -> list[bytes]:
    state = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        sys.implementation.cache_tag,
        sys.version_info[:3],
    )
    return [str(state).encode(), *_versions()]


@lru_cache(maxsize=1)
def _versions() -> list[bytes]:
    """Of torch and of this package, whose files count besides: an editable one changes while its version does not."""
    files = [
        (entry.path.removeprefix(_PACKAGE), entry.stat().st_size, entry.stat().st_mtime_ns)
        for folder in ("", "definitions", "generator", "jit", "nn", "registry")
        for entry in os.scandir(os.path.join(_PACKAGE, folder))
        if entry.name.endswith(".py")
    ]
    version = sys.modules[__name__.partition(".")[0]].__version__
    return [str(v).encode() for v in (torch.__version__, torch.version.git_version, version, sorted(files))]


# ---- operators and constants ----


def _encoded_operator(known: KnownOperator) -> Json:
    """What the plan does not have of an operator; of its families all but the variants."""
    return {
        "families": {
            name: {
                f.name: getattr(family, f.name) for f in dataclasses.fields(family) if f.name != "variants"
            }
            for name, family in known.families.items()
        },
        "cpu": [dataclasses.asdict(kernel) for kernel in known.cpu],
        "definition": encode(known.definition),
        "double": known.double,
        "tables": tables_of(known.operator, known.records),
    }


def _decoded_operator(operator: Json, records: Mapping[str, Json], made: Json) -> KnownOperator:
    from ..generator.product import CpuKernel

    cpu = tuple(CpuKernel(**kernel) for kernel in made["cpu"])
    families = _Families(made["families"], records)
    return KnownOperator(operator, records, families, cpu, decode(made["definition"]), made["double"])


class _Families(Mapping[str, Any]):
    """Families by name, made when they are asked for: what runs on the CPU needs none of them."""

    def __init__(self, families: Mapping[str, Json], records: Mapping[str, Json]) -> None:
        self._families, self._records = families, records

    def __getitem__(self, name: str) -> Family:
        from ..generator.product import Family

        about = self._families[name]
        params = tuple(map(tuple, about["params"]))
        return Family(**{**about, "params": params, "variants": self._records[name]["variants"]})

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)


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
