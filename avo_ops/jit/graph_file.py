"""A graph of a compiled function as JSON, with the calls that it serves, and back: in bundles and in the cache of graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from .codec import decode, encode
from .composite import Composite
from .graph import Graph, Variant

Json = dict[str, Any]
Tensor = torch.Tensor


def encoded_graph(
    graph: Graph, spec: Any, kinds: Sequence[Any], autocast: Any, keep: Callable[[Tensor], Any] | None
) -> Json:
    """A graph, the structure and kinds of the arguments that it serves, and autocast. ``keep``: as of ``encode``.

    Raises:
        NotEncodable: something in it has no place in JSON.
    """
    assert isinstance(graph.composite, Composite)
    return {
        "arguments": encode(pytree.tree_unflatten(list(range(len(kinds))), spec)),
        "kinds": [encoded_kind(k) for k in kinds],
        "autocast": encode(autocast),
        "floats": list(graph.floats),
        "fixed_floats": graph.fixed_floats,
        "places": graph.places,
        "device": graph.device,
        "signature": graph.variant.signature,
        "conditions": list(graph.variant.conditions),
        "program": encode(graph.composite.program, keep),
        "results": encode(pytree.tree_unflatten(list(range(graph.out_spec.num_leaves)), graph.out_spec)),
        "values": encode(graph.out_values),
        "example_shapes": [list(shape) for shape in graph.example_shapes],
    }


def key_and_graph(data: Json, title: str, fetch: Callable[[Any], Tensor] | None) -> tuple[Any, Graph]:
    """What :func:`encoded_graph` was given: the key of the calls, as ``key_of`` makes it of ``exported_kind_of``, and the graph."""
    _, spec = pytree.tree_flatten(decode(data["arguments"]))
    kinds = [_decoded_kind(k) for k in data["kinds"]]
    tensors = [k for k in kinds if k is not float and len(k) == 3]
    on_cuda = next((i for i, k in enumerate(tensors) if k[1] == "cuda"), None)
    program = decode(data["program"], fetch, on_cuda)
    _, out_spec = pytree.tree_flatten(decode(data["results"]))
    variant = Variant(
        data["signature"], tuple(data["conditions"]), program.operators(), Composite(program, title)
    )
    graph = Graph(
        variant, data["places"], tuple(data["floats"]), data["fixed_floats"], out_spec, decode(data["values"]), data["device"],
        [tuple(shape) for shape in data["example_shapes"]],
    )  # fmt: skip
    return (spec, tuple(kinds), decode(data["autocast"])), graph


def encoded_kind(kind: Any) -> Any:
    """A kind of an argument, of ``kind_of`` or ``exported_kind_of``; of a device the type."""
    if kind is float:
        return "float"
    if len(kind) == 2:
        return {"value": encode(kind[1])}
    dtype, device, ones = kind
    return {"tensor": [encode(dtype), getattr(device, "type", device), list(ones)]}


def _decoded_kind(data: Any) -> Any:
    if data == "float":
        return float
    if "value" in data:
        value = decode(data["value"])
        return type(value), value
    dtype, device, ones = data["tensor"]
    return decode(dtype), device, tuple(ones)
