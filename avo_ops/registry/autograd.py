"""The kernel at the Autograd key, one for every op: no gradient wanted, a custom Function, or the definition.

``torch.library.register_autograd`` raises under torch.func.grad, is silently zero under torch.func.jvp and
costs 5 us under no_grad. A plain kernel at the Autograd key that leaves function transforms and forward mode
to the definition (composite, so differentiable any number of times) has none of these faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from torch.autograd import forward_ad

from .layout import INTEGER_NAMES, MAX_DIMS
from .plan import Op, Operator
from .reference import Definition, statistics

Tensor = torch.Tensor

_transforms_active = torch._C._are_functorch_transforms_active
_below_autograd = torch._C._AutoDispatchBelowAutograd
_grad_enabled = torch.is_grad_enabled


def _definition_wanted() -> bool:
    """Whether a function transform or forward mode is at work: both need the definition's own operations."""
    return _transforms_active() or forward_ad._current_level >= 0  # no_grad does not switch forward mode off


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes the items at these positions; faster than a comprehension."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda items: ()
    (position,) = positions
    return lambda items: (items[position],)


def node_name(op: Op | Operator) -> str:
    """The name of ``grad_fn`` of a result."""
    return f"Avo_{op.name}Backward"


def _bare_apply(function: type[torch.autograd.Function], name: str) -> Callable[..., Any]:
    """``function.apply`` without its Python part, 3 us of 9. ``name``: of the nodes it makes.

    That part asks for active transforms, which ``kernel`` has done, and unwraps what a finished transform
    left, which the dispatcher has done.
    """
    function._backward_cls.__name__ = name
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def kernel(op: Op, overload: Any, definition: Definition, apply: Callable[..., Any]) -> Callable[..., Any]:
    """The Autograd kernel of one op. ``apply`` records the call for backward; it gets every argument."""
    call = overload._op
    defaults = op.defaults
    elements = op.broadcast

    def run(*args: Any) -> Any:
        if _definition_wanted():
            return definition(*args)
        if elements:
            args = _broadcast(args, elements)
        if _grad_enabled():
            for a in args:
                if isinstance(a, Tensor) and a.requires_grad:
                    return apply(*args, *defaults[len(args) :])
        with _below_autograd():
            return call(*args)

    return run


def _broadcast(args: tuple[Any, ...], elements: Sequence[int]) -> tuple[Any, ...]:
    """The (M, N) tensors in one shape: kernels take that of the primary one, which may be the smaller.

    It happens where autograd sees it, so that each gradient is summed back.
    """
    places = [i for i in elements if i < len(args) and args[i] is not None]
    if not places:
        return args
    shape = args[places[0]].shape
    for i in places:
        if args[i].shape != shape:
            break
    else:
        return args
    try:
        shape = torch.broadcast_shapes(*(args[i].shape for i in places))  # type: ignore[no-untyped-call]
        if len(shape) <= MAX_DIMS:
            return tuple([_expanded(a, shape) if i in places else a for i, a in enumerate(args)])
    except RuntimeError:
        pass
    return args  # the op will say which argument does not fit


def _expanded(tensor: Tensor, shape: torch.Size) -> Tensor:
    wide = tensor.expand(shape)
    if wide.requires_grad and wide.shape != tensor.shape:
        # torch sums a gradient in the order of its strides: the bits must not depend on those of the other operands.
        wide.register_hook(_contiguous)  # type: ignore[no-untyped-call]
    return wide


def _contiguous(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else grad.contiguous()  # torch gives None for one that is undefined


def when_called(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What ``make`` makes, made at the first call: a class is a hundred objects, and the accelerator needs few of these here."""
    made = lru_cache(maxsize=1)(make)
    return lambda *args: made()(*args)


def by_backward_op(
    operator: Operator, forward: Any, backward: Any, definition: Definition
) -> Callable[..., Any]:
    """``apply`` of the public op: its backward is the backward op, which is itself differentiable.

    But where the operator detaches: what is differentiated again is then the definition.
    """
    op, backward_op = operator.public, operator.backward
    assert backward_op is not None
    results, width = len(op.returns), len(backward_op.returns)
    single = len(operator.forward.returns) == 1
    kept = len(operator.saved)
    real = sum(
        r.dtype not in INTEGER_NAMES for r in op.returns
    )  # integers, which have no gradient, come last
    extra, recompute = statistics_again(operator)
    if operator.detaches:
        kept_arguments = [i for kind, i in operator.saved if kind == "arg"]
        extra, recompute = tuple(i for i in op.tensors if i not in kept_arguments), None
    # Positions in the arguments, and behind them the returns of the forward op.
    count = len(op.arguments)
    take_saved = _picker([*(i if kind == "arg" else count + i for kind, i in operator.saved), *extra])
    take_plain = _picker([i for i, a in enumerate(op.arguments) if a.kind != "tensor"])
    gradients = operator.gradients
    run_forward, run_backward = forward._op, backward._op
    materialize = not backward_op.arguments[0].optional

    places = [*((i if kind == "arg" else None) for kind, i in operator.saved), *extra]
    numbers = [i for i, a in enumerate(op.arguments) if a.kind != "tensor"]

    def whole(saved: Sequence[Any], plain: Sequence[Any]) -> list[Any]:
        """All arguments of the call, of what is saved where the operator detaches."""
        args: list[Any] = [None] * count
        for place, tensor in zip(places, saved, strict=True):
            if place is not None:
                args[place] = tensor
        for place, number in zip(numbers, plain, strict=True):
            args[place] = number
        return args

    def wanted(needs: Sequence[bool]) -> list[int]:
        return [i for i in op.tensors if i < len(needs) and needs[i] and gradients[i] is not None]

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with _below_autograd():
                out = run_forward(*args)
            outs = (out,) if single else out
            ctx.save_for_backward(*take_saved(args + outs))
            ctx.plain = take_plain(args)
            if results == 1:
                return outs[0]
            # One without a gradient is None, or zeros where there are kernels for all gradients only.
            ctx.set_materialize_grads(materialize)
            return outs[:results]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved, plain, grads = ctx.saved_tensors, ctx.plain, grads[:real]
            differentiable = _grad_enabled()
            if differentiable and operator.detaches:
                return gradients_of(definition, whole(saved, plain), wanted(ctx.needs_input_grad), grads)
            if differentiable and recompute is not None:
                # This backward will be differentiated: the statistics must depend on what they were made of.
                saved = recompute(saved, plain)
            mask = [False] * width
            needs = ctx.needs_input_grad
            for place, need in zip(gradients, needs, strict=True):
                if need and place is not None:
                    mask[place] = True
            if differentiable or _definition_wanted():
                found = run_backward(*grads, *saved[:kept], *plain, mask)
            else:
                with _below_autograd():
                    found = run_backward(*grads, *saved[:kept], *plain, mask)
            if width == 1:
                found = (found,)
            # The engine casts a gradient to the dtype of its tensor.
            pairs = zip(gradients, needs, strict=True)
            return tuple([found[place] if need and place is not None else None for place, need in pairs])

    return _bare_apply(Function, node_name(operator))


def statistics_again(operator: Operator) -> tuple[tuple[int, ...], Callable[..., list[Any]] | None]:
    """How to make the saved statistics anew: arguments to save besides, and a function of what is saved."""
    op = operator.forward
    results = len(operator.public.returns)
    names = [op.returns[i].name for kind, i in operator.saved if kind == "return" and i >= results]
    if not names:
        return (), None
    known = [op.returns[i].name for kind, i in operator.saved if kind == "return" and i < results]
    needed: set[str] = set()
    for case in op.cases.values():
        needed |= case.expression.loads(names, [case.expression.results[n] for n in known])
    saved = [i for kind, i in operator.saved if kind == "arg"]
    extra = tuple(
        i for i in op.tensors
        if i not in saved and (op.arguments[i].name in needed or op.arguments[i].optional)
    )  # fmt: skip
    plain = [i for i, a in enumerate(op.arguments) if a.kind != "tensor"]
    compute = statistics(op, known, names)
    count = len(operator.saved)

    def recompute(tensors: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        args: list[Any] = [None] * len(op.arguments)
        at_hand, places = [], []
        for place, (kind, i) in enumerate(operator.saved):
            if kind == "arg":
                args[i] = tensors[place]
            elif i < results:
                at_hand.append(tensors[place])
            else:
                places.append(place)
        for i, tensor in zip(extra, tensors[count:], strict=True):
            args[i] = tensor
        for i, number in zip(plain, numbers, strict=True):
            args[i] = number
        out = list(tensors[:count])
        fresh = compute(args, at_hand, tensors[places[0]].dtype)
        for place, value in zip(places, fresh, strict=True):
            out[place] = value
        return out

    return extra, recompute


def gradients_of(
    definition: Definition, args: Sequence[Any], wanted: Sequence[int], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of the arguments at the positions ``wanted``, by autograd of the definition; None for all others.

    ``grads``: of the results, None where one is not used.
    """
    found: list[Tensor | None] = [None] * len(args)
    used = [i for i, g in enumerate(grads) if g is not None]
    if not used or not wanted:
        return tuple(found)
    # Not torch.func.vjp, which refuses to run under saved-tensor hooks. The gradients depend on the arguments
    # through these aliases, so that they can be differentiated in turn.
    again, args = _grad_enabled(), list(args)
    with torch.enable_grad():
        aliases = [args[i].view_as(args[i]) for i in wanted]
        for i, alias in zip(wanted, aliases, strict=True):
            args[i] = alias
        out = definition(*args)
        outs = (out,) if isinstance(out, Tensor) else out
        pairs = [(outs[i], grads[i]) for i in used if outs[i].requires_grad]
        gradients = (
            torch.autograd.grad(
                [o for o, _ in pairs],
                aliases,
                [g for _, g in pairs],
                create_graph=again,
                materialize_grads=True,
            )
            if pairs
            else [torch.zeros_like(a) for a in aliases]
        )
    for i, gradient in zip(wanted, gradients, strict=True):
        found[i] = gradient
    return tuple(found)


def never(overload: Any) -> Callable[..., Any]:
    """``apply`` of an op whose results are constants."""
    call = overload._op

    def run(*args: Any) -> Any:
        with _below_autograd():
            return call(*args)

    return run


def by_definition(op: Op, overload: Any, definition: Definition) -> Callable[..., Any]:
    """``apply`` of a forward or backward op: its own gradient is that of its definition."""
    call = overload._op

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*[args[i] for i in op.tensors])
            ctx.args = [None if i in op.tensors else a for i, a in enumerate(args)]
            with _below_autograd():
                return call(*args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            wanted = [i for i in op.tensors if ctx.needs_input_grad[i]]
            args = list(ctx.args)
            for i, tensor in zip(op.tensors, ctx.saved_tensors, strict=True):
                args[i] = tensor

            return gradients_of(definition, args, wanted, grads)

    return _bare_apply(Function, node_name(op))
