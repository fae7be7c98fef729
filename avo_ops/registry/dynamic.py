"""Operators registered while the process runs, with everything that the catalogue's have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..definitions.record import Columns, OpDef
from . import native_library
from .explain import remember
from .native import table_text
from .plan import operator_from_json
from .register import register_operator

NAMESPACE = "avo_jit"

_library: list[torch.library.Library] = []  # a Library unregisters its ops when it is collected
_mutex = threading.Lock()
_registered: set[str] = set()


def register_dynamic(
    record: OpDef,
    operator: Mapping[str, Any],
    families: Mapping[str, Mapping[str, Any]],
    text: str | None = None,
) -> str:
    """Register the ops of one operator as ``torch.ops.avo_jit.*``; the qualified name of the public one.

    ``operator`` and ``families`` are entries of a plan, ``text`` what :func:`tables_of` made of them, if that is at hand. A name
    that is registered already is left as it is: names hold a digest of what the operator computes.
    """
    with _mutex:
        if record.name not in _registered:
            if not _library:
                _library.append(torch.library.Library(NAMESPACE, "FRAGMENT"))  # type: ignore[no-untyped-call]
            entry = operator_from_json(operator)
            register_operator(_library[0], entry, record)
            remember(NAMESPACE, entry)
            native_library.add_operator(operator, families, _library[0], text)
            _registered.add(record.name)
    return f"{NAMESPACE}::{record.name}"


def tables_of(operator: Mapping[str, Any], families: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of an operator as the runtime reads them."""
    return table_text(operator, families, NAMESPACE)


def record_of(operator: Mapping[str, Any], definition: Callable[..., Any]) -> OpDef:
    """The record of an operator whose entry of a plan was stored, and its definition."""
    public = operator["ops"][0]
    columns, index = public["columns"], public["columns"].get("arg")
    return OpDef(
        name=operator["name"],
        schema=public["schema"].removeprefix(operator["name"]),
        definition=definition,
        columns=Columns(columns["rule"], None if index is None else public["args"][index]["name"]),
        formula=operator["formula"],
        source=operator["source"],
        results=tuple(r["name"] for r in public["returns"]),
    )
