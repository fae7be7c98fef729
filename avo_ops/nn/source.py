"""The source of a function as a tree, if it is certain that it is the function's; and what such trees are asked."""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import linecache
import types
from dataclasses import dataclass

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)

# What there is no source of, or a strange one, raises.
_NOT_READ = (OSError, TypeError, SyntaxError, ValueError, IndexError, StopIteration)

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
          ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A method and the tree of its source: a module that holds a class that holds its definition."""

    function: types.FunctionType
    tree: ast.Module

    @property
    def definition(self) -> ast.FunctionDef:
        return definition(self.tree)


def definition(tree: ast.Module) -> ast.FunctionDef:
    """The method in the tree of a :class:`Source`, or in a copy of it."""
    found = tree.body[0].body[0]  # type: ignore[attr-defined]
    if not isinstance(found, ast.FunctionDef):
        raise ValueError("no method")
    return found


def source_of(method: object) -> Source | None:
    """The source of a method, without what its decorators add (each by functools.wraps).

    None if there is none, or if it does not compile to the very code that the method has: it was edited since, or
    made in another way.
    """
    function = inspect.unwrap(method) if callable(method) else None
    if not isinstance(function, types.FunctionType):
        return None
    try:
        source = Source(function, _tree(function))
        return source if compiled(source.tree, function) == function.__code__ else None
    except _NOT_READ:
        return None


def _tree(function: types.FunctionType) -> ast.Module:
    lines, first = inspect.getsourcelines(function)
    # In a class of its name, where private names and super() compile as there, and at its lines and columns.
    name = function.__qualname__.split(".")[-2]
    tree = ast.parse("".join([f"class {name}:\n", *lines]))
    if len(tree.body) > 1:
        raise ValueError("more than a method")
    ast.increment_lineno(tree, first - 2)
    # CPython compiles a call of an imported module's function in another way than that of a method.
    imports = [ast.Import([ast.alias(name)]) for name in sorted(_imported(function.__code__.co_filename))]
    tree.body += map(ast.fix_missing_locations, imports)
    return tree


@functools.lru_cache(maxsize=64)
def _imported(filename: str) -> frozenset[str]:
    """The names that a file imports outside of functions and classes."""
    names: set[str] = set()
    stack = [*ast.parse("".join(linecache.getlines(filename))).body]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names} - {"*"}
        elif not isinstance(node, SCOPES):
            stack += [
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.stmt | ast.excepthandler)
            ]
    return frozenset(names)


def compiled(tree: ast.Module, function: types.FunctionType) -> types.CodeType:
    """The code of the method in a tree, compiled as that of ``function`` was."""
    flags = function.__code__.co_flags & _FUTURE
    code = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    for name in (
        function.__qualname__.split(".")[-2],
        function.__code__.co_name,
    ):  # the class, the method in it
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    # Of a class within a function: a mark that nothing reads.
    return code.replace(co_flags=code.co_flags | (function.__code__.co_flags & inspect.CO_NESTED))


def path(node: ast.AST) -> str | None:
    """Names joined by dots: ``self.act_fn``, ``torch.nn.functional.silu``."""
    if isinstance(node, ast.Attribute):
        before = path(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def target(statement: ast.stmt) -> str | None:
    """The one name that a statement assigns to."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        to = statement.targets[0]
        return to.id if isinstance(to, ast.Name) else None
    return None
