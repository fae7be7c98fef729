"""Registration of an operator with torch: schemas, fake kernels, autograd, vmap and the definitions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..definitions.composites import Composite
from ..definitions.record import OpDef
from . import accelerator, autograd
from .counters import noted
from .layout import fake
from .plan import Op, Operator
from .reference import Definition, derived, stated, without_gradients
from .sharding import register_sharding

# Makes torch.compile take the op as it is instead of warning about unknown ops.
_TAGS = (torch.Tag.pt2_compliant_tag,)

# The keys of vmap, and of torch.autograd.grad(is_grads_batched=True).
_BATCHED = ("FuncTorchBatched", "Batched")

DIFFERENTIATED = "this gradient is differentiated in its turn"
BY_DEFINITION = "a gradient is wanted, which torch derives from the definition"


def register_operator(library: torch.library.Library, operator: Operator, record: OpDef) -> None:
    """Define the ops of one operator and their ``.definition`` overloads, with Python's kernels.

    The kernels for CPU and CUDA come from the runtime library; without it, and on other devices, the
    definition runs.
    """
    definitions = {op.name: derived(op) for op in operator.ops}
    definitions[operator.public.name] = stated(operator.public, record.compute)
    if operator.constant:
        definitions = {name: without_gradients(definition) for name, definition in definitions.items()}
    for op in operator.ops:
        _define(library, op, definitions[op.name])
    overloads = {op.name: _overload(library, op) for op in operator.ops}
    kernels = {}
    for op in operator.ops:
        definition, overload = definitions[op.name], overloads[op.name]
        name = f"{library.ns}::{op.name}"
        in_transform = noted(name, definition, "a torch.func transform or forward-mode AD is at work")
        if operator.constant:
            apply = autograd.never(overload)
        elif op is not operator.public:
            differentiated = noted(name, definition, DIFFERENTIATED)
            make = functools.partial(autograd.by_definition, op, overload, differentiated)
            apply = autograd.when_called(make)
        elif operator.backward is not None:
            make = functools.partial(
                autograd.by_backward_op,
                operator,
                overloads[operator.forward.name],
                overloads[operator.backward.name],
                noted(name, definition, DIFFERENTIATED),
            )
            apply = autograd.when_called(make)
        elif record.differentiation == "definition":
            apply = noted(name, definition, BY_DEFINITION)
        else:
            apply = definition
        kernels[op.name] = autograd.kernel(op, overload, in_transform, apply)
    if not accelerator.register_autograd(library, operator, kernels):
        for name, kernel in kernels.items():
            library.impl(name, kernel, "Autograd")  # type: ignore[no-untyped-call]
    register_sharding(operator, list(overloads.values()))


def register_composite(library: torch.library.Library, composite: Composite) -> None:
    """Define an operator that calls others: torch differentiates, batches and compiles through it."""
    library.define(f"{composite.name}{composite.schema}", tags=_TAGS)  # type: ignore[no-untyped-call]
    library.impl(composite.name, composite.function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    # Else vmap would call it for one sample after the other, and each would draw its seeds whatever ``randomness`` says.
    for key in _BATCHED:
        library.impl(composite.name, composite.function, key)  # type: ignore[no-untyped-call]


def _define(library: torch.library.Library, op: Op, definition: Definition) -> None:
    library.define(op.schema, tags=_TAGS)  # type: ignore[no-untyped-call]
    library.define(op.schema.replace("(", ".definition(", 1), tags=_TAGS)  # type: ignore[no-untyped-call]
    library.impl(f"{op.name}.definition", definition, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    name = f"{library.ns}::{op.name}"
    elsewhere = noted(
        name, definition, "the runtime library has no kernels for this device, or is not loaded"
    )
    library.impl(op.name, elsewhere, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    # As torch's own composites do: the tensors of a vmap stay batched all through the definition.
    batched = noted(name, definition, "the call is part of a vmap")
    for key in _BATCHED:
        library.impl(op.name, batched, key)  # type: ignore[no-untyped-call]
    register_fake(library, op.name, _fake(op))


def register_fake(library: torch.library.Library, name: str, function: Callable[..., Any]) -> None:
    """As ``torch.library.register_fake``, which looks at every module that there is for the file and line of its caller.

    That is a third of the time and of the objects that it takes to register an operator.
    """
    qualified = f"{library.ns}::{name}"
    try:
        holder = torch._library.simple_registry.singleton.find(qualified).fake_impl
        handle = holder.register(function, __file__, lib=library)
        library._registration_handles.append(handle)
    except (AttributeError, TypeError):  # a torch of other insides
        torch.library.register_fake(qualified, function, lib=library)


def _fake(op: Op) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return fake(op, args)

    return run


def _overload(library: torch.library.Library, op: Op) -> Any:
    return getattr(getattr(torch.ops, library.ns), op.name).default
