"""Writes or checks ``generated/`` and compiles its CUDA families to cubins."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

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


def family_source(family: str, folder: Path, plan: dict[str, Any]) -> str:
    """The text that is compiled for a family: its template and one line for each variant."""
    record = plan["families"][family]
    lines = {v["symbol"]: v["instantiate"] for rows in record["variants"].values() for v in rows}
    template = (folder / str(record["source"])).read_text()
    return template + "\n" + "\n".join(lines[s] for s in sorted(lines)) + "\n"


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


def compile_family(family: str, arch: str) -> bytes:
    """Compile one family of the catalogue for ``arch`` ("sm_90"), as the kernel store asks for it at run time."""
    folder = generated_folder()
    plan = json.loads((folder / "plan.json").read_text())
    return compile_source(family, family_source(family, folder, plan), arch)


def family_inputs(family: str, arch: str) -> list[bytes]:
    """All that decides the cubin of a family: source, headers, flags, arch and compiler version."""
    folder = generated_folder()
    plan = json.loads((folder / "plan.json").read_text())
    return source_inputs(family_source(family, folder, plan), arch)


def source_inputs(source: str, arch: str) -> list[bytes]:
    """All that decides the cubin of a text: itself, headers, flags, arch and compiler version."""
    return [p.encode() for p in (source, headers_digest(), *FLAGS, arch, repr(nvrtc.load().version))]


def _compile_to(job: tuple[str, str, str, str]) -> tuple[str, str, float, int]:
    family, arch, source, path = job
    start = time.perf_counter()
    data = compile_source(family, source, arch)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(target)
    return family, arch, time.perf_counter() - start, len(data)


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
    """Compile every family for every arch into ``out/<arch>/<family>.cubin``; what is there and fresh stays.

    Returns:
        Totals: families, variants, seconds, bytes and how many were compiled anew.
    """
    start = time.perf_counter()
    stamp_of = headers_digest() + repr(FLAGS) + repr(nvrtc.load().version)
    todo, stamps, variants, size = [], {}, 0, 0
    for family, record in plan["families"].items():
        if only is not None and family not in only:
            continue
        source = family_source(family, sources, plan)
        symbols = {v["symbol"] for rows in record["variants"].values() for v in rows}
        for arch in archs:
            variants += len(symbols)
            target = out / arch / f"{family}.{'cubin' if arch.startswith('sm_') else 'ptx'}"
            stamp = hashlib.sha256(f"{stamp_of}\0{arch}\0{source}".encode()).hexdigest()
            stamps[target] = stamp
            mark = target.with_suffix(".stamp")
            if target.exists() and mark.exists() and mark.read_text() == stamp:
                size += target.stat().st_size
                continue
            todo.append((len(source) * len(symbols), (family, arch, source, str(target))))
    todo.sort(key=lambda job: -job[0])  # the long ones first, so that no core waits at the end
    with ProcessPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        for done, (family, arch, _, length) in enumerate(pool.map(_compile_to, [job for _, job in todo]), 1):
            suffix = "cubin" if arch.startswith("sm_") else "ptx"
            target = out / arch / f"{family}.{suffix}"
            target.with_suffix(".stamp").write_text(stamps[target])
            size += length
            if progress is not None:
                progress(done, len(todo), f"{family} {arch}")
    return {
        "families": len(stamps), "variants": variants, "compiled": len(todo), "bytes": size,
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
