"""What the emitters make of an operator, as text and data: kernels for the CPU, families of CUDA kernels, and their files.

Nothing here needs the generator itself, so that what another process has made is compiled without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class CpuKernel:
    """One emitted function and what the runtime must know to call it."""

    symbol: str
    text: str
    description: dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A template and its variants. ``template``: the family whose text it is; a cluster runs that of the row."""

    name: str
    template: str
    kind: str  # flat, row, loop, column, runs or finish
    text: str
    sums: int
    params: tuple[tuple[str, ...], ...]
    variants: dict[str, list[Json]]

    def instantiations(self) -> list[str]:
        """The lines that instantiate each symbol once."""
        lines = {v["symbol"]: v["instantiate"] for rows in self.variants.values() for v in rows}
        return [lines[s] for s in sorted(lines)]


def translation_unit(
    title: str, kernels: Sequence[CpuKernel], types: Sequence[str] = ("float", "double")
) -> str:
    """The source of some kernels: the build compiles it once for each instruction set. ``types``: of the math."""
    names = [k.symbol for k in kernels]
    return "\n".join(
        [
            f"// {title}: kernels for the CPU. Written by the generator from definitions/; do not edit.",
            '#include "cpu/math.h"',
            '#include "cpu/rows.h"',
            *(
                ['#include "cpu/runs.h"']
                if any("RunBlocks" in k.text or "RowIn<" in k.text for k in kernels)
                else []
            ),
            *(['#include "cpu/integers.h"'] if any(_has_integers(k.text) for k in kernels) else []),
            '#include "cpu/values.h"',
            "",
            '#define AVO_HIDDEN __attribute__((visibility("hidden")))',
            "",
            "namespace AVO_ISA_NAMESPACE {",
            "",
            *(k.text for k in kernels),
            f"AVO_HIDDEN extern const AvoKernelEntry {table_name(title)}[] = {{",
            *(
                f'    {{"{n}", {", ".join(f"{n}<{t}>" if t in types else "nullptr" for t in ("float", "double"))}}},'
                for n in names
            ),
            "};",
            f"AVO_HIDDEN extern const int {table_name(title)}_count = {len(names)};",
            "",
            "} // namespace AVO_ISA_NAMESPACE",
            "",
        ]
    )


def _has_integers(text: str) -> bool:
    return "Ints" in text or "IntegersOfRow" in text or "m_i" in text or "m_to_" in text


def table_name(title: str) -> str:
    """The name of a translation unit's table."""
    return f"kernels_{title}"


def index_unit(titles: Sequence[str]) -> str:
    """The source that gathers the tables of all translation units and exports them."""
    return "\n".join(
        [
            "// All kernels for the CPU. Written by the generator from definitions/; do not edit.",
            '#include "cpu/rows.h"',
            "",
            '#define AVO_HIDDEN __attribute__((visibility("hidden")))',
            "",
            "namespace AVO_ISA_NAMESPACE {",
            "",
            *(
                f"AVO_HIDDEN extern const AvoKernelEntry {table_name(t)}[];\n"
                f"AVO_HIDDEN extern const int {table_name(t)}_count;"
                for t in titles
            ),
            "",
            "static constexpr int kMost = 1024;",
            "static AvoKernelEntry all[kMost];",
            "",
            "static int gather(const AvoKernelEntry* table, int count, int at) {",
            "  for (int i = 0; i < count && at < kMost; ++i) all[at++] = table[i];",
            "  return at;",
            "}",
            "",
            "} // namespace AVO_ISA_NAMESPACE",
            "",
            'extern "C" const AvoKernelEntry* AVO_PASTE(avo_cpu_kernels_, AVO_ISA_SUFFIX)(int* count) {',
            "  using namespace AVO_ISA_NAMESPACE;",
            "  int at = 0;",
            *(f"  at = gather({table_name(t)}, {table_name(t)}_count, at);" for t in titles),
            "  *count = at;",
            "  return all;",
            "}",
            "",
        ]
    )
