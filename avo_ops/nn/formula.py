"""The formula of a module: its forward as one expression of its input ``x``, read from its source.

The same norm stands in hundreds of modeling files, under as many names. Its formula is the same in all of them.
"""

from __future__ import annotations

import ast
import copy
import weakref
from typing import Any

import torch

from .source import path, source_of, target

# By class, with the forward that it had: others may exchange that of a class as well.
_formulas: weakref.WeakKeyDictionary[type, tuple[Any, str | None]] = weakref.WeakKeyDictionary()


def formula_of(cls: type[torch.nn.Module]) -> str | None:
    """What a class's forward computes; None if that is no single expression of one tensor, or cannot be read.

    Locals and the class's own methods are replaced by what they are; ``h = a`` under ``if c:`` is ``a if c else h``.
    """
    forward = getattr(cls, "forward", None)
    if cls not in _formulas or _formulas[cls][0] is not forward:
        try:
            formula = ast.unparse(_applied(cls, "forward", [ast.Name("x", ast.Load())], depth=0))
        except (ValueError, KeyError):
            formula = None
        _formulas[cls] = forward, formula
    return _formulas[cls][1]


def _applied(cls: type[torch.nn.Module], name: str, arguments: list[ast.expr], depth: int) -> ast.expr:
    """The expression that a method returns."""
    method = getattr(cls, name, None)
    if method is None:  # a module that it holds
        raise ValueError(name)
    source = source_of(method)
    if source is None or depth > 2 or source.function is not method:  # a decorator might do anything
        raise ValueError(name)
    if source.function.__globals__.get("torch", torch) is not torch:  # the one global that a formula may have
        raise ValueError("torch")
    args = source.definition.args
    parameters = [a.arg for a in args.args]
    extra = args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults
    if extra or parameters[:1] != ["self"] or len(parameters) != 1 + len(arguments):
        raise ValueError("arguments")
    values = dict(zip(parameters[1:], arguments, strict=True))
    inline = _Inline(cls, values, depth)
    for statement in source.definition.body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            return inline.of(statement.value)
        inline.run(statement)
    raise ValueError("no result")


class _Inline(ast.NodeTransformer):
    def __init__(self, cls: type[torch.nn.Module], values: dict[str, ast.expr], depth: int) -> None:
        self.cls, self.values, self.depth = cls, values, depth

    def of(self, node: ast.expr) -> ast.expr:
        found = self.visit(copy.deepcopy(node))
        assert isinstance(found, ast.expr)
        return found

    def run(self, statement: ast.stmt) -> None:
        name = target(statement)
        if name is not None:
            self.values[name] = self.of(statement.value)  # type: ignore[attr-defined]
        elif isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
            name = target(statement.body[0])
            if name is None:
                raise ValueError("if")
            value = statement.body[0].value  # type: ignore[attr-defined]
            self.values[name] = ast.IfExp(self.of(statement.test), self.of(value), self.values[name])
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):  # docstring
            raise ValueError("statement")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            raise ValueError("walrus")
        return self.values[node.id] if node.id not in ("self", "torch") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = path(node.func)
        if name is not None and name.startswith("self.") and name.count(".") == 1 and not node.keywords:
            return _applied(self.cls, name[5:], [self.of(a) for a in node.args], self.depth + 1)
        return self.generic_visit(node)
