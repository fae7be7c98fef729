"""What an operator is compared with, by small adapters: torch, torch.compile, and kernel packages where they are installed.

An adapter takes the operator's arguments by name. A package that is not there is said once and left out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config

from .workloads import Measured

Tensor = torch.Tensor
Function = Callable[..., Any]


@dataclass(frozen=True)
class Implementation:
    """One way to compute a workload. ``function`` takes the arguments in the schema's order.

    ``float32``: arguments that it takes in float32 alone.
    """

    function: Function
    float32: tuple[str, ...] = ()


Adapters = Mapping[str, Implementation | Function]


def _liger() -> Adapters:
    """Liger-Kernel's Triton kernels."""
    ops = importlib.import_module("liger_kernel.ops")
    add_rms = ops.LigerFusedAddRMSNormFunction
    return {
        "layer_norm": lambda x, weight, bias, eps, **_: ops.LigerLayerNormFunction.apply(
            x, weight, bias, eps
        ),
        # Not in place: that writes the gradient of x into that of y.
        "rms_norm": lambda x, weight, eps, **_: ops.LigerRMSNormFunction.apply(
            x, weight, _eps(x, eps), 0.0, "llama", False
        ),
        "add_rms_norm": lambda x, residual, weight, eps, **_: add_rms.apply(
            x, residual, weight, _eps(x, eps)
        ),
        "softmax": lambda x, **_: ops.LigerSoftmaxFunction.apply(x),
        "swiglu": lambda gate, up, **_: ops.LigerSiLUMulFunction.apply(gate, up),
        "geglu_tanh": lambda gate, up, **_: ops.LigerGELUMulFunction.apply(gate, up),
        # Its forward computes the gradient already, in place of the logits.
        "cross_entropy": lambda x, target, **_: ops.LigerCrossEntropyFunction.apply(x, target, None)[0],
    }


def _quack() -> Adapters:
    """QuACK's CuTe DSL kernels."""
    rmsnorm = importlib.import_module("quack.rmsnorm")
    softmax = importlib.import_module("quack.softmax").softmax
    cross_entropy = importlib.import_module("quack.cross_entropy").cross_entropy

    class LayerNorm(torch.autograd.Function):
        """Its forward and backward, which come without a wrapper for autograd."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
            y, rstd, mean = rmsnorm.layernorm_fwd(x, weight, bias, eps, return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, weight, rstd, mean)
            return y  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, weight, rstd, mean = ctx.saved_tensors
            return *rmsnorm.layernorm_bwd(x, weight, grad, rstd, mean), None

    return {
        "layer_norm": Implementation(
            lambda x, weight, bias, eps, **_: LayerNorm.apply(x, weight, bias, eps), ("weight", "bias")
        ),
        "rms_norm": lambda x, weight, eps, **_: rmsnorm.rmsnorm(x, weight, eps=_eps(x, eps)),
        "add_rms_norm": lambda x, residual, weight, eps, **_: rmsnorm.rmsnorm(
            x, weight, residual=residual, eps=_eps(x, eps), prenorm=True
        ),
        "softmax": lambda x, **_: softmax(x),
        "cross_entropy": lambda x, target, **_: cross_entropy(x, target, reduction="mean"),
    }


def _apex() -> Adapters:
    """NVIDIA apex's CUDA kernels."""
    norm = importlib.import_module("apex.normalization.fused_layer_norm")
    return {
        "layer_norm": lambda x, normalized_shape, weight, bias, eps, **_: norm.fused_layer_norm_affine(
            x, weight, bias, normalized_shape, eps
        ),
        "rms_norm": lambda x, normalized_shape, weight, eps, **_: norm.fused_rms_norm_affine(
            x, weight, normalized_shape, _eps(x, eps)
        ),
    }


def _apex_fast() -> Adapters:
    """apex's contrib layer norm, for the widths that it was built for."""
    norm = importlib.import_module("apex.contrib.layer_norm.layer_norm")
    return {"layer_norm": lambda x, weight, bias, eps, **_: norm.FastLayerNormFN.apply(x, weight, bias, eps)}


def _flash_attn() -> Adapters:
    """flash-attention's Triton kernels."""
    norm = importlib.import_module("flash_attn.ops.triton.layer_norm")
    loss = importlib.import_module("flash_attn.ops.triton.cross_entropy").cross_entropy_loss
    return {
        "layer_norm": lambda x, weight, bias, eps, **_: norm.layer_norm_fn(x, weight, bias, eps=eps),
        "rms_norm": lambda x, weight, eps, **_: norm.rms_norm_fn(x, weight, None, eps=_eps(x, eps)),
        "add_layer_norm": lambda x, residual, weight, bias, eps, **_: norm.layer_norm_fn(
            x, weight, bias, residual=residual, eps=eps, prenorm=True
        ),
        "add_rms_norm": lambda x, residual, weight, eps, **_: norm.rms_norm_fn(
            x, weight, None, residual=residual, eps=_eps(x, eps), prenorm=True
        ),
        "cross_entropy": lambda x, target, **_: loss(x, target)[0].mean(),
    }


def _fused() -> Adapters:
    """torch's fused steps of optimizers."""

    def adamw(
        params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, state_steps: Any, max_exp_avg_sqs: Any = (), **numbers: Any
    ) -> None:  # fmt: skip
        torch._fused_adamw_(
            params, grads, exp_avgs, exp_avg_sqs, list(max_exp_avg_sqs), state_steps,
            amsgrad=len(max_exp_avg_sqs) > 0, maximize=False, **numbers,
        )  # fmt: skip

    def sgd(params: Any, grads: Any, momentum_buffers: Any = (), **numbers: Any) -> None:
        settings = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "is_first_step": False} | numbers
        torch._fused_sgd_(params, grads, list(momentum_buffers), maximize=False, **settings)

    return {"adamw_": adamw, "adamw_amsgrad_": adamw, "sgd_": sgd, "sgd_momentum_": sgd}


def _foreach() -> Adapters:
    """torch's operators over lists of tensors."""
    adamw_step = importlib.import_module("torch.optim.adamw").adamw
    sgd_step = importlib.import_module("torch.optim.sgd").sgd

    def adamw(
        params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, state_steps: Any, max_exp_avg_sqs: Any = (), **numbers: Any
    ) -> None:  # fmt: skip
        adamw_step(
            params, grads, exp_avgs, exp_avg_sqs, list(max_exp_avg_sqs), state_steps, foreach=True,
            capturable=params[0].is_cuda, amsgrad=len(max_exp_avg_sqs) > 0, maximize=False, **numbers,
        )  # fmt: skip

    def sgd(params: Any, grads: Any, momentum_buffers: Any = None, **numbers: Any) -> None:
        settings = {"momentum": 0.0, "dampening": 0.0, "nesterov": False} | numbers
        buffers = momentum_buffers or [None] * len(params)
        sgd_step(params, grads, buffers, foreach=True, maximize=False, **settings)

    return {
        "adamw_": adamw, "adamw_amsgrad_": adamw, "sgd_": sgd, "sgd_momentum_": sgd,
        "list_norm": lambda tensors: torch.nn.utils.get_total_norm(tensors, foreach=True),
    }  # fmt: skip


def _eps(x: Tensor, eps: float | None) -> float:
    return torch.finfo(torch.float32).eps if eps is None else eps


PACKAGES: dict[str, Callable[[], Adapters]] = {
    "fused": _fused,
    "foreach": _foreach,
    "liger": _liger,
    "quack": _quack,
    "apex": _apex,
    "apex_fast": _apex_fast,
    "flash_attn": _flash_attn,
}
COMPILED = {"compile": None, "compile_max": "max-autotune-no-cudagraphs"}
_ANYWHERE = ("fused", "foreach")  # on the CPU too
NAMES = ("avo", "eager", *COMPILED, *PACKAGES)


@cache
def _adapters(package: str) -> Adapters:
    try:
        return PACKAGES[package]()
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        print(f"{package} is left out: {error}", file=sys.stderr)
        return {}


def has(name: str, workload: Measured, device: str) -> bool:
    """Whether ``name`` computes a workload on a device, and is installed."""
    if name == "avo":
        return True
    if name == "eager" or name in COMPILED:
        return workload.twin is not None
    return (device == "cuda" or name in _ANYWHERE) and workload.name in _adapters(name)


def implementation(name: str, workload: Measured) -> Implementation:
    """How ``name`` computes a workload."""
    if name == "avo":
        return Implementation(workload.avo)
    if name in PACKAGES:
        found = _adapters(name)[workload.name]
        adapter = found if isinstance(found, Implementation) else Implementation(found)
        return Implementation(workload.adapted(adapter.function), adapter.float32)
    twin = workload.twin
    assert twin is not None
    if name == "eager":
        return Implementation(twin)
    # One shape at a time, so that the limit of recompilations is never reached.
    torch._dynamo.reset()
    return Implementation(torch.compile(twin, dynamic=False, mode=COMPILED[name]))


def prepared() -> None:
    """Settings of torch.compile that a benchmark needs, for the whole process."""
    torch._functorch.config.donated_buffer = False  # the backward of a compiled function runs several times
