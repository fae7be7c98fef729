"""The norm of all gradients, and the factor that brings it to a bound: on their device, without waiting for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .sharded import is_shared, local

Tensor = torch.Tensor


def clip_factor(
    parameters: Tensor | Iterable[Tensor], max_norm: float, *, grad_scale: Tensor | None = None
) -> Tensor:
    """min(1, max_norm / norm) for the 2-norm of all gradients: what a step takes as ``clip``.

    It leaves the gradients as they are, which saves writing and reading them, and is what ``torch.nn.utils.clip_grad_norm_``
    multiplies them with.

    Args:
        parameters: those whose gradients count; some may have none. Of several devices, the result is on that of the first.
        max_norm: what the norm is brought to if it is above.
        grad_scale: what the gradients were multiplied with, ``torch.amp.GradScaler``'s scale, unless it has unscaled them.

    Returns:
        A tensor of one number.

    Raises:
        ValueError: ``max_norm`` is negative.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm must not be negative, but is {max_norm}")
    some = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [p.grad for p in some if p.grad is not None]
    if not grads:
        return torch.ones(())
    norm = _norm(grads)
    if grad_scale is not None:
        norm = norm / grad_scale.to(norm.device)
    # As torch has it, so that the product with the norm is not above the bound by a rounding.
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def _norm(grads: list[Tensor]) -> Tensor:
    if any(map(is_shared, grads)):  # torch knows how to bring the parts together
        whole: Any = torch.nn.utils.get_total_norm(grads)
        return local(whole.full_tensor() if is_shared(whole) else whole)
    by_device: dict[torch.device, list[Tensor]] = {}
    for grad in grads:
        by_device.setdefault(grad.device, []).append(grad)
    norms: list[Tensor] = [torch.ops.avo.list_norm(some) for some in by_device.values()]
    if len(norms) == 1:
        return norms[0]
    norm: Tensor = torch.ops.avo.list_norm([n.to(norms[0].device) for n in norms])
    return norm
