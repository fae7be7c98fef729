"""The command line: ``python -m avo_ops generate [--check]`` and ``python -m avo_ops compile``."""

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
    args = parser.parse_args(argv)
    return _generate(args) if args.command == "generate" else _compile(args)


def _generate(args: argparse.Namespace) -> int:
    from .definitions import CATALOGUE
    from .generator import build, document
    from .generator.pipeline import generate

    folder = args.out or build.generated_folder()
    files = generate(CATALOGUE).files
    readme = document.readme(folder)
    table = document.with_table(readme.read_text(), CATALOGUE) if readme.exists() else None
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
