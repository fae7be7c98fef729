"""Writes or checks ``generated/`` and compiles its CUDA families to cubins."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import plan_file
from . import nvrtc

PACKAGE = Path(__file__).resolve().parent.parent
CSRC = PACKAGE / "csrc"

# --fmad=false: contraction happens where the IR says fma and nowhere else, so that all variants agree to the bit.
FLAGS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
RELEASE_ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "compute_80")


def generated_folder() -> Path:
    """Where the generated sources are: AVO_OPS_GENERATED, the installed package, or the repository."""
    named = os.environ.get("AVO_OPS_GENERATED")
    if named:
        return Path(named)
    installed = PACKAGE / "_generated"
    return installed if (installed / "plan.json").exists() else PACKAGE.parent / "generated"


def write(files: dict[str, str], folder: Path) -> list[str]:
    """Write the files that differ, remove the ones that are no longer generated; the changed paths."""
    changed = stale(files, folder)
    for path in changed:
        target = folder / path
        if path not in files:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(target.suffix + f".{os.getpid()}")
        temporary.write_text(files[path])
        temporary.replace(target)
    return changed


def stale(files: dict[str, str], folder: Path) -> list[str]:
    """Paths whose content on disk is not what would be generated (missing and left-over files included)."""
    present = {
        str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "kernels" not in p.parts
    }
    return sorted(
        {p for p, text in files.items() if p not in present or (folder / p).read_text() != text}
        | {p for p in present if p not in files}
    )


@dataclass(frozen=True)
class Unit:
    """What is compiled together: a family's packaged variants, or some of one of its dtypes that wait for a call."""

    name: str
    source: str  # path of the template
    lines: tuple[str, ...]  # that instantiate its kernels
    packaged: bool

    def text(self, folder: Path) -> str:
        """The text that is compiled."""
        return self.text_with((folder / self.source).read_text())

    def text_with(self, template: str) -> str:
        """The template and one line for each variant."""
        return template + "\n" + "\n".join(self.lines) + "\n"


def units_of(family: str, record: Mapping[str, Any]) -> list[Unit]:
    """The units of a family, by its entry of the plan."""
    lines: dict[str, dict[str, str]] = {}
    for rows in record["variants"].values():
        for v in rows:
            lines.setdefault(v["unit"] or family, {})[v["symbol"]] = v["instantiate"]
    return [
        Unit(name, str(record["source"]), tuple(own[s] for s in sorted(own)), packaged=name == family)
        for name, own in lines.items()
    ]


def exact_kernel(family: str, row: Mapping[str, Any], n: int) -> tuple[str, str]:
    """The kernel for rows of ``n`` columns that has the thread map of a variant for whole chunks, and so its bits.

    Its symbol, and the line that instantiates it. As ``schedule.exact_tile``: no vector more than the width needs.
    """
    given = str(row["instantiate"]).removesuffix(")").split(", ")[1:]
    *before, threads, _, kind, ahead = given
    if kind != "kWholeChunks":
        raise ValueError(f"{row['symbol']} is no kernel for whole chunks")
    vectors = -(-n // (int(threads) * int(row["vec"])))
    arguments = ", ".join([*before, threads, str(vectors), str(n), ahead])
    symbol = plan_file.symbol_of(family, arguments)
    return symbol, f"AVO_KERNEL({symbol}, {arguments})"


def packaged_units(plan: Mapping[str, Any]) -> list[Unit]:
    """The units that a build compiles: all of them if AVO_OPS_VARIANTS is "all".

    Raises:
        ValueError: AVO_OPS_VARIANTS is anything else.
    """
    named = os.environ.get("AVO_OPS_VARIANTS", "")
    if named not in ("", "all"):
        raise ValueError(f'AVO_OPS_VARIANTS: {named!r} is neither empty nor "all"')
    return [
        u
        for f, record in plan["families"].items()
        for u in units_of(f, record)
        if u.packaged or named == "all"
    ]


def family_source(family: str, entry: Mapping[str, Any], folder: Path) -> str:
    """The template of a family, of which the plan has this entry, and one line for each of its variants."""
    units = units_of(family, entry)  # of which several may have the same kernel
    lines = dict.fromkeys(line for unit in units for line in unit.lines)
    return replace(units[0], lines=tuple(lines)).text(folder)


def headers_digest() -> str:
    """A digest of the device headers, which every family includes."""
    digest = hashlib.sha256()
    for path in sorted([*(CSRC / "device").glob("*.cuh"), *(CSRC / "common").glob("*.h")]):
        for part in (path.name.encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def compile_source(name: str, source: str, arch: str) -> bytes:
    """Compile the text of one family for ``arch``.

    Raises:
        NvrtcError: no NVRTC, or the source does not compile.
    """
    return nvrtc.load().compile(
        source, name=f"{name}.cu", arch=arch, options=[*FLAGS, f"--include-path={CSRC}"]
    )


def compile_unit(unit: str, arch: str) -> bytes:
    """Compile one unit of the catalogue for ``arch`` ("sm_90"), as the kernel store asks for it at run time."""
    return compile_source(unit, unit_text(unit), arch)


def unit_inputs(unit: str, arch: str) -> list[bytes]:
    """All that decides the cubin of a unit: source, headers, flags, arch and compiler version."""
    return source_inputs(unit_text(unit), arch)


def source_inputs(source: str, arch: str) -> list[bytes]:
    """All that decides the cubin of a text: itself, headers, flags, arch and compiler version."""
    return [p.encode() for p in (source, headers_digest(), *FLAGS, arch, repr(nvrtc.load().version))]


# What follows the name of a kernel, and is the name of its unit, if it is made for operands of several row strides.
STRIDED = "_strided"
_STRIDE_OF_INPUT = re.compile(r"(const \w+\* __restrict__ (\w+)_ptr,[\s\\]+)int64_t(?= \2_stride\b)")


def with_row_strides(text: str, symbol: str) -> str:
    """The text of a unit of one kernel, made for operands whose rows have several strides: those that it reads.

    Such a kernel is a unit of its own, compiled when a call first needs it; all others are spared the arithmetic. What it does
    with a stride, ``device/strides.cuh`` does with several.
    """
    strided, count = _STRIDE_OF_INPUT.subn(r"\1RowStrides", text)
    if not count:
        raise ValueError(f"{symbol} reads no operand of rows")
    strided = strided.replace(
        '#include "device/avo.cuh"\n', '#include "device/avo.cuh"\n#include "device/strides.cuh"\n', 1
    )
    return strided.replace(f"AVO_KERNEL({symbol},", f"AVO_KERNEL({symbol}{STRIDED},")


def unit_text(name: str) -> str:
    """The text of a unit of the catalogue."""
    folder = generated_folder()
    plan = plan_file.load(folder)
    if is_of_lists(plan, name):
        return list_unit_text(name, folder)
    families = plan["families"]
    symbol = name.removesuffix(STRIDED)
    family = name if name in families else symbol.rpartition("__")[0]
    if symbol != name:
        rows = families[family]["variants"].values()
        line = next(v["instantiate"] for variants in rows for v in variants if v["symbol"] == symbol)
        alone = Unit(symbol, families[family]["source"], (line,), packaged=False)
        return with_row_strides(alone.text(folder), symbol)
    (unit,) = [u for u in units_of(family, families[family]) if u.name == name]
    return unit.text(folder)


def is_of_lists(plan: Mapping[str, Any], unit: str) -> bool:
    """Whether a unit is of an operator over lists: that name, and the dtype of each operand."""
    return any(entry["name"] == unit.rpartition("__")[0] for entry in plan["lists"])


def list_unit_text(unit: str, folder: Path) -> str:
    """The source of such a unit: the step of a tensor, and its kernel for these dtypes."""
    name, _, dtypes = unit.rpartition("__")
    source = (folder / list_source(name)).read_text()
    return f"{source}\nAVO_LIST_KERNEL({unit}, {name}, {', '.join(dtypes.split('_'))})\n"


def list_kernels(plan: Mapping[str, Any], unit: str) -> list[str]:
    """The kernels of such a unit."""
    (entry,) = [entry for entry in plan["lists"] if entry["name"] == unit.rpartition("__")[0]]
    return [unit, f"{unit}_finish"] if entry["reduces"] else [unit]


def list_source(name: str) -> str:
    """Where the source of an operator over lists is, in ``generated/``."""
    return f"cuda/{name}.cu"


def file_name(unit: str, arch: str) -> str:
    """What the file of a unit is called in the folder of an arch."""
    return f"{unit}.{'cubin' if arch.startswith('sm_') else 'ptx'}"


def _compile_to(job: tuple[str, str, str, str]) -> tuple[str, str, float, int]:
    unit, arch, source, path = job
    start = time.perf_counter()
    data = compile_source(unit, source, arch)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(target)
    return unit, arch, time.perf_counter() - start, len(data)


def compile_all(
    plan: dict[str, Any],
    sources: Path,
    out: Path,
    archs: Iterable[str],
    *,
    jobs: int | None = None,
    only: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Compile every packaged unit for every arch into ``out/<arch>/<unit>.cubin``; what is there and fresh stays.

    Returns:
        Totals: units, variants, seconds, bytes and how many were compiled anew.
    """
    start = time.perf_counter()
    stamp_of = headers_digest() + repr(FLAGS) + repr(nvrtc.load().version)
    todo, stamps, variants, size = [], {}, 0, 0
    for unit in packaged_units(plan):
        if only is not None and unit.name not in only:
            continue
        source = unit.text(sources)
        for arch in archs:
            variants += len(unit.lines)
            target = out / arch / file_name(unit.name, arch)
            stamp = hashlib.sha256(f"{stamp_of}\0{arch}\0{source}".encode()).hexdigest()
            stamps[target] = stamp
            mark = target.with_suffix(".stamp")
            if target.exists() and mark.exists() and mark.read_text() == stamp:
                size += target.stat().st_size
                continue
            todo.append((len(source) * len(unit.lines), (unit.name, arch, source, str(target))))
    todo.sort(key=lambda job: -job[0])  # the long ones first, so that no core waits at the end
    with ProcessPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        for done, (name, arch, _, length) in enumerate(pool.map(_compile_to, [job for _, job in todo]), 1):
            target = out / arch / file_name(name, arch)
            target.with_suffix(".stamp").write_text(stamps[target])
            size += length
            if progress is not None:
                progress(done, len(todo), f"{name} {arch}")
    return {
        "units": len(stamps), "variants": variants, "compiled": len(todo), "bytes": size,
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def archs_to_build(present: Callable[[], Sequence[str]] = lambda: ()) -> tuple[str, ...]:
    """AVO_OPS_ARCHS ("sm_90,sm_100", "release" or "none"), else those of the GPUs present, else sm_90."""
    named = os.environ.get("AVO_OPS_ARCHS", "").strip()
    if named == "none":
        return ()
    if named == "release":
        return RELEASE_ARCHS
    if named:
        archs = tuple(a.strip() for a in named.replace(";", ",").split(",") if a.strip())
        wrong = [
            a
            for a in archs
            if not a.startswith(("sm_", "compute_")) or not a.split("_")[1].rstrip("af").isdigit()
        ]
        if wrong:
            raise ValueError(f"AVO_OPS_ARCHS: {wrong[0]!r} is not an arch such as sm_90 or compute_80")
        return archs
    return tuple(dict.fromkeys(present())) or ("sm_90",)
