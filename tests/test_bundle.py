"""``avo_ops.export`` and ``load``: what another process serves, what is refused, and which CUDA kernels are in it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

import avo_ops
from avo_ops.generator import nvrtc
from avo_ops.jit import bundle, codec, program
from avo_ops.jit.kernels import known_operator
from avo_ops.registry import native_library

if native_library.runtime() is None:
    pytest.skip("the package is not built", allow_module_level=True)

Tensor = torch.Tensor
ROOT = Path(__file__).resolve().parent.parent
TABLE = torch.arange(1.0, 6.0)


def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    """Two results of kernels; the shift has no gradient, which the definition must know."""
    h = x - x.amax(-1, keepdim=True).detach()
    return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + eps) * w


def rounded(x: Tensor, w: Tensor) -> Tensor:
    """As norm, in the dtype of x whatever that of w."""
    return norm(x, w).to(x.dtype)


def pieces(x: Tensor, more: dict[str, Any], power: float, mode: str = "up") -> Any:
    """Several kernels, torch between them, a constant, sizes among the results, a float that must be a number."""
    y = torch.softmax(x * TABLE, -1).cumsum(0)
    if power > 1:
        y = y ** int(power)
    y = y - y.mean(0) if mode == "up" else y + torch.arange(x.shape[-1], device=x.device) * more["scale"]
    return {"y": y, "n": x.shape[0] * 2, "rest": [None, mode, (y.amax(-1),)]}


def gate(x: Tensor, y: Tensor) -> Tensor:
    return x * torch.sigmoid(y)


def emulated(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x * 1.5)


def norm_calls() -> list[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        torch.float32: ((6, 40), (7, 5), (1, 9)),
        torch.bfloat16: ((2, 3, 8),),
        torch.float64: ((6, 40),),
    }
    return [
        tuple(torch.randn(s, generator=generator).to(dtype) for s in (shape, shape[-1:]))
        for dtype, own in shapes.items()
        for shape in own
    ]


def pieces_calls() -> list[tuple[Any, ...]]:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    scale = torch.tensor([0.5])
    return [(x, {"scale": scale}, 0.5), (x, {"scale": scale}, 2.0), (x * 2, {"scale": scale}, 2.0, "down")]


def leaves_of(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


def with_gradients(fn: Any, args: tuple[Any, ...]) -> Any:
    """All results, and the gradients of a sum of them."""
    inputs = torch.utils._pytree.tree_map_only(Tensor, lambda t: t.detach().requires_grad_(), args)
    out = fn(*inputs)
    tensors = [o for o in leaves_of(out) if isinstance(o, Tensor)]
    wanted = [a for a in leaves_of(inputs) if isinstance(a, Tensor)]
    total = sum((o.double() * (i + 1)).square().sum() for i, o in enumerate(tensors))
    return out, torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle, and what its functions gave where they were compiled."""
    folder = tmp_path_factory.mktemp("export")
    functions = {"norm": avo_ops.compile(norm), "pieces": avo_ops.compile(pieces)}
    calls = {"norm": norm_calls(), "pieces": pieces_calls()}
    avo_ops.jit.function.prepare_all([(functions[n], args, {}) for n in calls for args in calls[n]])
    expected = {n: [with_gradients(functions[n], args) for args in calls[n]] for n in calls}
    torch.save({"calls": calls, "expected": expected}, folder / "expected.pt")
    avo_ops.export(folder / "bundle", list(functions.values()))
    return folder / "bundle", folder / "expected.pt"


def python(body: str, *args: object, **env: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), **env}
    done = subprocess.run(
        [sys.executable, "-c", body, *map(str, args)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SERVE = """
import sys, warnings, torch
import torch.utils._pytree as pytree
warnings.simplefilter("error")
import avo_ops
bundle, expected = sys.argv[1:]
functions = avo_ops.load(bundle)
assert sorted(functions) == ["norm", "pieces"]
known = torch.load(expected)
def with_gradients(fn, args):
    inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(), args)
    out = fn(*inputs)
    tensors = [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
    wanted = [a for a in pytree.tree_leaves(inputs) if isinstance(a, torch.Tensor)]
    total = sum((o.double() * (i + 1)).square().sum() for i, o in enumerate(tensors))
    return out, torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
for name, calls in known["calls"].items():
    for args, expected in zip(calls, known["expected"][name], strict=True):
        for _ in range(2):  # found, and then looked up
            found, spec = pytree.tree_flatten(with_gradients(functions[name], args))
            other, same = pytree.tree_flatten(expected)
            assert spec == same
            for a, b in zip(found, other, strict=True):
                assert torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b
ran = avo_ops.stats()
assert any("/norm_" in k and "cpu/" in k for k in ran) and any("_backward" in k for k in ran), ran
assert {k for k in ran if k.endswith("definition")} == {"avo_jit::pieces / definition"}, ran  # its cumsum
"""

REST = """
assert "torch._dynamo" not in sys.modules  # it takes a second to import
norm = functions["norm"]
x, w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.rand(4, dtype=torch.float64, requires_grad=True)
def eager(x, w):
    h = x - x.amax(-1, keepdim=True).detach()
    return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * w
first = torch.autograd.grad(norm(x, w).square().sum(), x, create_graph=True)[0]
exact = torch.autograd.grad(eager(x, w).square().sum(), x, create_graph=True)[0]
torch.testing.assert_close(first, exact)
torch.testing.assert_close(torch.autograd.grad(first.sin().sum(), w), torch.autograd.grad(exact.sin().sum(), w))
plain = x.detach(), w.detach()
torch.testing.assert_close(torch.func.jacrev(norm)(*plain), torch.func.jacrev(eager)(*plain))
many = torch.randn(5, 3, 4, dtype=torch.float64)
torch.testing.assert_close(torch.vmap(norm, (0, None))(many, plain[1]), torch.vmap(eager, (0, None))(many, plain[1]))
assert norm(torch.randn(0, 4), torch.randn(4)).shape == (0, 4)
assert not [m for m in sys.modules if m.startswith("avo_ops.generator.")
            and m.rpartition(".")[2] not in ("ir", "replay")], "the generator was needed"
print(norm.plan().splitlines()[0])
avo_ops.freeze()
norm(torch.randn(3, 4), torch.randn(4))
try:
    norm(torch.randn(3, 4), torch.randn(4), 1e-3)
except RuntimeError as error:
    print(error)
"""


def test_another_process_serves_it_without_compiler_or_source(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    out = python(SERVE + REST, *made, CXX="no-such-compiler", AVO_OPS_CACHE=str(tmp_path))
    first, *message = out.splitlines()
    assert first == "norm: 4 graphs"
    text = "\n".join(message)
    assert text.startswith(
        "norm(x: float32[A, B], w: float32[C], eps=0.001 on cpu): no graph of the bundle serves such a call. "
    )
    assert "\n  x: bfloat16[A, B, C], w: bfloat16[D] where w.shape[0] == x.shape[2] on cpu\n" in text
    assert "norm.prepare(...), before avo_ops.export" in text
    assert list(tmp_path.iterdir()) == []  # nothing was compiled


def copy_of(made: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "copy"))


FILES = ("bundle.json", "plan.json", "constants/0.bin", "cpu_*.so", "SHA256SUMS")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "altered", "removed", "empty"])
def test_a_damaged_bundle_is_refused_in_one_sentence(
    made: tuple[Path, Path], tmp_path: Path, name: str, damage: str
) -> None:
    folder = copy_of(made, tmp_path)
    (file,) = folder.glob(name)
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "removed":
        file.unlink()
    else:
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"cut": content[:-1][:middle], "altered": changed, "empty": b""}[damage])
    with pytest.raises(avo_ops.BundleError) as caught:
        avo_ops.load(folder)
    text = str(caught.value)
    assert text.startswith(str(folder))
    assert "\n" not in text
    assert "is damaged: " in text or "there is no readable SHA256SUMS in it" in text
    if name != "SHA256SUMS":
        assert file.name in text


def test_what_is_no_bundle_and_what_was_added_are_refused(made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(avo_ops.BundleError, match="nowhere is no bundle of "):
        avo_ops.load(tmp_path / "nowhere")
    folder = copy_of(made, tmp_path)
    (folder / "more.so").write_bytes(b"")
    with pytest.raises(avo_ops.BundleError, match=r"SHA256SUMS says nothing of more.so"):
        avo_ops.load(folder)


def changed(folder: Path, **values: Any) -> None:
    """Write other values into bundle.json, as an export that had them would."""
    about = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**about, **values}))
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    rest = [line for line in sums if not line.endswith("  bundle.json")]
    own = f"{bundle._sum(folder / 'bundle.json')}  bundle.json"
    (folder / "SHA256SUMS").write_text("\n".join([*rest, own, ""]))


@pytest.mark.parametrize(
    ("values", "reason"),
    [({"avo_ops": "0.0.9"}, rf"was exported by avo_ops 0\.0\.9 \(format {bundle.FORMAT}\), and this is avo_ops .*: export"),
     ({"format": 99}, rf"\(format 99\), and this is avo_ops .* \(format {bundle.FORMAT}\)"),
     ({"torch": "99.1"}, r"was exported with torch 99\.1, and this is torch .*: install a later one")],
)  # fmt: skip
def test_other_versions_are_refused(
    made: tuple[Path, Path], tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    folder = copy_of(made, tmp_path)
    changed(folder)
    avo_ops.load(folder)
    changed(folder, **values)
    with pytest.raises(avo_ops.BundleError, match=reason):
        avo_ops.load(folder)


def test_an_earlier_torch_is_enough_and_the_one_before_is_not(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(made, tmp_path)
    changed(folder, torch="2.9")  # compared as numbers, not as text
    avo_ops.load(folder)
    monkeypatch.setattr(bundle, "torch_version", lambda: (2, 8))
    with pytest.raises(avo_ops.BundleError, match=r"exported with torch 2\.9"):
        avo_ops.load(folder)


def test_a_machine_without_the_instruction_set_is_refused(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = native_library.runtime()
    folder = copy_of(made, tmp_path)
    (kernels,) = folder.glob("cpu_*.so")
    loads: list[str] = []
    monkeypatch.setattr(native, "load_cpu_kernels", lambda path: loads.append(path.name))
    for there, machine, best in (
        ("v4", "v3", None),
        ("v3", "base", None),
        ("v3", "v4", "v3"),
        ("base", "v4", "base"),
    ):
        kernels = kernels.rename(folder / f"cpu_{there}.so")
        lines = (folder / "SHA256SUMS").read_text().splitlines()
        fixed = [f"{line.partition('  ')[0]}  {kernels.name}" if "  cpu_" in line else line for line in lines]
        (folder / "SHA256SUMS").write_text("\n".join([*fixed, ""]))
        changed(folder, cpu=[there])
        monkeypatch.setattr(native, "cpu_isa", lambda machine=machine: machine)
        if best is None:
            match = rf"has CPU kernels for {there} .*, and this machine is {machine}: export with cpu=\('{machine}',\)"
            with pytest.raises(avo_ops.BundleError, match=match):
                avo_ops.load(folder)
        else:
            avo_ops.load(folder)
            assert loads.pop() == f"cpu_{best}.so"


def test_kernels_for_a_lower_instruction_set_serve_here(tmp_path: Path) -> None:
    f = avo_ops.compile(lambda x: x * 3.5, name="lower", example_inputs=(torch.randn(4, 5),))
    avo_ops.export(tmp_path / "b", [f], cpu=("base",))
    body = "import sys, torch, avo_ops; f = avo_ops.load(sys.argv[1])['lower']; f(torch.ones(2, 3)); print(avo_ops.stats())"
    assert "cpu/base/lower_" in python(body, tmp_path / "b")


# ---- calls that no graph serves ----


def test_the_function_itself_serves_what_was_not_exported(made: tuple[Path, Path]) -> None:
    loaded = avo_ops.load(made[0], {"norm": norm})["norm"]
    x, w = torch.randn(3, 4), torch.randn(4)
    avo_ops.reset_stats()
    torch.testing.assert_close(loaded(x, w), norm(x, w))
    assert not any(k.endswith("definition") for k in avo_ops.stats())
    torch.testing.assert_close(loaded(x.half(), w), norm(x.half(), w))
    assert avo_ops.stats()["avo_jit::norm / definition"] == 1
    with avo_ops.strict(), pytest.raises(RuntimeError, match="no graph of the bundle serves such a call"):
        loaded(x.half(), w)
    with pytest.raises(avo_ops.BundleError, match="has no function other: it has norm, pieces"):
        avo_ops.load(made[0], {"other": norm})


@pytest.mark.parametrize(
    "args",
    [(torch.ones(3, 4), torch.ones(1)), (torch.ones(3, 4), torch.ones(5)), (torch.ones(3, 4),), (2.0, 3.0),
     (torch.ones(3, 4), {1})],
    ids=["another size of 1", "sizes that do not fit", "an argument less", "no tensor", "no hash"],
)  # fmt: skip
def test_a_call_that_no_graph_serves_says_what_there_is(made: tuple[Path, Path], args: Any) -> None:
    loaded = avo_ops.load(made[0])["norm"]
    with pytest.raises(
        RuntimeError,
        match=r"^norm\(.*\): no graph of the bundle serves such a call\. .* has\n  x: float32\[A, B\]",
    ):
        loaded(*args)


def test_floats_that_were_numbers_choose_the_graph(made: tuple[Path, Path]) -> None:
    loaded = avo_ops.load(made[0])["pieces"]
    x, more = torch.randn(4, 5), {"scale": torch.tensor([0.5])}
    for power in (0.5, 2.0):
        torch.testing.assert_close(loaded(x, more, power)["y"], pieces(x, more, power)["y"])
    with pytest.raises(RuntimeError, match=r"power=3\.0, .*|power=3\.0 on cpu"):
        loaded(x, more, 3.0)


def test_torch_compile_takes_a_loaded_function_whole(made: tuple[Path, Path]) -> None:
    loaded = avo_ops.load(made[0])["norm"]
    fast = torch.compile(lambda x, w: loaded(x * 2, w) + 1, fullgraph=True, backend="aot_eager")
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    torch.testing.assert_close(fast(x, w), norm(x * 2, w) + 1)
    exact = torch.autograd.grad(norm(x * 2, w).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(fast(x, w).sum(), x), exact)


# ---- what export refuses ----


def test_export_says_what_it_does_not_take(tmp_path: Path) -> None:
    f = avo_ops.compile(gate, example_inputs=(torch.randn(3, 4), torch.randn(3, 4)))
    path = tmp_path / "b"

    def refuses(match: str, functions: Any, **more: Any) -> None:
        with pytest.raises(avo_ops.BundleError, match=match):
            avo_ops.export(path, functions, **more)
        assert not path.exists()

    refuses("takes a list of functions that avo_ops.compile returned", f)
    refuses("takes a list of functions that avo_ops.compile returned", [gate])
    refuses("two functions are called gate", [f, f])
    refuses("fresh has no graph to export: call it", [avo_ops.compile(gate, name="fresh")])
    refuses("'sm_90', at least 'sm_80', but 'sm_75' was given", [f], archs=("sm_75",))
    refuses("gate has graphs for cpu alone: name archs, or instruction sets, for them", [f], cpu=())
    refuses("one of base, v3, v4, but 'avx2' was given", [f], cpu=("avx2",))

    class Mode:
        pass

    odd = avo_ops.compile(lambda x, mode: x * 2, name="odd", example_inputs=(torch.randn(3, 4), Mode()))
    refuses(
        r"odd cannot be exported: x: float32\[A, B\], mode=.* has <.*Mode object.*, which JSON cannot hold",
        [odd],
    )
    for kind in (OrderedDict, functools.partial(defaultdict, int)):  # plain dicts, if JSON held them
        ordered = avo_ops.compile(lambda x, kind=kind: kind({"y": x * 2}), name="ordered")
        ordered.prepare(torch.randn(3, 4))
        refuses("ordered cannot be exported: .*[dD]ict", [ordered])
        taken = avo_ops.compile(lambda more: more["x"] * 2, name="taken")
        taken.prepare(kind({"x": torch.randn(3, 4)}))
        refuses("taken cannot be exported: .*[dD]ict", [taken])
    opaque = avo_ops.compile(lambda x: torch.from_numpy(x.detach().numpy() * 2), name="opaque")
    with pytest.warns(RuntimeWarning, match="runs by plain torch operations"):
        opaque(torch.randn(3, 4))
    refuses("opaque is run by plain torch operations, which no bundle can hold: ", [opaque])
    path.mkdir()
    (path / "mine").write_text("")
    with pytest.raises(avo_ops.BundleError, match="is there, and no bundle: name another place"):
        avo_ops.export(path, [f])
    assert (path / "mine").exists()


def test_a_bundle_is_replaced_as_a_whole_or_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b"
    f = avo_ops.compile(gate, name="one", example_inputs=(torch.randn(3, 4), torch.randn(3, 4)))
    avo_ops.export(path, [f])
    before = (path / "SHA256SUMS").read_text()
    monkeypatch.setattr(bundle, "compile_cpu_library", lambda names, isa: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        avo_ops.export(path, [f])
    assert (path / "SHA256SUMS").read_text() == before
    monkeypatch.undo()
    f.prepare(torch.randn(1, 4), torch.randn(1, 4))
    avo_ops.export(path, [f])
    assert len(avo_ops.load(path)["one"].variants()) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


# ---- as JSON ----


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "torch.load(s)",
        "().__class__",
        "[i for i in s]",
        "s.real",
        "'a' * s",
        "s +",
        "math.__dict__",
    ],
)
def test_a_number_from_sizes_is_arithmetic_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="not arithmetic"):
        program.evaluator(text, ("s",))


def test_numbers_from_sizes() -> None:
    for text, expected in (
        ("2*s1 + s2 // 3", 12),
        ("math.floor(s1 / 2)", 2),
        ("max(s1, s2) if s1 > 4 else 0", 7),
        ("True", True),
    ):
        assert program.evaluator(text, ("s1", "s2"))(5, 7) == expected


@pytest.mark.parametrize(
    "value",
    [
        {"op": "aten.no_such.default"},
        {"dtype": "load"},
        {"dtype": "no_such"},
        {"function": "os.system"},
        {"Program2": {}},
        {"eval": "1"},
    ],
)
def test_what_no_export_writes_is_not_read(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not a value of a bundle|has no operator"):
        codec.decode(value)


def test_values_survive_json() -> None:
    values = (1, True, -0.0, float("inf"), 1j, "text", None, [1, (2,)], {"k": torch.bfloat16, 3: torch.device("cpu")},
              torch.channels_last, torch.strided, torch.ops.aten.add.Tensor, program.Size("2*s", ("s",), ((0, 1),)))  # fmt: skip
    again = codec.decode(json.loads(json.dumps(codec.encode(values))))
    assert again == values
    assert list(map(repr, again)) == list(map(repr, values))
    assert repr(codec.decode(codec.encode(float("nan")))) == "nan"


# ---- CUDA without a GPU ----


def test_the_emulator_runs_the_cuda_kernels_of_a_bundle(tmp_path: Path) -> None:
    f = avo_ops.compile(emulated, example_inputs=(torch.randn(4, 5),))
    avo_ops.export(tmp_path / "b", [f], archs=("emulator",), cpu=())
    body = """
import sys, torch, avo_ops
f = avo_ops.load(sys.argv[1])["emulated"]
x = torch.randn(6, 7, requires_grad=True)
with avo_ops.testing.emulate(sms=3):
    found = f(x)
    (gradient,) = torch.autograd.grad(found.square().sum(), x)
exact = x * torch.sigmoid(x * 1.5)
torch.testing.assert_close(found, exact)
torch.testing.assert_close(gradient, torch.autograd.grad(exact.square().sum(), x)[0])
print(sorted({k.partition(" / ")[2].partition("/")[0] for k in avo_ops.stats()}))
"""
    out = python(body, tmp_path / "b", CXX="no-such-compiler", AVO_OPS_CACHE=str(tmp_path / "cache"))
    assert out == "['cuda']\n"


def has_nvrtc() -> bool:
    try:
        nvrtc.load()
    except nvrtc.NvrtcError:
        return False
    return True


def test_logic_is_traced_for_cuda_without_cuda() -> None:
    def logic(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        return (
            (~m).all(-1, keepdim=True) * x,
            torch.all(x > 0),
            torch.logical_not(x),
            m.logical_not() | m.any(),
        )

    f = avo_ops.compile(logic, example_inputs=(torch.randn(4, 5), torch.ones(4, 5, dtype=torch.bool)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = bundle._Writer([f], True, True)
    assert len(writer.functions["logic"]["graphs"]) == 2


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="torch makes no fake tensor on a second GPU here")
def test_a_graph_of_the_cpu_is_exported_for_cuda_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lifted(x: Tensor, y: Tensor) -> Tensor:
        if x.is_cuda:
            y = y * 2
        return x * y + torch.arange(x.shape[-1], device=x.device)

    f = avo_ops.compile(lifted, example_inputs=(torch.randn(4, 5), torch.randn(4, 5)))
    avo_ops.export(tmp_path / "b", [f], archs=("sm_90",), gradients=False)
    cubins = sorted(p.name for p in (tmp_path / "b" / "sm_90").iterdir())
    assert cubins
    assert all("_forward" in name and "__f32" in name for name in cubins)
    assert (tmp_path / "b" / "sm_90" / cubins[0]).read_bytes()[:4] == b"\x7fELF"
    loaded = avo_ops.load(tmp_path / "b")["lifted"]
    assert len(loaded.variants()) == 2
    x = torch.randn(3, 4)
    torch.testing.assert_close(loaded(x, x), lifted(x, x))
    present = [(9, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: present[0])
    with FakeTensorMode():
        one = torch.empty(3, 4, device="cuda:1")
        out = loaded(one, one)  # arange is made where the call is, not where the example was
        assert (out.device, out.shape) == (one.device, (3, 4))
        present[0] = (10, 0)
        other = torch.empty(3, 4, device="cuda:0")
        with pytest.raises(
            RuntimeError, match=r"cuda:0 is sm_100, and the kernels are for sm_90: export for it too"
        ):
            loaded(other, other)
    on_cpu, on_cuda = (v.operators for v in loaded.variants())
    assert on_cpu != on_cuda  # it was traced for CUDA, where y is doubled


@pytest.mark.parametrize(
    ("fn", "x", "w"),
    [(norm, torch.float32, torch.float32), (norm, torch.bfloat16, torch.float32), (norm, torch.float64, torch.float64),
     (rounded, torch.bfloat16, torch.float32), (rounded, torch.float16, torch.bfloat16)],
)  # fmt: skip
def test_every_cuda_kernel_that_a_call_may_need_is_exported(fn: Any, x: torch.dtype, w: torch.dtype) -> None:
    f = avo_ops.compile(fn)
    f.prepare(torch.randn(4, 5, dtype=x), torch.randn(5, dtype=w))
    (variant,) = f.variants()
    (step,) = [s for s in variant.composite.program.steps if isinstance(s, program.KernelStep)]
    made = known_operator(step.op)
    exported = set(bundle._units_for(made.operator["ops"], made.records, {step.dtypes}))
    forward = set(bundle._units_for(made.operator["ops"][:2], made.records, {step.dtypes}))
    everything = {
        v["unit"] for fam in made.records.values() for rows in fam["variants"].values() for v in rows
    }
    assert forward < exported < everything
    seen: set[str] = set()
    for rows, n in ((3, 5), (4096, 768), (7, 1000), (4096, 4096), (2, 20000), (8, 65536), (1, 300000)):
        for wanted in ((True, True), (True, False), (False, True)):
            args = [torch.empty(rows, n, dtype=x, device="meta"), torch.empty(n, dtype=w, device="meta")]
            for a, need in zip(args, wanted, strict=True):
                a.requires_grad_(need)
            for call in avo_ops.explain(f"avo_jit::{step.op}", *args, on="sm_90").calls:
                assert call.path != "definition", call
                names = {k.name for k in call.kernels}
                assert names <= exported
                assert names <= forward or call.op.endswith("_backward")
                seen |= names
    assert len(seen) > 10 or x == torch.float64


# ---- the example ----


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "your_own_op.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in (
        "kernel  gated_norm_",
        "no line departs",
        "gated_norm(x: float32[A, B], ",
        "projected: not supported\n",
        "served without source or compiler:\n  avo_jit::gated_norm_",
        "what was not exported:\ngated_norm(x: float64",
    ):
        assert text in done.stdout, text
    assert "definition" not in done.stdout
