"""The accelerator (csrc/torch): what it must leave to others, and that all holds without it too.

That its kernels and gradients are right is the matter of the other tests, which run with it where it was built.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import avo_ops
from avo_ops.registry import accelerator, direct_call

ROOT = Path(__file__).resolve().parents[1]
OFF = os.environ.get("AVO_OPS_ACCELERATOR") == "0"

# Where it can be built it must be there.
HEADERS = (Path(sysconfig.get_path("include")) / "Python.h").is_file()
needs_accelerator = pytest.mark.skipif(
    OFF or not HEADERS, reason="AVO_OPS_ACCELERATOR=0, or a Python without its headers"
)


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_accelerator
def test_it_is_built_and_loaded():
    assert accelerator._module() is not None


@pytest.mark.skipif(OFF, reason="this is that run")
def test_the_registrations_without_it():
    """The tests of gradients, transforms and layouts once more with the registrations in Python."""
    words = "any_subset wanted omitted incoming missing_gradient no_gradient shared broadcast repeated saved layout"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=",
         "tests/test_registry.py", "tests/test_accelerator.py", "-k", " or ".join([*words.split(), "accelerator"])],
        cwd=ROOT,
        env={**os.environ, "AVO_OPS_ACCELERATOR": "0"},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_can_be_switched_off():
    code = (
        "import torch, avo_ops\n"
        "from avo_ops.registry import accelerator\n"
        "x = torch.randn(3, requires_grad=True)\n"
        "y = torch.ops.avo.gelu(x); y.sum().backward()\n"
        "print(accelerator._module() is None, type(y.grad_fn).__name__, y.grad_fn.name())"
    )
    assert run_python(code, AVO_OPS_ACCELERATOR="0").split() == [
        "True",
        "Avo_geluBackward",
        "Avo_geluBackward",
    ]


def test_one_that_does_not_load_is_a_warning(tmp_path):
    code = (
        "import sys, torch, warnings\n"
        "from pathlib import Path\n"
        "real = Path.is_file\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    import importlib.machinery as m\n"
        "    def refuse(self, spec): raise ImportError('undefined symbol')\n"
        "    m.ExtensionFileLoader.create_module = refuse\n"
        "    import avo_ops\n"
        "print([str(w.message) for w in seen if 'avo_ops' in str(w.message)])\n"
        "print(torch.ops.avo.gelu(torch.zeros(2, requires_grad=True)).grad_fn is not None)"
    )
    expected = "[]" if not accelerator.path().is_file() else "['avo_ops: calls cost more: undefined symbol']"
    assert run_python(code, AVO_OPS_ACCELERATOR="1").splitlines() == [expected, "True"]


def test_its_name_says_for_what_it_was_built():
    assert accelerator.file_name("2.14.1+cu130").startswith("avo_torch-2.14.1+cu130-cpython-3")
    assert accelerator.file_name() != accelerator.file_name("2.14.1+cu130")


# ---- the direct call ----


class Usual:
    """The usual way, counted."""

    def __init__(self, name: str) -> None:
        self.function, self.calls = getattr(torch.ops.avo, name), 0
        self.direct = direct_call(f"avo::{name}", self)
        if self.direct is None:
            self.direct = self

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)

    def goes(self, *args, **close) -> bool:
        """Whether a call goes the usual way; its result must be that of the usual way."""
        before = self.calls
        found = self.direct(*args)
        torch.testing.assert_close(found, self.function(*args), rtol=0, atol=0)
        return self.calls > before


X, W = torch.randn(3, 8), torch.nn.Parameter(torch.randn(8))


@needs_accelerator
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("gelu", (X,)),
        ("gelu", (X, "tanh")),
        ("softmax", (X, -1)),
        ("layer_norm", (X, (8,))),
        ("layer_norm", (X, [8], W, None, 1e-3)),
        ("layer_norm", (X.t().contiguous().t(), X.shape[1:], W, W)),
        ("rms_norm", (X, (3, 8), None, None)),
        ("rms_norm", (X.double(), (8,), W)),
        ("add_layer_norm", (X, X[:1], (8,))),
    ],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_plain_calls_are_direct(name, args, mode):
    with mode():
        broadcast = name == "add_layer_norm" and mode is torch.enable_grad
        wanted = [a.clone().requires_grad_() if a is X and broadcast else a for a in args]
        assert Usual(name).goes(*wanted) == broadcast


@needs_accelerator
def test_what_the_kernel_must_not_see_goes_the_usual_way():
    gelu, norm = Usual("gelu"), Usual("layer_norm")

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with torch.no_grad():
        assert not gelu.goes(X)
        for mode in (
            Functions(),
            Dispatches(),
            forward_ad.dual_level(),
            torch.profiler.profile(),
            torch.autocast("cpu", torch.bfloat16),
        ):
            with mode:
                assert gelu.goes(X), mode
        assert gelu.goes(X.as_subclass(type("Sub", (torch.Tensor,), {})))
        before = gelu.calls
        torch.func.vmap(gelu.direct)(X)
        torch.func.grad(lambda x: gelu.direct(x).sum())(X)
        assert gelu.direct(X.to("meta")).is_meta
        assert gelu.calls == before + 3
        assert not gelu.goes(X.to(torch.complex64).real)
        assert gelu.goes(X.to(torch.complex64).conj().imag)  # lazily negative
        assert norm.goes(X, (torch.tensor(8),)), "what the dispatcher converts"
        assert norm.goes(X, (8,), None, None, 1), "an int for a float"
    assert gelu.goes(X) is False, "the modes are gone"


@needs_accelerator
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("gelu", ()),
        ("gelu", (None,)),
        ("gelu", (1.0,)),
        ("gelu", (X, "none", 3)),
        ("gelu", (X, "other")),
        ("gelu", (X, "\ud800")),
        ("gelu", (X.long(),)),
        ("layer_norm", (X, (9,))),
        ("layer_norm", (X, ())),
        ("layer_norm", (X, (1,) * 100)),
        ("layer_norm", (X, (2**70,))),
        ("layer_norm", (X, (8,), W[:4])),
        ("layer_norm", (X, (8,), W.to("meta"))),
        ("softmax", (X, 7)),
        ("softmax", (X, 2**70)),
    ],
)
def test_refusals_are_the_same(name, args):
    messages = []
    for call in (direct_call(f"avo::{name}", getattr(torch.ops.avo, name)), getattr(torch.ops.avo, name)):
        with torch.no_grad(), pytest.raises(Exception) as error:
            call(*args)
        messages.append((type(error.value), str(error.value)))
    assert messages[0] == messages[1]


@needs_accelerator
def test_a_direct_call_lets_other_threads_run():
    call = direct_call("avo::softmax", torch.ops.avo.softmax)
    x, ticks, done = torch.randn(64, 1 << 16), [], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with torch.no_grad():
            for _ in range(20):  # on a busy machine one call may see nothing of the thread
                start = time.perf_counter()
                call(x, -1)
                end = time.perf_counter()
                quarter = (end - start) / 4
                if any(start + quarter < t < end - quarter for t in ticks):
                    return
        pytest.fail("no other thread ran during a call")
    finally:
        done.set()
        thread.join()


def test_threads_agree():
    call = direct_call("avo::layer_norm", torch.ops.avo.layer_norm) or torch.ops.avo.layer_norm
    x = torch.randn(64, 32, requires_grad=True)
    expected = call(x, (32,))
    (gradient,) = torch.autograd.grad(expected.square().sum(), x)
    wrong = []

    def work() -> None:
        for _ in range(50):
            y = call(x, (32,))
            (g,) = torch.autograd.grad(y.square().sum(), x)
            if not torch.equal(y, expected) or not torch.equal(g, gradient):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- the node ----


def test_the_node():
    x = torch.randn(3, 8, requires_grad=True)
    y, r = torch.ops.avo.add_layer_norm(x, x, [8], W)
    assert y.grad_fn is r.grad_fn and y.grad_fn.name() == "Avo_add_layer_normBackward" and r.output_nr == 1
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(outputs)))
    y.retain_grad()
    y.sum().backward()
    assert seen and y.grad is not None


def test_only_gradients_of_this_backward_are_computed():
    x, w = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    masks = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "backward" in func.name():
                masks.append(args[-1])
            return func(*args, **(kwargs or {}))

    y = torch.ops.avo.rms_norm(x, [8], w)
    with Recorder():
        torch.autograd.grad(y.sum(), w)
    # A node in Python does not learn which of its gradients this backward is for.
    assert masks == [[accelerator._module() is None, True]]


def test_a_gradient_that_does_not_come_is_zero():
    class Dropped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            return None

    x = torch.randn(3, 8, requires_grad=True)
    Dropped.apply(torch.ops.avo.rms_norm(x, [8])).backward()
    assert x.grad is not None and not x.grad.any()


def test_backward_frees_what_was_saved():
    x = torch.randn(3, 8, requires_grad=True)
    y = torch.ops.avo.rms_norm(x, [8])
    torch.autograd.grad(y, x, torch.ones_like(y))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x, torch.ones_like(y))


def test_memory_is_freed():
    x = torch.randn(3, 8, requires_grad=True)
    hidden = x * 1
    kept = weakref.ref(hidden)
    y = torch.ops.avo.silu(hidden)
    del hidden
    gc.collect()
    y.sum().backward()
    assert y.grad_fn is not None
    del y
    gc.collect()
    assert kept() is None
    # A result that is saved does not hold itself.
    y = torch.ops.avo.softmax(x, -1)
    kept = weakref.ref(y)
    del y
    gc.collect()
    assert kept() is None
    # A deep graph is torn down without a deep stack.
    y = x
    for _ in range(20000):
        y = torch.ops.avo.silu(y)
    del y


def test_an_output_that_was_written_to_is_noticed():
    x = torch.randn(3, 8, requires_grad=True)
    y = torch.ops.avo.softmax(x, -1)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_error_in_a_hook_of_a_saved_tensor_arrives():
    def fail(tensor):
        raise ValueError("planted")

    x = torch.randn(3, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, fail):
        y = torch.ops.avo.silu(x)
    with pytest.raises(ValueError, match="planted"):
        y.sum().backward()


def test_inference_tensors_are_not_saved():
    with torch.inference_mode():
        x = torch.randn(3, 8)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        torch.ops.avo.rms_norm(x, [8], W)


def test_anomaly_mode_names_the_call():
    x = torch.full((3, 8), float("nan"), requires_grad=True)
    with (
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.warns(UserWarning, match="Traceback of forward call"),
    ):
        y = torch.ops.avo.silu(x).sum()
        with pytest.raises(RuntimeError, match="Avo_siluBackward"):
            y.backward()


def test_profiler_sees_forward_and_backward():
    x = torch.randn(3, 8, requires_grad=True)
    with torch.profiler.profile() as profile:
        torch.ops.avo.layer_norm(x, [8]).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert {"avo::layer_norm", "avo::layer_norm_forward", "avo::layer_norm_backward"} <= names
    assert avo_ops.stats()


def test_compiled_autograd():
    x, w = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)

    def step(eps):
        y, r = torch.ops.avo.add_layer_norm(x, x.detach(), [8], w, None, eps)
        return torch.ops.avo.softmax(y, -1).square().sum() + torch.ops.avo.gelu(r, "tanh").sum()

    for eps in (1e-5, 1e-1):  # the second must not take the first one's graph
        expected = torch.autograd.grad(step(eps), (x, w))
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            found = torch.autograd.grad(step(eps), (x, w))
        torch.testing.assert_close(found, expected)
