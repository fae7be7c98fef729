"""Parameters that several processes share (``DTensor``, as FSDP2 makes them). Nothing is imported for those who have none."""

from __future__ import annotations

import sys
from typing import Any

import torch

Tensor = torch.Tensor


def is_shared(tensor: Tensor) -> bool:
    """Whether it is a DTensor."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> Tensor:
    """What this process has of a tensor."""
    found: Tensor = tensor.to_local() if is_shared(tensor) else tensor
    return found


def like(parameter: Any, grad: Any) -> Tensor:
    """A gradient that lies in the processes as its parameter does."""
    if is_shared(grad) and grad.placements != parameter.placements:
        grad = grad.redistribute(placements=parameter.placements)
    found: Tensor = grad
    return found
