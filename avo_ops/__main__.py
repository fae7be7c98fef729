"""The command line: ``python -m avo_ops generate [--check]``, ``compile`` and ``cache info|clear|prune|verify``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m avo_ops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="write generated/ from the definitions")
    generate.add_argument(
        "--check", action="store_true", help="write nothing; fail if generated/ is not fresh"
    )
    generate.add_argument("--out", type=Path, help="folder (default: generated/ of the repository)")
    compile_ = commands.add_parser("compile", help="compile the CUDA kernels of generated/ to cubins")
    compile_.add_argument(
        "--archs", help="such as sm_90,sm_100 (default: AVO_OPS_ARCHS, the GPUs present, or sm_90)"
    )
    compile_.add_argument("--out", type=Path, help="folder (default: kernels/ beside plan.json)")
    compile_.add_argument("--jobs", type=int)
    cache = commands.add_parser(
        "cache", help="the kernels that were compiled at run time (folder: AVO_OPS_CACHE)"
    )
    cache.add_argument("what", choices=["info", "clear", "prune", "verify"])
    cache.add_argument("--to", help="prune to this size, such as 200M (default: AVO_OPS_CACHE_SIZE, or 1G)")
    args = parser.parse_args(argv)
    return {"generate": _generate, "compile": _compile, "cache": _cache}[args.command](args)


def _generate(args: argparse.Namespace) -> int:
    from .definitions import CATALOGUE, COMPOSITES, LISTS
    from .generator import build, document
    from .generator.pipeline import generate

    folder = args.out or build.generated_folder()
    files = generate(CATALOGUE, LISTS).files
    readme = document.readme(folder)
    table = (
        document.with_table(readme.read_text(), [*CATALOGUE, *LISTS, *COMPOSITES])
        if readme.exists()
        else None
    )
    if args.check:
        wrong = build.stale(files, folder)
        if table is not None and table != readme.read_text():
            wrong.append("../README.md")
        for path in wrong:
            print(f"not fresh: {folder / path}", file=sys.stderr)
        if wrong:
            print("run: python -m avo_ops generate", file=sys.stderr)
        return int(bool(wrong))
    changed = build.write(files, folder)
    if table is not None and table != readme.read_text():
        readme.write_text(table)
    print(f"{folder}: {len(files)} files, {len(changed)} changed")
    return 0


def _cache(args: argparse.Namespace) -> int:
    from .registry import cache
    from .registry.store import default_cache_folder

    folder = default_cache_folder()
    if folder is None:
        print("there is no home folder, so there is no cache: set AVO_OPS_CACHE", file=sys.stderr)
        return 1
    if args.what == "info":
        print(cache.describe(folder))
    elif args.what == "clear":
        print(f"{folder}: {cache.clear(folder)} kernels removed")
    elif args.what == "prune":
        removed = cache.prune(folder, cache.size_limit(args.to))
        print(f"{folder}: {removed} kernels removed, {cache.size_text(cache.total_size(folder))} left")
    else:
        damaged = cache.remove_damaged(folder)
        for path in damaged:
            print(f"damaged, removed: {path}")
        print(f"{folder}: {len(cache.entries(folder))} kernels are what their names say")
        return int(bool(damaged))
    return 0


def _compile(args: argparse.Namespace) -> int:
    import os

    from . import plan_file
    from .generator import build

    if args.archs:
        os.environ["AVO_OPS_ARCHS"] = args.archs
    folder = build.generated_folder()
    plan = plan_file.load(folder)

    def progress(done: int, total: int, what: str) -> None:
        end = "\n" if done == total or not sys.stderr.isatty() else "\r"
        if sys.stderr.isatty() or done % 20 == 0 or done == total:
            print(
                f"\x1b[K[{done}/{total}] {what}" if sys.stderr.isatty() else f"[{done}/{total}]",
                end=end,
                file=sys.stderr,
            )

    totals = build.compile_all(
        plan,
        folder,
        args.out or folder / "kernels",
        build.archs_to_build(),
        jobs=args.jobs,
        progress=progress,
    )
    print(
        f"{totals['units']} files, {totals['variants']} kernels ({totals['compiled']} files compiled), "
        f"{totals['bytes'] / 1e6:.1f} MB, {totals['seconds']} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
