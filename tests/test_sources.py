"""The committed sources in generated/: fresh, the same on any machine, true to the plan, and CUDA that compiles."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from avo_ops import plan_file
from avo_ops.definitions import CATALOGUE, LISTS
from avo_ops.generator import build, nvrtc
from avo_ops.jit import GeneratorCompiler
from avo_ops.registry.layout import NAMED as NAMED_DTYPES
from avo_ops.registry.store import KernelStore

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "generated"
PLAN: dict[str, Any] = plan_file.load(FOLDER)
FAMILIES: dict[str, Any] = PLAN["families"]
OPS = [op for operator in PLAN["operators"] for op in operator["ops"]]
DTYPES = ("f32", "f16", "bf16", "f64")
PAIRS = (*((dtype, dtype) for dtype in DTYPES), ("f16", "f32"), ("bf16", "f32"))
# A step's parameters with a name say where it is looked up: among what kinds of arguments and returns.
NAMED = ("ptr", "stride", "step", "scalar")
PLAIN = ("M", "N", "aligned", "partials", "groups", "run", "runs", "channels")


def families_of_rare_cases() -> set[str]:
    """Families of cases alone in which an optional column operand is given without one that stands before it."""
    rare: set[str] = set()
    usual: set[str] = set()
    for op in OPS:
        optional = [a for a in op["args"] if a["kind"] == "tensor" and a["optional"]]
        for case in op["cases"]:
            given = [
                bool(k) for a, k in zip(optional, case["key"], strict=False) if a["span"] == "N"
            ]  # the tensors stand first in every schema
            group = usual if given == sorted(given, reverse=True) else rare
            group |= {step["family"] for a in case["cuda"] for step in a["steps"]}
    return rare - usual


RARE = families_of_rare_cases()

each_op = pytest.mark.parametrize("op", OPS, ids=[op["name"] for op in OPS])
each_operator = pytest.mark.parametrize(
    "operator", PLAN["operators"], ids=[o["name"] for o in PLAN["operators"]]
)
each_family = pytest.mark.parametrize("family", FAMILIES)


def has_nvrtc() -> bool:
    try:
        nvrtc.load()
    except nvrtc.NvrtcError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")

# ---- fresh, and the same everywhere ----


def test_what_is_committed_is_fresh_and_the_same_everywhere() -> None:
    """Where sets have another order and the current folder is another. `make check-generated` compares in the usual way."""
    program = (
        "from avo_ops.generator.pipeline import generate\n"
        "from tests.test_sources import CATALOGUE, FOLDER, LISTS, PLAN, build\n"
        "found = generate(CATALOGUE, LISTS)\n"
        "assert found.plan == PLAN\n"
        "print(build.stale(found.files, FOLDER))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": str(ROOT), "AVO_OPS_GENERATED": ""}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert (result.stdout.strip(), result.returncode) == ("[]", 0), (
        result.stderr or "run: python -m avo_ops generate"
    )


def test_stale_and_write(tmp_path: Path) -> None:
    files = {"plan.json": "{}", "cpu/a.cpp": "a"}
    assert build.write(files, tmp_path) == ["cpu/a.cpp", "plan.json"]
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/k.cubin").write_bytes(b"compiled, not generated")
    assert build.stale(files, tmp_path) == []
    (tmp_path / "cpu/a.cpp").write_text("changed")
    (tmp_path / "cpu/old.cpp").write_text("no longer generated")
    assert build.stale(files, tmp_path) == ["cpu/a.cpp", "cpu/old.cpp"]
    assert build.write(files, tmp_path) == ["cpu/a.cpp", "cpu/old.cpp"]
    assert build.stale(files, tmp_path) == [] and not (tmp_path / "cpu/old.cpp").exists()


def test_small_enough_for_a_review() -> None:
    paths = [FOLDER / "plan.json", *FOLDER.glob("c*/*")]
    sources = {record["source"] for record in FAMILIES.values()} | {build.list_source(r.name) for r in LISTS}
    assert set(FOLDER.glob("cuda/*")) == {FOLDER / source for source in sources}
    assert sum(path.stat().st_size for path in paths) < 2_500_000


# ---- the plan keeps its contract ----


def cases(op: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The cases of an op, each with all its steps."""
    for case in op["cases"]:
        yield case, [step for alternative in case["cuda"] for step in alternative["steps"]]


def test_the_plan_states_the_catalogue() -> None:
    assert PLAN["version"] == plan_file.VERSION
    assert [o["name"] for o in PLAN["operators"]] == [record.name for record in CATALOGUE]
    assert [entry["name"] for entry in PLAN["lists"]] == [record.name for record in LISTS]
    names = [op["name"] for op in [*OPS, *PLAN["lists"]]]
    assert len(names) == len(set(names))


@each_operator
def test_autograd_of_an_operator(operator: dict[str, Any]) -> None:
    ops, autograd = operator["ops"], operator["autograd"]
    public, forward = ops[0], ops[1]
    suffixes = ["", "_forward", "_backward"][: len(ops)]
    assert [op["name"] for op in ops] == [operator["name"] + suffix for suffix in suffixes]
    assert forward["args"] == public["args"]
    assert forward["returns"][: len(public["returns"])] == public["returns"]
    assert set(autograd["gradients"]) == set(autograd["differentiable"])
    tensors = {arg["name"] for arg in public["args"] if arg["kind"] == "tensor"}
    assert set(autograd["differentiable"]) <= tensors
    if len(ops) == 2:
        assert not autograd["differentiable"]
        return
    backward = ops[2]
    assert set(autograd["gradients"].values()) == set(range(len(backward["returns"])))
    for saved in autograd["saved"]:
        if saved["kind"] == "arg":
            assert saved["name"] in tensors
        else:
            assert 0 <= saved["index"] < len(forward["returns"])
    # grads of the public results, saved tensors, what is no tensor, mask
    kinds = [arg["kind"] for arg in backward["args"]]
    count = len(public["returns"]) + len(autograd["saved"])
    assert kinds[:count] == ["tensor"] * count
    others = [arg for arg in public["args"] if arg["kind"] != "tensor"]
    assert [(a["name"], a["kind"]) for a in backward["args"][count:-1]] == [
        (a["name"], a["kind"]) for a in others
    ]
    assert backward["args"][-1] == {"name": "mask", "kind": "mask", "length": len(backward["returns"])}


@each_op
def test_every_combination_of_optional_arguments_is_one_case(op: dict[str, Any]) -> None:
    count = 1
    grads = [
        a for a in op["args"] if a["kind"] == "tensor" and a["optional"] and a["name"].startswith("grad_")
    ]
    for arg in op["args"]:
        match arg["kind"]:
            case "tensor":
                count *= 2 if arg["optional"] else len(arg.get("narrow", [0]))
            case "str":
                count *= len(arg["choices"])
            case "mask":
                count *= 2 ** arg["length"]
    if grads:  # of the gradients of several results, one comes at least
        count -= count // 2 ** len(grads)
    keys = [tuple(case["key"]) for case in op["cases"]]
    assert len(keys) == len(set(keys)) == count
    assert all(len(case["returns"]) == len(op["returns"]) for case in op["cases"])


@each_op
def test_names_of_an_op_are_its_own(op: dict[str, Any]) -> None:
    args = {arg["name"]: arg for arg in op["args"]}
    returns = {r["name"] for r in op["returns"]}
    assert len(args) == len(op["args"]) and len(returns) == len(op["returns"]) and not returns & set(args)
    assert args and op["args"][op["primary"]]["span"] == "MN"
    for r in op["returns"]:
        assert r["dtype"] == "compute" or r["dtype"] in NAMED_DTYPES or {*r["dtype"].split("|")} <= {*args}
        assert not {*NAMED_DTYPES} & {*args}
        by_string = args.get(r["dtype"], {}).get("choices")
        assert by_string is None or {*by_string} <= {*NAMED_DTYPES}
    rule, arg = op["columns"]["rule"], op["columns"].get("arg")
    assert (arg is None) == (rule in ("flat", "last"))
    if arg is not None:
        assert op["args"][arg]["kind"] == {"trailing": "ints", "dim": "int", "groups": "int"}[rule]
    # Kernels see the parts of a packed tensor, and not the whole.
    packed = {x["name"]: x["parts"] for x in (*op["args"], *op["returns"]) if x.get("parts")}
    parts = [part for own in packed.values() for part in own]
    assert len(parts) == len(set(parts)) and not {*parts} & {*args, *returns}
    returns |= {part for r in returns & set(packed) for part in packed[r]}
    tensors = {name for name, a in args.items() if a["kind"] == "tensor"} | returns | statistics_of(op)
    tensors, returns = (tensors | {*parts}) - set(packed), returns - set(packed)
    numbers = {name for i, (name, a) in enumerate(args.items()) if a["kind"] in ("float", "int") and i != arg}
    for case, steps in cases(op):
        if case["cpu"]:
            assert set(case["cpu"]["operands"]) <= tensors and set(case["cpu"]["scalars"]) <= numbers
            assert set(case["cpu"]["sums"]) <= returns and case["cpu"]["class"] in ("row", "pointwise")
        for step in steps:
            assert step["family"] in FAMILIES
            for kind, *name in step["params"]:
                assert kind in NAMED if name else kind in PLAIN
                assert not name or name[0] in (numbers if kind == "scalar" else tensors), (kind, name)


def statistics_of(op: dict[str, Any]) -> set[str]:
    """Row statistics that only the forward op returns: its kernels serve the public op with null in their place."""
    forward = [other for other in OPS if other["name"] == f"{op['name']}_forward"]
    return {r["name"] for other in forward for r in other["returns"] if r["span"] == "M"}


@each_op
def test_alternatives_end_in_one_for_every_width(op: dict[str, Any]) -> None:
    for case, _ in cases(op):
        if not any(case["returns"]):
            assert case["cpu"] is None and case["cuda"] == []
            continue
        assert case["cpu"] is not None and case["cuda"]
        last = case["cuda"][-1]
        assert last["when"] == "rows" and last["limit"] is None and last["min_arch"] == 0
        for when in ("flat", "rows"):
            limited = [a for a in case["cuda"] if a["when"] == when and a["limit"]]
            assert all(set(a["limit"]) == set(DTYPES) for a in limited)
            # The first that applies is taken: one whose limits are not larger for some dtype would never apply.
            for one, following in itertools.pairwise([a["limit"] for a in limited if a["min_arch"] == 0]):
                assert all(0 < one[dtype] <= following[dtype] for dtype in DTYPES) and one != following


@each_op
def test_partials_are_made_before_they_are_finished(op: dict[str, Any]) -> None:
    for case, _ in cases(op):
        for alternative in case["cuda"]:
            pending = 0
            for step in alternative["steps"]:
                family, words = FAMILIES[step["family"]], [param[0] for param in step["params"]]
                if family["class"] == "finish":
                    assert pending == family["sums"] > 0 and "groups" in words and "partials" in words
                    pending = 0
                else:
                    assert pending == 0 and ("partials" in words) == (family["sums"] > 0)
                    pending = family["sums"]
            assert pending == 0


@each_family
def test_variants_cover_every_width_once(family: str) -> None:
    record = FAMILIES[family]
    assert record["class"] in ("flat", "row", "loop", "column", "runs", "finish")
    assert (FOLDER / record["source"]).is_file()
    dtypes = {",".join(pair) for pair in PAIRS} if "," in next(iter(record["variants"])) else set(DTYPES)
    if family.endswith("_cluster"):  # rows that one block cannot hold, of the dtypes that models run
        dtypes -= {"f64", "f64,f64"}
        dtypes -= set() if family in RARE else {"f16,f32", "bf16,f32"}
    if (
        family in RARE
    ):  # an operand where one before it was due: hardly ever called, so column operands are widened
        dtypes -= {"f16,f16", "bf16,bf16"}
    assert set(record["variants"]) == dtypes or record["class"] == "finish"
    for variants in record["variants"].values():
        exact = [v["exact"] for v in variants if isinstance(v["exact"], int)]
        assert len(exact) == len(set(exact))
        generic = [v for v in variants if v["exact"] is None]
        assert generic[0]["min_n"] == 1 or (family.endswith("_cluster") and generic[0]["min_n"] > 4096)
        for one, following in itertools.pairwise(generic):
            assert following["min_n"] == one["max_n"] + 1
        assert all(v["min_n"] <= v["max_n"] for v in generic)
        for v in variants:
            assert v["block"] % 32 == 0 and 32 <= v["block"] <= 1024 and v["vec"] in (1, 2, 4, 8, 16)
            assert v["smem"] <= 227 * 1024 and 1 <= v["cluster"] <= 16
            assert v["rows"] >= 1 or record["class"] == "finish"
            assert v["symbol"] in v["instantiate"]
            assert v["exact"] in (None, "chunks", "few", "odd") or v["min_n"] == v["max_n"] == v["exact"]
            assert v["vec"] == 1 or v["exact"] != "odd"
        # Rows that are not have some up to a width.
        odd = [v for v in variants if v["exact"] == "odd"]
        assert not odd or odd[0]["min_n"] == 1
        for one, following in itertools.pairwise(odd):
            assert following["min_n"] == one["max_n"] + 1
        # Rows of whole chunks have kernels of their own for all of those widths.
        whole = [v for v in variants if v["exact"] == "chunks"]
        if whole:
            assert (whole[0]["min_n"], whole[-1]["max_n"]) == (generic[0]["min_n"], generic[-1]["max_n"])
            for one, following in itertools.pairwise(whole):
                assert following["min_n"] == one["max_n"] + 1


def test_a_limit_is_what_the_variants_reach() -> None:
    checked = 0
    for op in OPS:
        for case, _ in cases(op):
            for alternative in case["cuda"]:
                for step in alternative["steps"] if alternative["limit"] else ():
                    for dtypes, variants in FAMILIES[step["family"]]["variants"].items():
                        assert variants[-1]["max_n"] >= alternative["limit"][dtypes.partition(",")[0]]
                        checked += 1
    assert checked > 100


def test_a_symbol_is_one_kernel() -> None:
    spelled: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, family in FAMILIES.items():
        for variants in family["variants"].values():
            for v in variants:
                assert spelled.setdefault(v["symbol"], v["instantiate"]) == v["instantiate"]
                assert owner.setdefault(v["symbol"], name) == name
    assert len(spelled) > 500


def test_every_family_is_used() -> None:
    used = Counter(step["family"] for op in OPS for _, steps in cases(op) for step in steps)
    assert set(used) == set(FAMILIES)


# ---- CPU ----


def test_the_library_has_every_cpu_kernel() -> None:
    wanted = {case["cpu"]["symbol"] for op in OPS for case in op["cases"] if case["cpu"]}
    wanted |= {entry["cpu"][kernel] for entry in PLAN["lists"] for kernel in ("numbers", "elements")}
    path = ROOT / "avo_ops" / "lib" / "libavo_cpu.so"
    if not path.exists():
        pytest.fail("the package is not built: make build")

    class Entry(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("f32", ctypes.c_void_p), ("f64", ctypes.c_void_p))

    library = ctypes.CDLL(str(path))
    for isa in ("base", "v3", "v4"):  # the tables are data and constants: any processor may ask
        if isa == "v4" and "avx512" not in Path("/proc/cpuinfo").read_text():
            continue
        table = getattr(library, f"avo_cpu_kernels_{isa}")
        table.restype, count = ctypes.POINTER(Entry), ctypes.c_int()
        entries = table(ctypes.byref(count))
        names = [entries[i].name.decode() for i in range(count.value)]
        assert len(names) == len(set(names)) and set(names) == wanted
        assert all(entries[i].f32 and entries[i].f64 for i in range(count.value))


# ---- CUDA ----


@pytest.fixture(scope="session")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packaged for sm_90. `make build` has made it where no GPU is: the files are only compared then."""
    out = (
        FOLDER / "kernels" if (FOLDER / "kernels" / "sm_90").is_dir() else tmp_path_factory.mktemp("kernels")
    )
    totals = build.compile_all(PLAN, FOLDER, out, ["sm_90"])
    assert totals["units"] == len(PACKAGED)
    return out / "sm_90"


PACKAGED = [unit.name for unit in build.packaged_units(PLAN)]


@needs_nvrtc
@pytest.mark.xdist_group("cubins")
@pytest.mark.parametrize("family", PACKAGED)
def test_a_family_compiles_for_sm_90(cubins: Path, family: str) -> None:
    record = FAMILIES[family]
    packaged = {v["symbol"] for rows in record["variants"].values() for v in rows if v["unit"] is None}
    assert kernels_of((cubins / f"{family}.cubin").read_bytes()) == packaged


def kernels_of(cubin: bytes) -> set[str]:
    assert cubin[:4] == b"\x7fELF"
    return {m[1].decode() for m in re.finditer(rb"\0\.text\.([A-Za-z0-9_]+)(?=\0)", cubin)}


def test_units_have_each_kernel_once() -> None:
    for family, record in FAMILIES.items():
        units = build.units_of(family, FAMILIES[family])
        variants = [v for rows in record["variants"].values() for v in rows]
        assert sorted(line for unit in units for line in unit.lines if unit.packaged) == sorted(
            {v["instantiate"] for v in variants if v["unit"] is None}
        )
        assert {line for unit in units for line in unit.lines} == {v["instantiate"] for v in variants}
        assert {u.name for u in units if not u.packaged} == {v["unit"] for v in variants} - {None}
        assert [u.name for u in units if u.packaged] in ([family], [])
        # float64, a bias without the weight before it, and rows that are not whole chunks are not packaged.
        for dtypes, rows in record["variants"].items():
            for v in rows:
                odd = v["exact"] in (None, "odd") and any(r["exact"] == "chunks" for r in rows)
                assert v["unit"] or not (odd or dtypes.startswith("f64") or family in RARE), v


@pytest.mark.parametrize(
    ("family", "packaged"),
    [
        ("layer_norm_forward_weight_bias", {"f32,f32", "bf16,bf16", "bf16,f32"}),
        ("layer_norm_backward_weight_to_x", {"f32,f32", "bf16,bf16", "bf16,f32"}),
        ("gelu_forward_tanh", {"f32", "f16", "bf16"}),
        # Rare: a bias alone, one gradient of two, no gradient of the residual, a norm's string that is not the default.
        ("layer_norm_forward_bias", set()),
        ("swiglu_backward_to_up", set()),
        ("add_layer_norm_backward_weight_from_y", set()),
        ("rms_norm_forward_weight_one_plus_weight", set()),
    ],
)
def test_what_is_packaged(family: str, packaged: set[str]) -> None:
    variants = FAMILIES[family]["variants"]
    assert {d for d, rows in variants.items() if any(v["unit"] is None for v in rows)} == packaged


def test_all_variants_are_packaged_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVO_OPS_VARIANTS", "all")
    every = [u.name for family in FAMILIES for u in build.units_of(family, FAMILIES[family])]
    assert [u.name for u in build.packaged_units(PLAN)] == every and len(every) > len(PACKAGED)
    monkeypatch.setenv("AVO_OPS_VARIANTS", "f64")
    with pytest.raises(ValueError, match="AVO_OPS_VARIANTS: 'f64'"):
        build.packaged_units(PLAN)


@needs_nvrtc
@pytest.mark.parametrize(
    "family", ["silu_backward", min(sorted(RARE), key=lambda f: len(build.units_of(f, FAMILIES[f])[0].lines))]
)
def test_what_is_not_packaged_compiles_when_asked_for(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVO_OPS_GENERATED", str(FOLDER))
    store = KernelStore(None, tmp_path, GeneratorCompiler())
    rows = [v for rows in FAMILIES[family]["variants"].values() for v in rows if v["unit"]]
    for unit in {v["unit"] for v in rows}:
        found = store.resolve(unit, 90)
        assert found is not None
        assert kernels_of(Path(found).read_bytes()) == {v["symbol"] for v in rows if v["unit"] == unit}


def test_a_kernel_for_several_strides_has_them_of_all_that_it_reads() -> None:
    for name, record in FAMILIES.items():
        if record["class"] in ("flat", "finish"):
            continue
        strides = {word[0] for kind, *word in FAMILIES.params(name) if kind == "stride"}
        usual = (FOLDER / record["source"]).read_text()
        variant = next(v for rows in record["variants"].values() for v in rows)
        text = build.with_row_strides(f"{usual}{variant['instantiate']}\n", variant["symbol"])
        head, body = text.split("namespace avo {", 1)
        read = set(re.findall(r"RowStrides (\w+)_stride\b", head))
        written = set(re.findall(r"int64_t (\w+)_stride\b", head))
        assert read | written == strides and not read & written and read, name
        constant = set(re.findall(r"const \w+\* __restrict__ (\w+)_ptr", head))
        assert read <= constant and not written & constant, name
        # But for these it is the text of the usual kernel.
        own = f"{variant['symbol']}_strided"
        instantiated = variant["instantiate"].replace(variant["symbol"], own)
        assert body == f"{usual.split('namespace avo {', 1)[1]}{instantiated}\n", name


@needs_nvrtc
@pytest.mark.parametrize("kind", ["row", "loop", "column", "runs"])
def test_kernels_for_several_strides_compile(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AVO_OPS_GENERATED", str(FOLDER))
    family = min(
        (f for f in FAMILIES if FAMILIES[f]["class"] == kind),
        key=lambda f: (FOLDER / FAMILIES[f]["source"]).stat().st_size,
    )
    symbol = next(v["symbol"] for rows in FAMILIES[family]["variants"].values() for v in rows)
    found = KernelStore(None, tmp_path, GeneratorCompiler()).resolve(f"{symbol}_strided", 90)
    assert found is not None and kernels_of(Path(found).read_bytes()) == {f"{symbol}_strided"}


@needs_nvrtc
@pytest.mark.parametrize("arch", build.RELEASE_ARCHS)
def test_release_archs(arch: str, tmp_path: Path) -> None:
    flat = [family for family in FAMILIES if FAMILIES[family]["class"] == "flat"]
    only = min(flat, key=lambda family: (FOLDER / FAMILIES[family]["source"]).stat().st_size)
    totals = build.compile_all(PLAN, FOLDER, tmp_path, [arch], jobs=1, only=[only])
    assert totals["compiled"] == totals["units"] == 1
    (made,) = [p for p in (tmp_path / arch).iterdir() if p.suffix != ".stamp"]
    if arch.startswith("sm_"):
        assert made.name == f"{only}.cubin" and made.read_bytes()[:4] == b"\x7fELF"
    else:
        assert (
            made.name == f"{only}.ptx"
            and f".target {arch.replace('compute', 'sm')}" in made.read_text().rstrip("\0")
        )
    again = build.compile_all(PLAN, FOLDER, tmp_path, [arch], jobs=1, only=[only])
    assert again["compiled"] == 0 and again["bytes"] == totals["bytes"] == made.stat().st_size


@needs_nvrtc
def test_a_family_is_compiled_anew_if_it_changed(tmp_path: Path) -> None:
    family = "silu_forward"
    sources = tmp_path / "sources"
    target = sources / FAMILIES[family]["source"]
    target.parent.mkdir(parents=True)
    target.write_text((FOLDER / FAMILIES[family]["source"]).read_text())
    out = tmp_path / "out"

    def compiled() -> int:
        return int(build.compile_all(PLAN, sources, out, ["sm_90"], jobs=1, only=[family])["compiled"])

    assert compiled() == 1 and compiled() == 0
    target.write_text("// another comment\n" + target.read_text())
    assert compiled() == 1
    target.write_text(target.read_text() + "\n#error planted\n")
    with pytest.raises(nvrtc.NvrtcError, match="planted"):
        compiled()


@pytest.mark.parametrize(
    ("named", "present", "expected"),
    [
        ("", [], ("sm_90",)),
        ("", ["sm_80", "sm_100", "sm_80"], ("sm_80", "sm_100")),
        ("none", ["sm_80"], ()),
        ("release", ["sm_75"], build.RELEASE_ARCHS),
        ("sm_90, sm_100;compute_80", [], ("sm_90", "sm_100", "compute_80")),
        ("sm_90a", [], ("sm_90a",)),
    ],
)
def test_archs_to_build(
    named: str, present: list[str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVO_OPS_ARCHS", named)
    assert build.archs_to_build(lambda: present) == expected


@pytest.mark.parametrize("wrong", ["hopper", "sm90", "9.0", "sm_x"])
def test_archs_to_build_refuses(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVO_OPS_ARCHS", f"sm_90,{wrong}")
    with pytest.raises(ValueError, match=re.escape(wrong)):
        build.archs_to_build()
