"""Optimizers over ``torch.ops.avo``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from .sharded import like, local

Tensor = torch.Tensor
Group = dict[str, Any]
Closure = Callable[[], Any]


class _Optimizer(torch.optim.Optimizer):
    """What the optimizers share: who is updated, how gradients are scaled, and state in a dtype of its own."""

    # Lets torch.amp.GradScaler leave gradients as they are and set the attributes grad_scale and found_inf for a step.
    _step_supports_amp_scaling = True
    _moments: tuple[str, ...] = ()  # the state that is kept in state_dtype

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        lr = defaults["lr"]
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"lr must be a float or a tensor of one number, but has shape {list(lr.shape)}")
        for name in ("lr", "eps", "weight_decay", "momentum"):
            value = defaults.get(name, 0.0)
            if not isinstance(value, Tensor) and not value >= 0.0:
                raise ValueError(f"{name} must not be negative, but is {value}")
        for i, beta in enumerate(defaults.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"betas[{i}] must be in [0, 1), but is {beta}")
        dtype = defaults["state_dtype"]
        if dtype is not None and dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            raise ValueError(f"state_dtype must be a floating-point dtype or None, but is {dtype}")
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            if group.get("amsgrad") and "amsgrad" not in self.defaults:
                raise ValueError(
                    f"{type(self).__name__} has no amsgrad, but a loaded group of parameters asks for it"
                )

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of an optimizer of this class or of its twin in torch.

        Raises:
            ValueError: the groups do not match, or one asks for ``amsgrad``, which this class does not have.
        """
        super().load_state_dict(dict(state_dict))
        # torch has cast the moments to the dtypes of the parameters.
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = ((group, p) for group in self.param_groups for p in group["params"])
        for name, (group, p) in zip(saved, own, strict=True):
            state, loaded = self.state.get(p, {}), state_dict["state"].get(name, {})
            for key, value in state.items():
                if key == "step":  # torch's own keeps it on the CPU, mostly
                    state[key] = torch.as_tensor(value).to(dtype=torch.float32, device=p.device)
                elif key in self._moments and value is not None and group["state_dtype"] is not None:
                    state[key] = loaded[key].to(dtype=group["state_dtype"], device=p.device, copy=True)

    @torch.no_grad()
    def step(self, closure: Closure | None = None, *, clip: Tensor | None = None) -> Any:  # type: ignore[override]
        """Update all parameters that have a gradient; gradients stay as they are.

        Args:
            closure: evaluates the model again, with gradients, and returns the loss.
            clip: a tensor of one number by which gradients are multiplied, after a ``GradScaler``'s scale is taken off.

        Returns:
            What ``closure`` returns.

        Raises:
            RuntimeError: a gradient is sparse, or a parameter is not of a floating-point dtype.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in self._with_gradients(group):
                scaling = {
                    name: value.to(params[0].device, non_blocking=True)
                    for name, value in (
                        ("grad_scale", getattr(self, "grad_scale", None)),
                        ("found_inf", getattr(self, "found_inf", None)),
                        ("clip", clip),
                    )
                    if value is not None
                }
                self._update(group, params, [like(p, p.grad) for p in params], scaling)
        return loss

    def _update(
        self, group: Group, params: list[Tensor], grads: list[Tensor], scaling: dict[str, Tensor]
    ) -> None:
        """Update parameters of one device."""
        raise NotImplementedError

    def _with_gradients(self, group: Group) -> Iterator[list[Tensor]]:
        """The parameters of a group that have a gradient, those of each device together."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for p in group["params"]:
            if p.grad is not None:
                if p.grad.is_sparse:
                    raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
                by_device.setdefault(p.device, []).append(p)
        yield from by_device.values()

    def _moment(self, group: Group, params: Iterable[Tensor], name: str) -> list[Tensor]:
        """A state of each parameter, of its shape and layout and zero at first."""
        found = []
        for p in params:
            state = self.state[p]
            if state.get(name) is None:
                state[name] = torch.zeros_like(
                    p, dtype=group["state_dtype"], memory_format=torch.preserve_format, requires_grad=False
                )
            found.append(state[name])
        return found

    def _next_steps(self, params: Iterable[Tensor], scaling: Mapping[str, Tensor]) -> list[Tensor]:
        """The number of each parameter's step, this one counted unless it is skipped."""
        found = []
        for p in params:
            state = self.state[p]
            if "step" not in state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
            found.append(state["step"])
        if "found_inf" in scaling:
            torch._foreach_add_(found, (scaling["found_inf"].reshape(()) == 0).float())
        else:
            torch._foreach_add_(found, 1)
        return found


class AdamW(_Optimizer):
    r"""Adam with decoupled weight decay, as ``torch.optim.AdamW``.

    Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101.

    Args:
        params: parameters or groups of them, of float32, bfloat16, float16 or float64, on any devices. The math is in float32, or
            float64 if any tensor of a parameter is.
        lr: a float, or a tensor of one number, which may change under a CUDA graph.
        betas: the decay of the averages of gradients and their squares, each in [0, 1).
        eps: added to the denominator.
        weight_decay: times ``lr``, what each step takes off a parameter.
        amsgrad: divide by the largest average of squares that there has been, in place of the present one (Reddi, Kale and Kumar,
            On the Convergence of Adam and Beyond, ICLR 2018).
        maximize: ascend.
        foreach, capturable, fused: what chooses among torch's implementations; there is one here, which is fused and capturable.
        differentiable: must be False.
        state_dtype: of ``exp_avg``, ``exp_avg_sq`` and ``max_exp_avg_sq``; None: that of the parameter, as in torch.

    Raises:
        ValueError: an argument is out of range.
    """

    _moments = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        _refuse(differentiable=differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "state_dtype": state_dtype,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _update(
        self, group: Group, params: list[Tensor], grads: list[Tensor], scaling: dict[str, Tensor]
    ) -> None:
        beta1, beta2 = group["betas"]
        moments = self._moments if group["amsgrad"] else self._moments[:2]
        lists = (
            params,
            grads,
            *(self._moment(group, params, name) for name in moments),
            self._next_steps(params, scaling),
        )
        step = torch.ops.avo.adamw_amsgrad_ if group["amsgrad"] else torch.ops.avo.adamw_
        step(
            *_local(lists),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            **scaling,
        )


class Lion(_Optimizer):
    r"""Steps by the sign of an interpolated momentum.

    Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv:2302.06675. Its ``lr`` is three to ten times smaller than
    AdamW's, and its ``weight_decay`` as many times larger.

    Args:
        params: parameters or groups of them, as for :class:`AdamW`.
        lr: a float, or a tensor of one number.
        betas: of the interpolation for the step, and of the average that is kept, each in [0, 1).
        weight_decay: times ``lr``, what each step takes off a parameter.
        maximize: ascend.
        state_dtype: of ``exp_avg``; None: that of the parameter.

    Raises:
        ValueError: an argument is out of range.
    """

    _moments = ("exp_avg",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize, "state_dtype": state_dtype
        }  # fmt: skip
        super().__init__(params, defaults)

    def _update(
        self, group: Group, params: list[Tensor], grads: list[Tensor], scaling: dict[str, Tensor]
    ) -> None:
        beta1, beta2 = group["betas"]
        lists = (params, grads, self._moment(group, params, "exp_avg"))
        torch.ops.avo.lion_(
            *_local(lists),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            **scaling,
        )


class SGD(_Optimizer):
    r"""Stochastic gradient descent, with momentum if that is not 0, as ``torch.optim.SGD``.

    Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, ICML 2013.

    Args:
        params: parameters or groups of them, as for :class:`AdamW`.
        lr: a float, or a tensor of one number.
        momentum: the decay of the momentum.
        dampening: a gradient goes into the momentum times 1 - dampening, but for the first.
        weight_decay: times the parameter, what is added to its gradient.
        nesterov: step by the gradient and the momentum that follows it; needs ``momentum``, and no ``dampening``.
        maximize: ascend.
        foreach, fused: what chooses among torch's implementations; there is one here.
        differentiable: must be False.
        state_dtype: of ``momentum_buffer``; None: that of the parameter, as in torch.

    Raises:
        ValueError: an argument is out of range.
    """

    _moments = ("momentum_buffer",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        _refuse(differentiable=differentiable)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs a momentum above 0 and no dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "state_dtype": state_dtype,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _update(
        self, group: Group, params: list[Tensor], grads: list[Tensor], scaling: dict[str, Tensor]
    ) -> None:
        settings = {name: group[name] for name in ("lr", "weight_decay", "maximize")} | scaling
        if group["momentum"] == 0:
            torch.ops.avo.sgd_(*_local((params, grads)), **settings)
            return
        settings |= {name: group[name] for name in ("momentum", "dampening", "nesterov")}
        for first, some in self._by_first_step(group, params, scaling):
            own = [params[i] for i in some]
            lists = (own, [grads[i] for i in some], self._moment(group, own, "momentum_buffer"))
            torch.ops.avo.sgd_momentum_(*_local(lists), is_first_step=first, **settings)

    def _by_first_step(
        self, group: Group, params: list[Tensor], scaling: Mapping[str, Tensor]
    ) -> Iterator[tuple[bool, list[int]]]:
        """Which parameters have no momentum yet, and which have. Without dampening a momentum of 0 does as well as none."""
        new = [self.state[p].get("momentum_buffer") is None for p in params]
        if not group["dampening"] or not any(new):
            yield False, list(range(len(params)))
            return
        if "found_inf" in scaling and scaling["found_inf"].item():
            return  # a step that is skipped would be taken for the first
        for first in (True, False):
            some = [i for i, one in enumerate(new) if one == first]
            if some:
                yield first, some


def _local(lists: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """What this process has of them: an element is updated by what stands at its own place alone."""
    return [[local(t) for t in tensors] for tensors in lists]


def _refuse(**switches: bool) -> None:
    for name, value in switches.items():
        if value:
            raise ValueError(f"{name} is not supported, so it must be False")
