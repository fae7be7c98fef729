"""A function of a bundle: the exported graphs serve its calls, and nothing is traced or compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..registry import note_definition
from ..registry.dynamic import NAMESPACE
from .calls import exported_kind_of, is_autocasting, key_of, leaf_names, signature_text, spelled_floats
from .function import Function
from .graph import Graph

Tensor = torch.Tensor


class NotExported(RuntimeError):
    """No graph of a bundle serves a call; the message has the call, what there is, and what to do before exporting."""


class LoadedFunction(Function):
    """What :func:`avo_ops.load` returns for each function; call it as the function that was exported.

    ``archs``: the GPU architectures of its kernels, as 90 for sm_90.
    """

    def __init__(
        self, name: str, signature: inspect.Signature, graphs: Mapping[Any, Sequence[Graph]], archs: Sequence[int],
        bundle: str, fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(fn, name)
        self.__name__, self.__signature__ = name, signature
        self._graphs, self._archs, self._bundle = graphs, tuple(archs), bundle
        self._capable: dict[torch.device, bool] = {}

    def _all_graphs(self) -> Iterable[Graph]:
        return [g for graphs in self._graphs.values() for g in graphs]

    def _graph(self, leaves: Sequence[Any], spec: Any) -> Graph | None:
        key = key_of(leaves, spec, exported_kind_of)
        shapes = [a.shape for a in leaves if isinstance(a, Tensor)]
        floats = spelled_floats(leaves)
        try:
            found = self._graphs.get(key, ())
        except TypeError:  # an argument without a hash
            found = ()
        for graph in found:
            if graph.holds(floats, shapes):
                problem = self._problem(graph, leaves)
                if not problem:
                    return graph
                break
        else:
            problem = "no graph of the bundle serves such a call"
        if self.fn is None:
            raise NotExported(self._message(problem, leaves, spec))
        note_definition(f"{NAMESPACE}::{self.name}", f"{problem}: the function itself runs")
        return None

    def _problem(self, graph: Graph, leaves: Sequence[Any]) -> str:
        """Why a graph for these arguments cannot run where they are, or ""."""
        if graph.device != "cuda":
            return ""
        device = next(a.device for a in leaves if isinstance(a, Tensor) and a.is_cuda)
        if device not in self._capable:
            major, minor = torch.cuda.get_device_capability(device)
            self._capable[device] = any(a // 10 == major and a % 10 <= minor for a in self._archs)
        if self._capable[device]:
            return ""
        major, minor = torch.cuda.get_device_capability(device)
        have = ", ".join(f"sm_{a}" for a in self._archs)
        return f"{device} is sm_{major}{minor}, and the kernels are for {have}: export for it too"

    def _message(self, problem: str, leaves: Sequence[Any], spec: Any) -> str:
        names = leaf_names(self, len(leaves), spec)
        devices = sorted({a.device.type for a in leaves if isinstance(a, Tensor)})
        call = f"{signature_text(leaves, names, True)} on {' and '.join(devices) or 'no device'}"
        if is_autocasting():
            call += " under autocast"
        have = "".join(f"\n  {v.calls} on {g.device}" for g in self._all_graphs() for v in [g.variant])
        return (
            f"{self.name}({call}): {problem}. {self._bundle} has{have}\n(tensors and other arguments by position or by name as "
            f"there). Call the compiled {self.name} so, or {self.name}.prepare(...), before avo_ops.export; or give the function "
            f"itself to avo_ops.load(path, {{{self.name!r}: fn}}), which then runs where no graph does"
        )
