"""Replacement of a model's modules by their avo_ops twins, in place, with a report, and its undoing.

A module is not exchanged for another object: its class is. So parameters, buffers, hooks, the training flag,
references held elsewhere (a list, an optimizer, a closure), the root itself and modules used in several
places all stay what they were. torch does the same in ``nn.utils.parametrize`` and the lazy modules.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F
from torch.nn.utils import parametrize

from .foreign import ACTIVATION_RULES, TORCH_RULES, BareRMSNorm, Rule, rule_of_formula
from .functional import FUNCTIONS
from .modules import (
    GLU,
    LOSSES,
    OWN,
    TWINS,
    Dropout,
    GroupNorm,
    LayerNorm,
    LogSoftmax,
    QuickGELU,
    RMSNorm,
    Softmax,
    Softmax2d,
    SquaredReLU,
)
from .rewrite import is_rewritten, rewritten, sites_of

Selection = str | type[torch.nn.Module] | Iterable[str | type[torch.nn.Module]]

_OURS = (*TWINS, *OWN, BareRMSNorm)
_NORMS = (LayerNorm, RMSNorm)
_NO_ACTIVATIONS = {*_NORMS, *LOSSES, GroupNorm, Softmax, Softmax2d, LogSoftmax, GLU, Dropout}
_ACTIVATIONS = (*set(TWINS) - _NO_ACTIVATIONS, QuickGELU, SquaredReLU)
_RECORD = "_avo_replaced"  # attribute of a changed module: what restore() needs

_RELATED_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    F.softmax,
    F.log_softmax,
    F.layer_norm,
    F.rms_norm,
    torch.softmax,
    torch.log_softmax,
)

# What a subclass may define and still be only a constructor around its base.
_HARMLESS = {
    "__init__",
    "__module__",
    "__qualname__",
    "__doc__",
    "__annotations__",
    "__annotate__",
    "__firstlineno__",
    "__static_attributes__",
    "__parameters__",
    "__orig_bases__",
}
_RELATED_NAME = re.compile(r"norm|gelu|silu|swish|softmax|activation", re.IGNORECASE)


class Replaced(NamedTuple):
    """One place in the model that now runs an avo_ops operator."""

    name: str
    old: str
    new: str


class Left(NamedTuple):
    """One place that could have concerned us and was left alone."""

    name: str
    cls: str
    reason: str


@dataclass
class Report:
    """What :func:`replace` did. Its length is the number of places replaced; it is true if there are any.

    A module used in several places has one entry for each of them.
    """

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.replaced)

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)}, left {len(self.left)}"]
        lines += _table([(r.name, f"{r.old} -> {r.new}") for r in self.replaced], "replaced")
        lines += _table([(x.name, f"{x.cls}: {x.reason}") for x in self.left], "left")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _table(rows: list[tuple[str, str]], title: str) -> list[str]:
    """A line for each pattern of names, or for a name that is alone in its pattern."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, what in rows:
        groups.setdefault((_pattern(name), what), []).append(name)
    lines = [(len(n), n[0] if len(n) == 1 else pattern, what) for (pattern, what), n in groups.items()]
    width = max((len(name) for _, name, _ in lines), default=0)
    return [f"  {title:8} {n:4} x  {name:{width}}  {what}" for n, name, what in lines]


def replace(
    model: torch.nn.Module,
    *,
    only: Selection | None = None,
    exclude: Selection = (),
    functions: bool = True,
    forwards: bool = True,
    dropout: bool = False,
) -> Report:
    """Gives the supported modules of ``model`` (itself included) their avo_ops class, in place.

    - Norms, activations, softmax, losses: those of ``torch.nn`` that :mod:`avo_ops.nn` has a twin of, subclasses of them
      that define nothing but a constructor, the activations of transformers, and RMS and layer norms written
      out in a forward (Llama's, T5's, Gemma's, Cohere's), known by their formula whatever their class is called.
    - Blocks whose forward says ``act(gate) * up``, ``norm(x + residual)`` or ``act(norm(x))`` (and the same over local
      variables): gated MLPs become ``swiglu``, ``geglu``, ``reglu`` or ``sigmoid_gate``, of two tensors or of the halves of
      one, additions before a norm ``add_rms_norm`` and ``add_layer_norm``, and a SiLU after a group norm
      ``group_norm_silu``. The class that they get is a subclass of theirs with another forward, made of the source of their own.

    They stay the same objects: parameters, buffers, hooks, dtype, device and sharing are untouched.
    :func:`restore` undoes it; a second call finds nothing more to do. Hooks on an activation or a norm, or
    another one in its place, count at any time: the block then runs as it was written.

    Args:
        model: the model. It may be on any device and in any dtype.
        only: replace these alone. Classes, or names as in ``model.named_modules()``; a name stands for all
            below it too, and may hold ``*``; a block, for the activations and norms that it is fused with.
            Anything else is neither changed nor reported.
        exclude: leave these alone, given in the same way; they are reported as left.
        functions: also exchange attributes that are exactly a function of ``torch.nn.functional`` with a twin
            (``self.act = F.gelu``).
        forwards: also fuse in the forwards of blocks.
        dropout: also replace ``torch.nn.Dropout``. In training other values fall then than by torch's own from the
            same seed, and no mask is kept.

    Returns:
        a :class:`Report`: what was replaced, what was left and why. Only norms, activations, softmax, losses,
        dropout if it was asked for, and blocks that could be fused appear.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: a name in ``only`` or ``exclude`` matches no module, which is likely a typing error.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    places = [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if "parametrizations" not in name.split(".")  # what computes a weight is no part of the forward
    ]
    wanted = _Selector("only", only, places) if only is not None else None
    unwanted = _Selector("exclude", exclude, places)
    old_classes = {id(module): type(module) for _, module in places}
    # A module named twice is excluded as a whole if one of its names is: it is one object.
    excluded = {id(m) for name, m in places if unwanted.matches(name, type(m))}
    chosen = {id(m) for name, m in places if wanted is None or wanted.matches(name, type(m))}
    if forwards:
        chosen = _with_their_parts(places, chosen)

    report = Report()
    outcomes: dict[int, str | None] = {}
    for name, module in places:
        if id(module) not in chosen or (isinstance(module, _OURS) and id(module) not in outcomes):
            continue
        if not dropout and isinstance(module, torch.nn.Dropout):
            continue
        _visit(report, name, module, old_classes[id(module)], id(module) in excluded, outcomes)
    for name, module in places:
        if id(module) not in chosen:
            continue
        if functions:
            _visit_functions(report, name, module, id(module) in excluded)
        if forwards:
            _visit_forward(report, name, module, old_classes[id(module)], id(module) in excluded, outcomes)
    _note_fast_paths(report, places)
    return report


def restore(model: torch.nn.Module) -> int:
    """Undoes :func:`replace` on ``model`` and all below it; returns how many modules were changed back.

    It also works on a copy or a pickle of a changed model. Modules that were made as avo_ops modules stay.
    """
    count = 0
    for module in model.modules():
        record = module.__dict__.pop(_RECORD, None)
        if record is None:
            continue
        count += 1
        for name in record["added"]:
            _remove(module, name)
        for name, value in record["functions"].items():
            setattr(module, name, value)
        if record["cls"] is not None:
            module.__class__ = record["cls"]
    return count


class _Selector:
    """Matches modules by qualified name, with all below it, or by class."""

    def __init__(self, argument: str, given: Selection, places: list[tuple[str, torch.nn.Module]]) -> None:
        items = [given] if isinstance(given, str | type) else list(given)
        self.classes = tuple(item for item in items if isinstance(item, type))
        patterns = [item for item in items if isinstance(item, str)]
        if len(self.classes) + len(patterns) != len(items):
            raise TypeError(f"{argument} must hold names and module classes, got {items!r}")
        self.patterns = [
            (p, re.compile(fnmatch.translate(p)), re.compile(fnmatch.translate(p + ".*"))) for p in patterns
        ]
        for pattern, exact, below in self.patterns:
            if not any(exact.match(name) or below.match(name) for name, _ in places):
                raise ValueError(f"{argument}: {pattern!r} matches no module of the model")

    def matches(self, name: str, cls: type) -> bool:
        by_name = any(exact.match(name) or below.match(name) for _, exact, below in self.patterns)
        return by_name or issubclass(cls, self.classes)


def _visit(
    report: Report,
    name: str,
    module: torch.nn.Module,
    old: type[torch.nn.Module],
    excluded: bool,
    outcomes: dict[int, str | None],
) -> None:
    """Replaces one module, or reports why not; at its second place only reports what the first did."""
    rule = _rule_for(old)
    if not isinstance(rule, Rule) and not _is_related(module):
        return
    if id(module) not in outcomes:
        outcomes[id(module)] = "excluded by the caller" if excluded else _change_class(module, rule)
    reason = outcomes[id(module)]
    where = name or "(the model itself)"
    if reason is None:
        report.replaced.append(Replaced(where, _class_name(old), _class_name(type(module))))
    else:
        report.left.append(Left(where, _class_name(old), reason))


def _change_class(module: torch.nn.Module, rule: Rule | str) -> str | None:
    """Changes the module's class by the rule; returns the reason if it must not be done."""
    if parametrize.is_parametrized(module):
        return "is parametrized: replace first, then register the parametrization"
    if isinstance(module, torch.jit.ScriptModule):
        return "is a TorchScript module"
    if isinstance(rule, str):
        return rule
    if "forward" in module.__dict__:
        return "has a forward of its own, set on the object"
    settings = rule.settings(module)
    if isinstance(settings, str):
        return settings
    for name, value in settings.items():
        if hasattr(module, name) and getattr(module, name) != value:
            return f"its {name} is {getattr(module, name)!r}, not {value!r} as expected of its class"
    added = [name for name in settings if not hasattr(module, name)]
    for name in added:
        setattr(module, name, settings[name])
    record = _record(module)
    record["cls"], record["added"] = type(module), added
    module.__class__ = rule.new
    return None


def _rule_for(cls: type[torch.nn.Module]) -> Rule | str:
    """The rule for a class, or why there is none."""
    qualified = f"{cls.__module__}.{cls.__qualname__}"
    if qualified in ACTIVATION_RULES:
        return ACTIVATION_RULES[qualified]
    if cls in TORCH_RULES:
        return TORCH_RULES[cls]
    for base, rule in TORCH_RULES.items():
        if issubclass(cls, base):
            between = cls.__mro__[: cls.__mro__.index(base)]
            defined = sorted({key for c in between for key in vars(c)} - _HARMLESS)
            if not defined:
                return rule
            if any(c.__name__ == "FSDPModule" for c in between):
                return "is sharded already: replace before fully_shard"
            if "forward" in defined:
                return f"a subclass of {base.__name__} with a forward of its own"
            return f"a subclass of {base.__name__} that defines {', '.join(defined[:3])}"
    return rule_of_formula(cls) or "no avo_ops operator is known to compute the same"


def _is_related(module: torch.nn.Module) -> bool:
    """Whether a reader of the report would ask about this module: a norm, an activation, a softmax."""
    cls = type(module)
    if isinstance(module, tuple(TORCH_RULES)):
        return True
    if isinstance(module, torch.nn.MultiheadAttention) or next(module.children(), None) is not None:
        return False
    if cls.__module__ == "torch.nn.modules.activation":
        return True
    name = getattr(module, "original_name", cls.__name__)  # of what a ScriptModule was made from
    return _RELATED_NAME.search(str(name)) is not None


def _visit_functions(report: Report, name: str, module: torch.nn.Module, excluded: bool) -> None:
    """Exchanges functions held as attributes (``self.act = F.gelu``), except in modules taken as a whole."""
    if isinstance(_rule_for(_original_class(module)), Rule):
        return
    for attribute, value in list(vars(module).items()):
        where = f"{name}.{attribute}" if name else attribute
        function = value.func if isinstance(value, functools.partial) else value
        if not callable(function) or isinstance(function, torch.nn.Module):
            continue
        new = next((new for old, new in FUNCTIONS.items() if old is function), None)
        if new is None and not any(function is f for f in _RELATED_FUNCTIONS):
            continue
        if isinstance(value, functools.partial):
            report.left.append(
                Left(where, f"partial({_class_name(function)})", "a function with bound arguments")
            )
        elif new is None or excluded:
            reason = "excluded by the caller" if excluded else "only functions of one tensor are exchanged"
            report.left.append(Left(where, _class_name(value), reason))
        else:
            _record(module)["functions"][attribute] = value
            setattr(module, attribute, new)
            report.replaced.append(Replaced(where, _class_name(value), _class_name(new)))


def _note_fast_paths(report: Report, places: list[tuple[str, torch.nn.Module]]) -> None:
    layers = [name for name, module in places if isinstance(module, torch.nn.TransformerEncoderLayer)]
    touched = [r.name for r in report.replaced]
    names = sorted({_pattern(n) for n in layers if any(t.startswith(n and f"{n}.") for t in touched)})
    if names:
        report.notes.append(
            f"{', '.join(names) or '(the model itself)'}: in eval mode without gradients torch's fused"
            " TransformerEncoderLayer runs, which calls neither its norms nor its activation"
            " (torch.backends.mha.set_fastpath_enabled(False) makes it call them)"
        )


def _visit_forward(
    report: Report,
    name: str,
    module: torch.nn.Module,
    old: type[torch.nn.Module],
    excluded: bool,
    outcomes: dict[int, str | None],
) -> None:
    """Gives a module a forward with fused operators, where the source of its own has a place for them."""
    if id(module) in outcomes or isinstance(module, (*_OURS, torch.jit.ScriptModule)):
        return  # it is one operator itself, or has been found to be none
    where, known = name or "(the model itself)", sites_of(old)
    if is_rewritten(type(module)):
        if old is not type(module):  # its second place
            new_name = _fused_name(old, _record(module)["operators"])
            report.replaced.append(Replaced(where, _class_name(old), new_name))
        return
    if known is None:
        return
    found = {
        i: site.operator(module, known.source.function.__globals__) for i, site in enumerate(known.sites)
    }
    for i, operator in found.items():
        callee = known.sites[i].module(module)
        if known.sites[i].kind == "act":
            continue  # most activations after a norm are none of ours
        if operator is None and isinstance(callee, _NORMS if known.sites[i].kind == "norm" else _ACTIVATIONS):
            part = known.sites[i].callee.removeprefix("self.")
            reason = f"no fused operator for its {part}, {_class_name(type(callee))}"
            report.left.append(Left(where, _class_name(old), reason))
    operators = {i: operator for i, operator in found.items() if operator is not None}
    if not operators:
        return
    outcome = "excluded by the caller" if excluded else _exchange_forward(module, operators)
    if outcome is None:
        new_name = _fused_name(old, _record(module)["operators"])
        report.replaced.append(Replaced(where, _class_name(old), new_name))
    else:
        report.left.append(Left(where, _class_name(old), outcome))


def _exchange_forward(module: torch.nn.Module, operators: dict[int, str]) -> str | None:
    """Puts operators in the places of the module's forward; returns the reason if it must not be done."""
    old = type(module)
    if "forward" in module.__dict__:
        return "has a forward of its own, set on the object"
    if parametrize.is_parametrized(module):
        return "is parametrized: replace first, then register the parametrization"
    if any(c.__name__ == "FSDPModule" for c in old.__mro__):
        return "is sharded already: replace before fully_shard"
    new = rewritten(old, tuple(operators))
    if new is None:
        return "its forward cannot be exchanged alone (a metaclass, a decorator)"
    record = _record(module)
    record["cls"], record["operators"] = old, sorted(set(operators.values()))
    module.__class__ = new
    return None


def _with_their_parts(places: list[tuple[str, torch.nn.Module]], chosen: set[int]) -> set[int]:
    """The chosen modules, and the activations and norms that their forwards could take into an operator."""
    found = set(chosen)
    for _, module in places:
        known = sites_of(type(module)) if id(module) in chosen else None
        for site in known.sites if known is not None else ():
            parts = [p for p in site.modules(module) if isinstance(_rule_for(type(p)), Rule)]
            if site.inner is not None and not any(isinstance(p, torch.nn.GroupNorm) for p in parts):
                continue
            found |= {id(part) for part in parts}
    return found


def _fused_name(cls: type[torch.nn.Module], operators: list[str]) -> str:
    return f"{cls.__name__} with {', '.join(operators)}"


def _record(module: torch.nn.Module) -> dict[str, Any]:
    record: dict[str, Any] = module.__dict__.setdefault(_RECORD, {"cls": None, "added": [], "functions": {}})
    return record


def _original_class(module: torch.nn.Module) -> type[torch.nn.Module]:
    record = module.__dict__.get(_RECORD)
    cls: type[torch.nn.Module] | None = record["cls"] if record else None
    return cls or type(module)


def _remove(module: torch.nn.Module, name: str) -> None:
    if hasattr(module, name):
        delattr(module, name)


def _class_name(thing: Any) -> str:
    for holder in (F, torch):  # torch's functions do not know where they are found
        place = next((name for name, value in vars(holder).items() if value is thing), None)
        if place is not None and not isinstance(thing, type):
            return f"{holder.__name__}.{place}"
    module, name = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", str(thing))
    module = re.sub(r"^torch\.nn\.modules\.\w+$", "torch.nn", module)
    module = re.sub(r"^avo_ops\.nn\.modules$", "avo_ops.nn", module)
    return f"{module}.{name}" if module else str(name)
