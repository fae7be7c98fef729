"""Fused operators in the forward of a class that has none: its source with some expressions exchanged.

A *site* is a place of a forward where one operator does what its source says in several:

    act(gate) * up                              also over locals, and where gate and up are halves of one tensor
    norm(x + residual), or total = x + residual; ... norm(total) ...
    act(norm(x)), or h = norm(x); ... act(h) ... in the next statement

The new forward is a method of a subclass of the class, so that ``isinstance``, ``super()``, the class's name and
whatever wraps it (gradient checkpointing, hooks) stay as they are; what it calls (``fused``) decides at each call whether
the operator applies. Only source that is certainly the forward's is touched (``source``).
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import fused
from .source import SCOPES, Source, compiled, definition, path, source_of, target

# What the forwards made here call, as attributes of their class. (A base would change the layout of its objects, whose
# class could then not be assigned.)
_HELPERS = {
    "_avo_gated": staticmethod(fused.gated),
    "_avo_gated_packed": staticmethod(fused.gated_packed),
    "_avo_norm_act": staticmethod(fused.norm_act),
    "_avo_add_norm": staticmethod(fused.add_norm),
    "_avo_add_norm_kept": staticmethod(fused.add_norm_kept),
}


@dataclass(frozen=True)
class Site:
    """One place: what is called there, as names joined by dots, and the nodes that take the place of others (by id)."""

    kind: str  # "gate", "norm" or "act"
    callee: str
    gate_first: bool | None  # of halves of one tensor
    new: dict[int, Callable[[ast.AST], ast.AST | list[ast.stmt]]]
    inner: str | None = None  # of an act: the norm before it

    def operator(self, module: torch.nn.Module, names: dict[str, Any]) -> str | None:
        """The operator that will run here as the module is now; None if nothing is to be gained."""
        callee = _resolve(self.callee, module, names)
        if self.kind == "norm":
            return fused.norm_of(callee)
        if self.inner is not None:
            return fused.norm_act_of(_resolve(self.inner, module, names), callee)
        gate = fused.gate_of(callee)
        return gate and (gate.packed if self.gate_first == gate.gate_first else gate.pair)

    def module(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """What is called there, if it is a module."""
        found = _resolve(self.callee, module, {})
        return found if isinstance(found, torch.nn.Module) else None

    def modules(self, module: torch.nn.Module) -> list[torch.nn.Module]:
        """All modules that are called there."""
        found = [_resolve(name, module, {}) for name in (self.callee, self.inner) if name is not None]
        return [one for one in found if isinstance(one, torch.nn.Module)]


def _resolve(dotted: str, module: torch.nn.Module, names: dict[str, Any]) -> Any:
    first, *rest = dotted.split(".")
    try:
        return functools.reduce(getattr, rest, module if first == "self" else names[first])
    except (AttributeError, KeyError):
        return None


@dataclass(frozen=True)
class Sites:
    """The forward of a class and its sites."""

    source: Source
    sites: tuple[Site, ...]


# By class, with the forward that it had: others may exchange that of a class as well.
_found: weakref.WeakKeyDictionary[type, tuple[Any, Sites | None]] = weakref.WeakKeyDictionary()


def sites_of(cls: type[torch.nn.Module]) -> Sites | None:
    """The sites of the forward that a class has or inherits; None if it has none, or cannot be read for certain."""
    forward = getattr(cls, "forward", None)
    if cls not in _found or _found[cls][0] is not forward:
        source = source_of(forward)
        sites = tuple(_sites(source.definition)) if source is not None else ()
        _found[cls] = forward, Sites(source, sites) if source is not None and sites else None
    return _found[cls][1]


# ---- sites ------------------------------------------------------------------------------------------------------


def _sites(method: ast.FunctionDef) -> Iterator[Site]:
    if [a.arg for a in method.args.args[:1]] != ["self"]:
        return
    if any(isinstance(n, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for n in ast.walk(method)):
        return  # what the analysis below does not follow
    names = {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    local = (names | {n.arg for n in ast.walk(method) if isinstance(n, ast.arg)}) - {"self"}
    for block in _blocks(method):
        for place in range(len(block)):
            for site in (*_sums(block, place), *_gates(method, block, place), *_acts(method, block, place)):
                if not {name.split(".")[0] for name in (site.callee, site.inner or "self")} & local:
                    yield site


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements that run one after the other; not those of functions within, or under ``try``."""
    for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
        if isinstance(block, list) and block:
            yield block
            for statement in block:
                if not isinstance(statement, (*SCOPES, ast.Try, ast.TryStar)):
                    yield from _blocks(statement)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a simple statement, those alone that run once and in order each time it runs."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr):
        return
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, SCOPES):
            stack.extend(ast.iter_child_nodes(node))


def _call_of_one(node: ast.AST | None) -> tuple[str, ast.Call] | None:
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        callee = path(node.func)
        if callee is not None and not isinstance(node.args[0], ast.Starred):
            return callee, node
    return None


def _mentions(nodes: ast.AST | list[ast.stmt], name: str) -> list[ast.Name]:
    each = nodes if isinstance(nodes, list) else [nodes]
    return [n for node in each for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]


def _is_dead_after(method: ast.FunctionDef, block: list[ast.stmt], start: int, end: int, name: str) -> bool:
    """Whether what a name holds from statement ``start`` on is read in ``start``..``end`` alone."""
    if any(_mentions(n, name) for n in ast.walk(method) if isinstance(n, SCOPES) and n is not method):
        return False
    if target(block[end]) == name:
        return True
    if block is not method.body:
        inside = sum(len(_mentions(s, name)) for s in block[start : end + 1])
        return len(_mentions(method, name)) == inside
    for statement in block[end + 1 :]:
        if target(statement) == name and not _mentions(statement.value, name):  # type: ignore[attr-defined]
            return True
        if _mentions(statement, name):
            return False
    return True


def _helper(name: str, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
    return ast.Call(function, list(args), [ast.keyword(k, v) for k, v in kwargs.items()])


def _is_plain(node: ast.expr) -> bool:
    return not any(isinstance(n, ast.Call) for n in ast.walk(node))


def _gates(method: ast.FunctionDef, block: list[ast.stmt], place: int) -> Iterator[Site]:
    """act(gate) * up in a statement, where up is any expression, and act(gate) may be a local that is only used here."""
    for product in _own(block[place]):
        if not (isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)):
            continue
        for act_left, (side, other) in (
            (True, (product.left, product.right)),
            (False, (product.right, product.left)),
        ):
            site = _gate(method, block, place, product, side, other, act_left)
            if site is not None:
                yield site
                break


def _gate(
    method: ast.FunctionDef, block: list[ast.stmt], place: int, product: ast.BinOp, side: ast.expr, other: ast.expr,
    act_left: bool,
) -> Site | None:  # fmt: skip
    if isinstance(side, ast.Name):
        return _gate_of_local(method, block, place, product, side, act_left)
    found = _call_of_one(side)
    if found is None:
        return None
    callee, call = found
    if act_left and isinstance(call.args[0], ast.Name) and not _is_plain(other):
        return None  # up might change what act has seen
    halves = _halves(method, block, place, call.args[0], other)
    if halves is not None:
        whole, gate_first, before = halves

        def packed(node: ast.AST) -> ast.AST:
            func = node.left.func if act_left else node.right.func  # type: ignore[attr-defined]
            return _helper("_avo_gated_packed", func, whole(), ast.Constant(gate_first))

        return Site("gate", callee, gate_first, {id(product): packed, **before})

    def pair(node: ast.AST) -> ast.AST:
        act, up = (node.left, node.right) if act_left else (node.right, node.left)  # type: ignore[attr-defined]
        # Keywords, which are computed in the order that they are written in.
        parts = {"act": act.func, "gate": act.args[0]}
        return _helper("_avo_gated", **({**parts, "up": up} if act_left else {"up": up, **parts}))

    return Site("gate", callee, None, {id(product): pair})


def _gate_of_local(
    method: ast.FunctionDef,
    block: list[ast.stmt],
    place: int,
    product: ast.BinOp,
    side: ast.Name,
    act_left: bool,
) -> Site | None:
    """h = act(gate); ...; h * up."""
    start = next((i for i in range(place - 1, -1, -1) if _mentions(block[i], side.id)), None)
    if start is None or target(block[start]) != side.id or len(_loads(block[place], side.id)) != 1:
        return None
    found = _call_of_one(block[start].value)  # type: ignore[attr-defined]
    if found is None or not _is_dead_after(method, block, start, place, side.id):
        return None
    callee, call = found
    between = block[start + 1 : place]
    simple = all(isinstance(s, ast.Assign | ast.AnnAssign) for s in between)
    if not simple or ((between or not _is_plain(product)) and _is_plain(call.args[0])):
        return None  # something might change the gate, or leave, before it is used

    def pair(node: ast.AST) -> ast.AST:
        gate, up = (node.left, node.right) if act_left else (node.right, node.left)  # type: ignore[attr-defined]
        return _helper("_avo_gated", copy.deepcopy(call.func), gate, up)

    return Site("gate", callee, None, {id(call): lambda node: node.args[0], id(product): pair})  # type: ignore[attr-defined]


def _loads(node: ast.AST, name: str) -> list[ast.Name]:
    return [n for n in _mentions(node, name) if isinstance(n.ctx, ast.Load)]


def _halves(
    method: ast.FunctionDef, block: list[ast.stmt], place: int, gate: ast.expr, up: ast.expr
) -> tuple[Callable[[], ast.expr], bool, dict[int, Callable[[ast.AST], ast.AST]]] | None:
    """a, b = x.chunk(2, dim=-1) in the statement before, and a, b used here alone.

    Returns the whole, whether the gate is its first half, and what takes the place of the statement.
    """
    if place == 0 or not (isinstance(gate, ast.Name) and isinstance(up, ast.Name)) or gate.id == up.id:
        return None
    chunk = block[place - 1]
    if not (
        isinstance(chunk, ast.Assign) and len(chunk.targets) == 1 and isinstance(chunk.targets[0], ast.Tuple)
    ):
        return None
    names = [t.id if isinstance(t, ast.Name) else None for t in chunk.targets[0].elts]
    if sorted(map(str, names)) != sorted((gate.id, up.id)):
        return None
    for name in (gate.id, up.id):
        if len(_loads(block[place], name)) != 1 or not _is_dead_after(method, block, place - 1, place, name):
            return None
    if _chunked(chunk.value) is None:
        return None
    local = f"_avo_whole_{chunk.lineno}"
    before = {id(chunk): lambda node: ast.Assign([ast.Name(local, ast.Store())], _chunked(node.value))}  # type: ignore[attr-defined]
    return lambda: ast.Name(local, ast.Load()), names[0] == gate.id, before


def _chunked(node: ast.expr) -> ast.expr | None:
    """x of x.chunk(2, dim=-1) and torch.chunk(x, 2, dim=-1)."""
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "chunk"
    ):
        return None
    args = node.args if path(node.func.value) == "torch" else [node.func.value, *node.args]
    values = [ast.unparse(a) for a in (*args[1:], *(k.value for k in node.keywords))]
    names = [k.arg for k in node.keywords]
    fits = values == ["2", "-1"] and names in ([], ["dim"], ["chunks", "dim"])
    return args[0] if fits else None


def _sums(block: list[ast.stmt], place: int) -> Iterator[Site]:
    """norm(x + residual) in a statement; or total = x + residual; other = total (any number); ... norm(total) ..."""
    for node in _own(block[place]):
        found = _call_of_one(node)
        if found is not None and _is_sum(found[1].args[0]) and found[0].startswith("self."):

            def alone(node: ast.AST) -> ast.AST:
                return ast.Subscript(_added("", node.func, node.args[0]), ast.Constant(0), ast.Load())  # type: ignore[attr-defined]

            yield Site("norm", found[0], None, {id(node): alone})
    total = target(block[place])
    if total is None or not _is_sum(block[place].value):  # type: ignore[attr-defined]
        return
    names = {total}
    for after in block[place + 1 :]:
        value = (
            getattr(after, "value", None)
            if isinstance(after, ast.Assign | ast.AnnAssign | ast.Return)
            else None
        )
        if value is None:
            return
        name = target(after)
        if isinstance(value, ast.Name) and name is not None:
            names = names | {name} if value.id in names else names - {name}
            continue
        # The norm is computed where the sum is, so nothing else may be called between them.
        found = _call_of_one(next(_calls(value), None))
        if found is not None and found[0].startswith("self."):
            callee, call = found
            if isinstance(call.args[0], ast.Name) and call.args[0].id in names:
                yield _named_sum(block[place], call, callee)
        return


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    """The calls of an expression in the order in which they are made, up to one that might not be."""
    if isinstance(node, (ast.IfExp, ast.BoolOp, ast.Compare, *SCOPES)):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
    if isinstance(node, ast.Call):
        yield node


def _named_sum(add: ast.stmt, call: ast.Call, callee: str) -> Site:
    local = f"_avo_normed_{add.lineno}"

    def first(node: ast.AST) -> ast.AST:
        both = ast.Tuple([ast.Name(local, ast.Store()), *node.targets], ast.Store())  # type: ignore[attr-defined]
        return ast.Assign([both], _added("_kept", copy.deepcopy(call.func), node.value))  # type: ignore[attr-defined]

    def second(node: ast.AST) -> ast.AST:
        return ast.Call(ast.Attribute(ast.Name(local, ast.Load()), "pop", ast.Load()), [], [])

    return Site("norm", callee, None, {id(add): first, id(call): second})


def _is_sum(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)


def _added(kind: str, norm: ast.expr, total: ast.BinOp) -> ast.Call:
    return _helper(f"_avo_add_norm{kind}", norm, total.left, total.right)


def _acts(method: ast.FunctionDef, block: list[ast.stmt], place: int) -> Iterator[Site]:
    """act(norm(x)) in a statement; or h = norm(x), and act(h) is the first call of the next one, which alone reads h."""
    gates = _factors(block[place])
    for node in _own(block[place]):
        outer = _call_of_one(node)
        inner = _call_of_one(outer[1].args[0]) if outer is not None and id(node) not in gates else None
        if outer is None or inner is None or not inner[0].startswith("self."):
            continue

        def alone(node: ast.AST) -> ast.AST:
            act: Any = node
            return _helper("_avo_norm_act", act.args[0].func, act.func, act.args[0].args[0])

        yield Site("act", outer[0], None, {id(node): alone}, inner[0])
    name = target(block[place])
    if name is None or place + 1 == len(block):
        return
    inner, after = _call_of_one(block[place].value), block[place + 1]  # type: ignore[attr-defined]
    value = (
        getattr(after, "value", None) if isinstance(after, ast.Assign | ast.AnnAssign | ast.Return) else None
    )
    if inner is None or value is None or not inner[0].startswith("self."):
        return
    outer = _call_of_one(next(_calls(value), None))
    if outer is None or not isinstance(outer[1].args[0], ast.Name) or outer[1].args[0].id != name:
        return
    if id(outer[1]) in _factors(after) or len(_loads(after, name)) != 1:
        return
    if not _is_dead_after(method, block, place, place + 1, name):
        return
    norm = inner[1].func

    def second(node: ast.AST) -> ast.AST:
        act: Any = node
        return _helper("_avo_norm_act", copy.deepcopy(norm), act.func, act.args[0])

    first: Callable[[ast.AST], ast.AST] = lambda node: node.args[0]  # type: ignore[attr-defined]  # noqa: E731
    yield Site("act", outer[0], None, {id(inner[1]): first, id(outer[1]): second}, inner[0])


def _factors(statement: ast.stmt) -> set[int]:
    """The sides of products, by id: what may be a gate."""
    products = [n for n in _own(statement) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return {id(side) for product in products for side in (product.left, product.right)}


# ---- writing ----------------------------------------------------------------------------------------------------

_Places = tuple[int, ...]
_Made = dict[tuple[Any, _Places], type[torch.nn.Module] | None]  # by forward and places
_rewritten: weakref.WeakKeyDictionary[type, _Made] = weakref.WeakKeyDictionary()


def rewritten(cls: type[torch.nn.Module], places: _Places) -> type[torch.nn.Module] | None:
    """The subclass of ``cls`` whose forward has operators at these of its sites.

    None if it would not be what the class is but for that: a metaclass, a decorator of the forward that cannot be put on
    again, an ``__init_subclass__`` that changes more than the forward.
    """
    made = _rewritten.setdefault(cls, {})
    key = cls.forward, places
    if key not in made:
        made.setdefault(key, _make(cls, places))  # of two threads one is first
    return made[key]


def _make(cls: type[torch.nn.Module], places: _Places) -> type[torch.nn.Module] | None:
    found = sites_of(cls)
    if found is None or type(cls) is not type or not _can_wrap_again(cls.forward):
        return None
    # Sites name nodes by id, so they are found again in the copy.
    source, tree = found.source, copy.deepcopy(found.source.tree)
    sites = tuple(_sites(definition(tree)))
    new: dict[int, Callable[[ast.AST], Any]] = {}
    for place in places:
        new.update(sites[place].new)
    tree = ast.fix_missing_locations(_Exchange(new).visit(tree))
    forward = _wrapped_again(cls.forward, source.function, compiled(tree, source.function))
    made = type(cls.__name__, (cls,), {**_HELPERS, "__module__": __name__, "__doc__": cls.__doc__})
    for name in vars(made).keys() - _HELPERS.keys() - {"__module__", "__doc__", "forward"}:
        if vars(made)[name] is not getattr(cls, name, None):
            return None
    # After that: transformers' __init_subclass__ wraps the forward of a subclass (gradient checkpointing) once more.
    made.forward = forward  # type: ignore[method-assign]
    # pickle finds the class by this name, below: what it was made of.
    made.__qualname__ = (
        f"{cls.__module__}:{cls.__qualname__}".replace(".", "/") + ":" + ",".join(map(str, places))
    )
    return made


class _Exchange(ast.NodeTransformer):
    def __init__(self, new: dict[int, Callable[[ast.AST], Any]]) -> None:
        self.new = new

    def visit(self, node: ast.AST) -> Any:
        make = self.new.get(id(node))
        self.generic_visit(node)
        return node if make is None else ast.copy_location(make(node), node)


def _wrapped_again(outer: Any, inner: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """``inner`` with other code, within the decorators that ``outer`` has around it (each by functools.wraps)."""
    if outer is inner:
        made = types.FunctionType(
            code, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__
        )
        made.__kwdefaults__ = inner.__kwdefaults__
        made.__qualname__ = inner.__qualname__
        made.__annotations__ = inner.__annotations__
        made.__doc__ = inner.__doc__
        return made
    wrapped = _wrapped_again(outer.__wrapped__, inner, code)
    itself = types.CellType()
    cells = tuple(
        types.CellType(wrapped) if _holds(c, outer.__wrapped__) else itself if _holds(c, outer) else c
        for c in outer.__closure__
    )
    made = types.FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, cells)
    itself.cell_contents = made
    made.__kwdefaults__ = outer.__kwdefaults__
    functools.update_wrapper(made, outer)
    made.__wrapped__ = wrapped
    return made


def _holds(cell: types.CellType, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # empty
        return False


def _can_wrap_again(function: Any) -> bool:
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        if (
            not isinstance(function, types.FunctionType)
            or [_holds(c, inner) for c in function.__closure__ or ()].count(True) != 1
        ):
            return False
        function = inner
    return isinstance(function, types.FunctionType)


def is_rewritten(cls: type) -> bool:
    """Whether a class was made here."""
    return cls.__module__ == __name__


def __getattr__(name: str) -> type[torch.nn.Module]:
    """Classes made here, for pickle: the name says what a class was made of."""
    try:
        module, qualname, places = name.replace("/", ".").split(":")
        cls = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
        made = rewritten(cls, tuple(map(int, places.split(","))))  # type: ignore[arg-type]
    except (ValueError, ImportError, AttributeError, IndexError):
        made = None
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return made
