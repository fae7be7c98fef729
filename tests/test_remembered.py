"""Graphs of compiled functions from one process to the next: when they are found, and when a function is traced anew."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import avo_ops
from avo_ops.jit import installation, kernels
from avo_ops.jit.fingerprint import _global_names, fingerprint
from avo_ops.registry import native_library

ROOT = Path(__file__).resolve().parent.parent

MODULE = """
import functools, math, os
import torch, torch.nn.functional as F
EPS, NAMES, TABLE, TENSOR = 1e-6, ("a", "b"), {"k": [1.0, 2.0]}, torch.ones(3)
class Config: eps = 1.0
def helper(x): return F.silu(x) * math.sqrt(2.0)
def scaled(n):
    def inner(x): return x * n
    return inner
"""
KNOWN = {
    "globals": "def f(x, eps=1e-3): return helper(x.float()) * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS + eps)",
    "a set of strings": "def f(x, mode='m'): return x.sin() if mode in {'m', 'k', 'zz', 'q'} else x * TABLE['k'][0]",
    "dtypes": "def f(x): return torch.tensor(2.0, dtype=torch.float64) * x + torch.finfo(x.dtype).eps",
    "a lambda": "f = lambda x: sum((lambda v: v * EPS)(v) for v in x.unbind(0))",
    "a closure": "f = scaled(3)",
    "partial": "f = functools.partial(lambda x, k: x * k, k=2.0)",
    "checks": "def f(x):\\n    if x.dim() != 2:\\n        raise ValueError(f'{x.shape}')\\n    assert isinstance(x, torch.Tensor)"
    "\\n    return x",
}
UNKNOWN = {
    "a tensor": "def f(x): return x + TENSOR",
    "a tensor in a closure": "f = scaled(torch.ones(3))",
    "a class": "def f(x): return x * Config.eps",
    "an object": "c = Config()\\ndef f(x): return x * c.eps",
    "the environment": "def f(x): return x * len(os.environ)",
    "an import": "def f(x):\\n    import os\\n    return x",
    "getattr": "def f(x): return getattr(x, 'sin')()",
    "eval": "def f(x): return x * eval('EPS')",
    "the machine": "def f(x): return x * torch.cuda.device_count()",
    "threads": "def f(x): return x * torch.get_num_threads()",
    "its own globals": "def f(x): return x * f.__globals__['EPS']",
    "written globals": "def f(x):\\n    global EPS\\n    EPS = 2\\n    return x",
    "a module's method": "f = torch.nn.GELU().forward",
    "a module": "f = torch.nn.GELU()",
    "what a helper reads": "def g(x): return x * Config.eps\\ndef f(x): return g(x)",
    "a module that makes attributes": "class Module(type(os)):\\n    eps = 1.0\\nm = Module('m')\\ndef f(x): return x * m.eps",
    "a module's __getattr__": "m = type(os)('m')\\nm.__getattr__ = lambda name: 1.0\\ndef f(x): return x * m.eps",
    "an attribute of a function": "def g(x): return x * 2\\ng.t = TENSOR\\ndef f(x): return g(x)",
}


def made(*texts: str) -> Any:
    scope: dict[str, Any] = {}
    exec(compile(MODULE + "\n".join(t.replace("\\n", "\n") for t in texts), "file.py", "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize("text", KNOWN.values(), ids=KNOWN)
def test_fingerprints_are_equal_for_what_is_equal(text: str) -> None:
    assert fingerprint(made(text)) == fingerprint(made(text)) is not None


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_what_can_read_anything_has_no_fingerprint(text: str) -> None:
    assert fingerprint(made(text)) is None


CHANGES = [
    (KNOWN["globals"], "EPS = 1e-5"),
    (KNOWN["globals"], "def helper(x): return F.gelu(x)"),
    (KNOWN["globals"], "math = torch"),
    (KNOWN["a set of strings"], "TABLE['k'][1] = 3.0"),
    ("def f(x): return F.silu(x)", "class F: silu = torch.sin"),
    ("def f(x): return helper(x)", "def helper(x, y=2): return F.silu(x) * math.sqrt(2.0)"),
    ("def f(x, *, k=1.0): return x * k", "f.__kwdefaults__ = {'k': 1}"),
    ("def f(x, k=1): return x * k", "f.__defaults__ = (True,)"),
    ("def f(x): return x * NAMES.index('b')", "NAMES = ['a', 'b']"),
]


@pytest.mark.parametrize(("text", "change"), CHANGES, ids=[c for _, c in CHANGES])
def test_a_change_of_what_is_read_is_another_fingerprint(text: str, change: str) -> None:
    assert fingerprint(made(text)) != fingerprint(made(text, change))


def test_names_that_are_read_as_globals() -> None:
    """Also those whose number takes more than a byte, and those of functions within."""
    many = "; ".join(f"x.a{i}; b{i}" for i in range(300))
    scope: dict[str, Any] = {}
    exec(
        f"def f(x):\n    def g(y): return inner(y.attribute)\n    {many}\n    return g(x) + len(x.b7)", scope
    )
    assert _global_names(scope["f"].__code__) == {"inner", "len", *(f"b{i}" for i in range(300))}


def test_the_name_of_a_file_counts_if_there_is_one(tmp_path: Path) -> None:
    def prints(*files: object) -> int:
        code = "def f(x): return x * 2"
        scopes: list[dict[str, Any]] = [{} for _ in files]
        for file, scope in zip(files, scopes, strict=True):
            exec(compile(code, str(file), "exec"), scope)
        return len({fingerprint(scope["f"]) for scope in scopes})

    assert prints("/tmp/ipykernel_1/2.py", "/tmp/ipykernel_3/2.py") == 1
    for name in "ab":
        (tmp_path / name).write_text("")
    assert prints(tmp_path / "a", tmp_path / "b") == 2


def test_fingerprints_are_those_of_other_processes() -> None:
    def run(seed: str) -> str:
        program = "import test_remembered as t\nprint(*[t.fingerprint(t.made(text)).hex() for text in t.KNOWN.values()])"
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        return subprocess.run(
            [sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True
        ).stdout

    assert run("1") == run("2")
    assert len(set(run("3").split())) == len(KNOWN)


# ---- through avo_ops.compile ----

PROGRAM = """
import sys
import torch, avo_ops
def norm(x, gate=None, eps=1e-6, power=2):
    h = x if gate is None else x * torch.sigmoid(gate["g"])
    h = h.float()
    y = h * torch.rsqrt((h ** power).mean(-1, keepdim=True) + eps + torch.tensor(0.5))
    return y.to(x.dtype), x.shape[0], h.sum(-1).cumsum(0)
def several(x): return x.sum(), x.sum(0), x.sum(1)
x, g = torch.randn(4, 6, requires_grad=True), {"g": torch.randn(6, requires_grad=True)}
half = x.detach().bfloat16()
f, s = avo_ops.compile(norm), avo_ops.compile(several)
def check():
    for args in ((x,), (x, g), (x, g, 1e-3), (x, None, 0.5, 4), (half,)):
        found, want = f(*args), norm(*args)
        torch.testing.assert_close(found, want)
    y, n, total = f(x, gate=g)
    torch.testing.assert_close(torch.autograd.grad(y.square().sum() + total.sum(), [x, g["g"]]),
                               torch.autograd.grad(norm(x, g)[0].square().sum() + norm(x, g)[2].sum(), [x, g["g"]]))
    torch.testing.assert_close(s(x), several(x))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(f(half), norm(half))
"""


def run(folder: Path, body: str, **env: str) -> list[str]:
    environment = {**os.environ, "AVO_OPS_CACHE": str(folder), "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(body)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A cache folder that a first process has filled, and what it says of its graphs."""
    if native_library.runtime() is None:
        pytest.skip("the package is not built")
    folder = tmp_path_factory.mktemp("cache")
    return folder, run(folder, REPORT)


REPORT = """
check()
print("torch._dynamo" in sys.modules)
print(f.plan(), f.source("cpu"), f.source("cuda"), len(f.variants()), avo_ops.stats())
"""


@pytest.mark.xdist_group("remembered")
def test_a_second_process_traces_nothing_and_says_the_same(filled: tuple[Path, list[str]]) -> None:
    folder, before = filled
    after = run(folder, REPORT)
    assert (before[0], after[0]) == ("True", "False")  # to trace, dynamo is imported
    assert after[1:] == before[1:]
    assert run(folder, REPORT, AVO_OPS_REMEMBER="0")[0] == "True"


@pytest.mark.xdist_group("remembered")
def test_a_second_process_imports_nothing_of_the_generator(filled: tuple[Path, list[str]]) -> None:
    """Its import is most of the time that a first call took."""
    body = """
    x, g = x.detach(), {"g": g["g"].detach()}
    torch.testing.assert_close(f(x, g), norm(x, g))
    print([name for name in sys.modules if name.startswith("avo_ops.generator")])
    """
    folder, _ = filled
    assert run(folder, body) == ["[]"]


def test_the_short_key_of_a_library_is_of_all_that_it_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native_library.runtime() is None:
        pytest.skip("the package is not built")
    f = avo_ops.compile(lambda x: (x * 2).sum(-1), name="short_key")
    f.prepare(torch.ones(2, 3))
    ((name,),) = [v.operators for v in f.variants()]
    before = kernels._short_key([name], "v3")
    assert kernels._short_key([name], "v3") == before is not None
    assert kernels._short_key([name], "v4") != before
    made = kernels.known_operator(name)
    for change in ({"sources": "others"}, {"double": True}):
        with monkeypatch.context() as patch:
            patch.setitem(kernels._known, name, dataclasses.replace(made, **change))
            assert kernels._short_key([name], "v3") != before
    for what in ("versions", "cpu_headers", "host_compiler"):
        with monkeypatch.context() as patch:
            patch.setattr(installation, what, lambda: [b"another"])
            assert kernels._short_key([name], "v3") != before
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert kernels._short_key([name], "v3") is None


def test_the_state_of_files_tells_one_that_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_PACKAGE", str(tmp_path))
    (tmp_path / "jit").mkdir()
    (tmp_path / "jit" / "a.py").write_text("1")
    before = installation._states("jit", "absent", suffix=".py")
    (tmp_path / "jit" / "a.txt").write_text("1")
    assert installation._states("jit", "absent", suffix=".py") == before
    (tmp_path / "jit" / "a.py").write_text("2")
    assert installation._states("jit", "absent", suffix=".py") != before


@pytest.mark.xdist_group("remembered")
def test_what_else_is_asked_of_a_function_that_was_remembered(
    filled: tuple[Path, list[str]], tmp_path: Path
) -> None:
    body = f"""
    check()
    with avo_ops.testing.emulate():
        check()
    avo_ops.export({str(tmp_path / "bundle")!r}, [f])
    loaded = avo_ops.load({str(tmp_path / "bundle")!r})["norm"]
    torch.testing.assert_close(loaded(x, g), norm(x, g))
    print("torch._dynamo" in sys.modules, any("cuda/" in k for k in avo_ops.stats()))
    whole = torch.compile(lambda x: loaded(x)[0] + 1, fullgraph=True, backend="eager")
    torch.testing.assert_close(whole(x), norm(x)[0] + 1)
    print(len(f.verify(x, g).lines) > 0)
    """
    folder, _ = filled
    out = run(folder, body)
    assert out == ["False True", "True"]


@pytest.mark.xdist_group("remembered")
def test_what_is_read_now_counts(filled: tuple[Path, list[str]]) -> None:
    """Another function of the same name and lines, and another default dtype, on which torch.tensor(0.5) depends."""
    body = """
    torch.set_default_dtype(torch.float64)
    check()
    print("torch._dynamo" in sys.modules)
    """
    folder, _ = filled
    assert run(folder, body) == ["True"]


@pytest.mark.xdist_group("remembered")
def test_an_operator_that_was_remembered_is_kept_in_another_graph(tmp_path: Path) -> None:
    """Without the operators that lay beside it."""
    if native_library.runtime() is None:
        pytest.skip("the package is not built")
    body = """
    def rows(a, n):
        keep = (n > 0.3) & (n < 0.9)
        return torch.where(keep[:, None], torch.softmax(a, -1), 0.0)
    compiled, n = avo_ops.compile(rows), torch.tensor([0.1, 0.5, 0.4, 0.9])
    for a in (x.detach(), half)[:COUNT]:
        torch.testing.assert_close(compiled(a, n), rows(a, n))
    print(len(compiled.variants()[0].operators))
    """
    assert run(tmp_path, body.replace("COUNT", "1")) == ["2"]
    assert run(tmp_path, body.replace("COUNT", "2")) == ["2"]


@pytest.mark.xdist_group("remembered")
def test_a_frozen_process_uses_what_there_is(filled: tuple[Path, list[str]]) -> None:
    body = """
    avo_ops.freeze()
    check()
    try:
        f(x.double())
    except RuntimeError as error:
        print(error)
    """
    folder, _ = filled
    (message,) = run(folder, body)
    assert message.startswith("a graph of norm would have to be compiled, but avo_ops.freeze() was called")


@pytest.mark.xdist_group("remembered")
def test_torch_compile_takes_functions_that_were_compiled_before_dynamo_was_imported(
    filled: tuple[Path, list[str]],
) -> None:
    body = """
    check()
    assert "torch._dynamo" not in sys.modules
    whole = torch.compile(lambda x: s(x * 2)[1] + 1, fullgraph=True, backend="eager")
    torch.testing.assert_close(whole(x), several(x * 2)[1] + 1)
    import torch._dynamo
    print(type(torch._dynamo.__spec__.loader).__name__, len(sys.meta_path) == len(set(sys.meta_path)))
    """
    folder, _ = filled
    assert run(folder, body) == ["SourceFileLoader True"]
