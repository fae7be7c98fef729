"""C++ kernels for the CPU: one function template a case, compiled once for each instruction set."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..definitions.record import OpDef
from .ir import C_TYPES, LEAVES, PRIMITIVES, WHOLE_REDUCTIONS, Graph, Node, Span, read_whole
from .plan import Case
from .product import CpuKernel
from .render import Body, Names, formula_comment, identifier, integer_literal, row_level, summand
from .simplify import merged_phases
from .trace import TraceError

# Columns that a pointwise kernel treats at a time: AVO_POINTWISE_BLOCK of csrc/cpu/abi.h. Of 2048, the float rows of a
# bfloat16 backward took half as long again (2048x1024, AMD EPYC 7003). Column operands are staged for COLUMNS at a time:
# rows are read in longer runs then.
BLOCK = 512
COLUMNS = 4 * BLOCK

# What an element costs, where that differs much from the GPU's instructions that ir.PRIMITIVES counts.
_COSTS = {
    "exp": 20,
    "exp_neg_sq": 20,
    "exp_neg_half_sq": 20,
    "sigmoid_rest": 20,
    "round_result": 8,
    "quotient": 5,
}
_BY_NUMBERS = ("idiv", "ifloordiv", "irem", "imod", "ishl", "ishr")
# From this cost on an element that two passes over a row need is kept in a row buffer between them (a store and a load,
# and its own loads again, are less), and a sum is not split into two chains of additions (they are not what it waits for).
_DEAR = 8


@dataclass(frozen=True)
class _Blocks:
    """A loop over blocks of columns: its head, the bounds of a block, and what comes before and after the sweep over it."""

    head: str
    begin: str
    end: str
    first: Sequence[str] = ()
    then: Sequence[str] = ()


_ONE_SIZE = _Blocks("for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {", "c0", "block_end(c0, N)")
_RUNS = _Blocks("for (RunBlocks block(a); block.begin < N; block.advance()) {", "block.begin", "block.end")


def emit(record: OpDef, case: Case) -> CpuKernel | None:
    """The kernel of one case, or None where nothing is computed."""
    return _Kernel(record, case).kernel() if case.graph.results else None


# A value of a row beside those of its elements.
_OF_ROW: dict[str, Any] = {
    "row_value": lambda text: f"V({text})",
    "row_mask": lambda text: f"m_ne(V(C({text})), V(C(0)))",
    "row_whole": lambda text: f"Ints({text})",
}


class _Kernel:
    def __init__(self, record: OpDef, case: Case) -> None:
        self.record, self.case = record, case
        self.nodes = case.graph.nodes()
        self.phase = merged_phases(self.case.graph)
        self.last = max(self.phase.values(), default=0)
        # Whether columns that lie together share a value of each column operand, and of each sum.
        self.by_runs = record.columns.rule == "groups"
        self.by_row = self.last > 0 or self.by_runs
        self.column = "c" if self.by_row else "c0 + c"  # of the first of a vector's elements
        loads = [n for n in self.nodes if n.op == "load"]
        whole = read_whole(case.graph.results.values())
        # Integers, which are read where they lie. Those of rows are numbers too where the record does not say that they are exact.
        self.integers = [n.args[0] for n in self.nodes if n.op == "whole"]
        of_integers = {n.index for n in self.integers}
        self.row_loads = [
            n for n in loads if n.span == Span.BOTH and n.index in whole and n.index not in of_integers
        ]
        self.column_loads = [n for n in loads if n.span == Span.COLS and n.index in whole]
        self.statistics = [n for n in loads if n.span == Span.ROWS]
        self.numbers = [n for n in loads if n.span == Span.NONE]
        self.scalars = [n for n in self.nodes if n.op == "scalar"]
        results = case.graph.results
        self.sums = {name: v for name, v in results.items() if v.is_reduction and v.attr == Span.ROWS}
        others = {name: v for name, v in results.items() if name not in self.sums}
        self.row_stores = {name: v for name, v in others.items() if self.by_row and not v.span & Span.COLS}
        elements = {name: v for name, v in others.items() if name not in self.row_stores}
        self.stores = {name: v for name, v in elements.items() if not v.is_whole}
        self.whole_stores = {name: v for name, v in elements.items() if v.is_whole}
        inside = {n.index for n in self.nodes if n.is_reduction and n.attr == Span.ROWS}
        if inside - {v.index for v in self.sums.values()} or any(v.op != "sum" for v in self.sums.values()):
            raise TraceError(f"{case.name}: only a plain sum over the rows can be a result")
        # Inputs, then results other than sums; sums go through the partials.
        by_span = [
            n for span in (Span.BOTH, Span.COLS, Span.ROWS, Span.NONE) for n in loads if n.span == span
        ]
        self.operands = [n.attr for n in by_span]
        self.operands += [*self.stores, *self.whole_stores, *self.row_stores]
        self.names = Names(
            {f"{o}_{what}" for o in self.operands for what in ("row", "columns")}
            | {f"{s}_sum" for s in self.sums}
            | {f"{n.attr}_in" for n in self.integers}
            | {f"{name}_out" for name in self.whole_stores}
        )
        for n in [*loads, *self.scalars]:
            self.names.reserve(identifier(n.attr))
        self.kept = self._kept() if self.by_row else {}
        self.buffers = len(self._buffers()) + (
            0 if self.by_row else (COLUMNS // BLOCK - 1) * len(self.column_loads)
        )

    def kernel(self) -> CpuKernel:
        description = {
            "symbol": self.case.name,
            "class": "row" if self.by_row else "pointwise",
            "operands": self.operands,
            "scalars": [n.attr for n in self.scalars],
            "sums": list(self.sums),
            "buffers": self.buffers,
        }
        return CpuKernel(self.case.name, "\n".join(self._text()), description)

    def _text(self) -> list[str]:
        out = [
            *(formula_comment(self.record.formula, self.record.source) if self._is_first() else ()),
            "template <class C>",
            f"AVO_KERNEL void {self.case.name}(AVO_PARAMETERS) {{",
            "  using V = Vec<C>;",
        ]
        if self.buffers:
            kind = "RowBuffers<C> buffer(a, scratch)" if self.by_row else "BlockBuffers<C> buffer(scratch)"
            out.append(f"  const {kind};")
        uses_size = {n.attr for n in self.nodes if n.op == "size"}
        if self.by_row or Span.COLS in uses_size:
            out.append("  const int64_t N = a->N;")
        if Span.ROWS in uses_size:
            out.append("  const int64_t M = a->M;")
        out += [f"  const C {identifier(n.attr)} = C(a->scalars[{i}]);" for i, n in enumerate(self.scalars)]
        out += [
            f"  const C {identifier(n.attr)} = load_stat<C>(a, {self._operand(n.attr)}, 0);"
            for n in self.numbers
        ]
        known = {n.index: identifier(n.attr) for n in [*self.statistics, *self.scalars, *self.numbers]}
        known |= {n.index: f"C({identifier(n.attr)})" for n in self.statistics if self._is_integer(n)}
        known |= {
            n.index: identifier(n.args[0].attr)
            for n in self.nodes
            if n.op == "whole" and not n.span & Span.COLS
        }
        known |= {n.index: f"C({'M' if n.attr == Span.ROWS else 'N'})" for n in self.nodes if n.op == "size"}
        named = row_level(self.nodes, self.case.graph.results.values(), self.phase)
        if self.by_row:
            if not self.by_runs:
                out += self._column_rows("  ")
            out += self._zeroed("  ", "0", "a->sum_columns" if self.by_runs else "N")
            if not self.by_runs:
                out += self._partials("  ", "")
            out.append(
                "  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {"
            )
            out += [
                f"    load_panel<C>(a, {self._operand(x.attr)}, panel, {self._buffer(x.attr)});"
                for x in self.row_loads
            ]
            out.append("    for (int64_t row = panel.begin; row < panel.end; ++row) {")
            inner = self._open("    ", "0", "N")
            if self.by_runs:
                inner += self._column_rows("    ")
                inner += self._partials("    ", " + row % a->groups * a->runs")
            inner += self._row_values(named.get(0, []), known)
            for k in range(1, self.last + 1):
                inner += self._reduce(k, known)
                inner += self._row_values(named.get(k, []), known)
            inner += self._results(known, "N")
            inner += self._close("    ", "0", "N")
            out += [f"  {line}" if line else line for line in inner]
            out.append("    }")
            out += [
                f"    store_panel<C>(a, {self._operand(name)}, panel, {self._buffer(name)});"
                for name in self.stores
            ]
            out.append("  }")
        else:
            out += self._zeroed("  ", "col_begin", "col_end")
            nested = bool(self.column_loads or self.sums)
            first, last = ("c_begin", "c_end") if nested else ("col_begin", "col_end")
            inner = [
                "for (int64_t row = row_begin; row < row_end; ++row) {",
                f"  for (int64_t c0 = {first}; c0 < {last}; c0 += {BLOCK}) {{",
                f"    const int64_t n = {last} - c0 < {BLOCK} ? {last} - c0 : {BLOCK};",
                *(
                    f"    const C* {x.attr}_row = {x.attr}_columns + (c0 - c_begin);"
                    for x in self.column_loads
                ),
                *self._partials("    ", " + c0"),
                *self._open("    ", "c0", "n"),
                *self._row_values(named.get(0, []), known),
                *self._results(known, "n"),
                *self._close("    ", "c0", "n"),
                "  }",
                "}",
            ]
            if nested:
                inner = [
                    f"for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += {COLUMNS}) {{",
                    f"  const int64_t c_end = col_end - c_begin < {COLUMNS} ? col_end : c_begin + {COLUMNS};",
                    *self._columns("  "),
                    *(f"  {line}" for line in inner),
                    "}",
                ]
            out += [f"  {line}" for line in inner]
        return [*out, "}", ""]

    def _is_first(self) -> bool:
        """Whether this is the kernel of its operator that says what it computes."""
        return self.case.name == f"{self.record.name}_forward"

    def _spell(self, node: Node) -> str | None:
        """A result's dtype is known only at run time here, and random numbers come four at a time, for neighbours.

        Integers are divided and shifted by numbers, not by vectors of them.
        """
        if node.op == "uniform":
            return f"m_uniform<C>({identifier(node.args[0].attr)}, {self.column})"
        if node.op in _BY_NUMBERS and all(a.op == "iconst" for a in node.args[1:]):
            return f"m_{node.op}({{0}}, {', '.join(integer_literal(a.attr) for a in node.args[1:])})"
        if node.op != "round_result":
            return None
        return f"m_round_to({{0}}, a->operands[{self._operand(node.attr)}].dtype)"

    def _is_integer(self, load: Node) -> bool:
        return load.attr in self.record.integers

    def _operand(self, name: str) -> int:
        return self.operands.index(name)

    def _buffers(self) -> list[Any]:
        """Whose row buffer each is: operands by name, kept elements by index."""
        return [
            *(n.attr for n in self.row_loads),
            *self.stores,
            *self.kept,
            *(n.attr for n in self.column_loads),
        ]

    def _buffer(self, whose: str | int) -> str:
        return f"buffer({self._buffers().index(whose)})"

    def _roots(self, k: int) -> list[Node]:
        """The elements that pass ``k`` over a row is for; the last writes the results."""
        results = [*self.stores.values(), *self.whole_stores.values()] if k > self.last else ()
        return [*results, *(n.args[0] for n in self._reductions(k))]

    def _elements(self, roots: Sequence[Node], stop: Collection[int] = ()) -> dict[int, Node]:
        """What a pass computes for each element, without loads and without what is under ``stop``."""
        found: dict[int, Node] = {}
        todo = list(roots)
        while todo:
            n = todo.pop()
            leaf = n.op in LEAVES or n.is_reduction or not n.span & Span.COLS
            if not leaf and n.index not in found and n.index not in stop:
                found[n.index] = n
                todo += n.args if n.op != "uniform" else ()
        return found

    def _kept(self) -> dict[int, tuple[int, str]]:
        """Elements that are kept in a row buffer for later passes: the pass that computes each, and its buffer."""
        kept: dict[int, tuple[int, str]] = {}
        computed: dict[int, int] = {}
        for k in range(1, self.last + 2):
            roots = self._roots(k)
            elements = self._elements(roots, kept)
            new = [n for n in elements.values() if n.index not in computed]
            for n in [*roots, *(a for user in new for a in user.args)]:
                again = n.index in elements and n.index in computed and n.index not in kept
                if (
                    again
                    and not n.is_mask
                    and not n.is_whole
                    and _cost(self._elements([n], kept).values()) >= _DEAR
                ):
                    row = f"{self.names.scope().of(n)}_row"
                    while row in self.names.taken:
                        row += "_"
                    kept[n.index] = computed[n.index], self.names.reserve(row)
            for n in new:
                computed[n.index] = k
        return kept

    def _column_rows(self, indent: str) -> list[str]:
        where = "row, 0, a->runs" if self.by_runs else "0, 0, N"
        return [
            f"{indent}const C* {x.attr}_row = load_row<C>(a, {self._operand(x.attr)}, {where}, {self._buffer(x.attr)});"
            for x in self.column_loads
        ]

    def _columns(self, indent: str) -> list[str]:
        most = len(self._buffers()) - len(self.column_loads)
        out = []
        for k, x in enumerate(self.column_loads):
            buffer = f"buffer({most + k * COLUMNS // BLOCK})"
            load = f"load_row<C>(a, {self._operand(x.attr)}, 0, c_begin, c_end - c_begin, {buffer})"
            out.append(f"{indent}const C* {x.attr}_columns = {load};")
        return out

    def _zeroed(self, indent: str, begin: str, end: str) -> list[str]:
        count = len(self.sums)
        return [f"{indent}zero_partial<C>(a, chunk, {count}, {k}, {begin}, {end});" for k in range(count)]

    def _partials(self, indent: str, shift: str) -> list[str]:
        count = len(self.sums)
        return [
            f"{indent}C* {name}_sum = partial_row<C>(a, chunk, {count}, {k}){shift};"
            for k, name in enumerate(self.sums)
        ]

    def _where(self, c0: str, n: str) -> str:
        return "row, panel" if self.by_row else f"row, {c0}, {n}"

    def _open(self, indent: str, c0: str, n: str) -> list[str]:
        where = self._where(c0, n)
        first, then = ("RowIn<C> {}_in(", ");") if self.by_runs else ("const C* {}_row = load_row<C>(", ");")
        out = [
            f"{indent}{first.format(x.attr)}a, {self._operand(x.attr)}, {where}, {self._buffer(x.attr)}{then}"
            for x in self.row_loads
        ]
        first = "RowOut<C> {}_out(" if self.by_runs else "C* {}_row = open_row<C>("
        out += [
            f"{indent}{first.format(name)}a, {self._operand(name)}, {where}, {self._buffer(name)}{then}"
            for name in self.stores
        ]
        types = self.case.graph.narrow
        integers = [(n.attr, "in") for n in self.integers if n.span == Span.BOTH]
        integers += [(name, "out") for name in self.whole_stores]
        of_row = "row, panel" if self.by_row else f"row, {c0}"
        out += [
            f"{indent}const IntegersOfRow<{C_TYPES[types[name]]}> {name}_{way}(a, {self._operand(name)}, {of_row});"
            for name, way in integers
        ]
        out += [f"{indent}C* {row} = {self._buffer(index)};" for index, (_, row) in self.kept.items()]
        out += [
            f"{indent}const int64_t {identifier(x.attr)} = load_whole_number(a, {self._operand(x.attr)}, row);"
            if self._is_integer(x)
            else f"{indent}const C {identifier(x.attr)} = load_stat<C>(a, {self._operand(x.attr)}, row);"
            for x in self.statistics
        ]
        return out

    def _close(self, indent: str, c0: str, n: str) -> list[str]:
        if self.by_runs:
            return [f"{indent}{name}_out.close(panel);" for name in self.stores]
        return [
            f"{indent}close_row<C>(a, {self._operand(name)}, {self._where(c0, n)}, {name}_row);"
            for name in self.stores
        ]

    def _row_values(self, nodes: Sequence[Node], known: dict[int, str]) -> list[str]:
        out = []
        for node in nodes:
            if node.index in known:
                continue
            name = self.names.of(node)
            if node.op == "pick":
                out += self._pick(name, node, known)
                known[node.index] = name
                continue
            lines, (value,) = Body(self.names, known, "const C", element=False, keep={node.index}).emit(
                [node]
            )
            out += [f"    {line}" for line in lines]
            kind = "auto" if node.is_mask or node.is_whole else "C"
            out.append(f"    const {kind} {name} = {value};")
            known[node.index] = name
        return out

    def _pick(self, name: str, node: Node, known: dict[int, str]) -> list[str]:
        """The value in the one column that an integer of the row names."""
        value, place = node.args[0], identifier(node.args[1].attr)
        spelled = dict(known)
        for n in Graph({"": value}).nodes():
            if n.op == "column":
                spelled[n.index] = f"C({place})"
            elif n.op == "load" and n.span & Span.COLS:
                row = "row" if n.span == Span.BOTH else "0"
                spelled[n.index] = f"load_element<C>(a, {self._operand(n.attr)}, {row}, {place})"
        lines, (text,) = Body(self.names.scope(), spelled, "const C", element=False).emit([value])
        return [
            f"    C {name}(0);",
            f"    if ({place} >= 0 && {place} < a->N) {{",
            *(f"      {line}" for line in lines),
            f"      {name} = {text};",
            "    }",
        ]

    def _loads(
        self, k: int, roots: Sequence[Node], known: dict[int, str], names: Names
    ) -> tuple[list[str], dict[int, str]]:
        """Loads of the operands and kept elements that pass ``k`` reads, and their names.

        Of values that a run of columns shares the names alone: :meth:`_blocks` has their loads.
        """
        seen: set[int] = set()
        wanted: list[Node] = []

        def visit(node: Node) -> None:
            if node.index in seen or node.index in known:
                return
            seen.add(node.index)
            if node.op in ("load", "column", "whole") or self._is_kept(node, k) or _is_number_of(node):
                wanted.append(node)
                return
            for x in node.args if node.op != "uniform" else ():
                visit(x)

        for root in roots:
            visit(root)
        found, lines = {}, []
        for x in wanted:
            if x.op == "load" and self.by_runs and x.span == Span.COLS:
                found[x.index] = identifier(x.attr)
                continue
            if x.op == "load":
                name, value = identifier(x.attr), f"part.load({x.attr}_row + c)"
            elif x.op == "whole" or _is_number_of(x):
                load = x.args[0] if x.op == "whole" else x.args[0].args[0]
                # One vector may be read as integers and as numbers.
                name = names.free(f"{load.attr}_numbers") if x.op == "to_math" else identifier(load.attr)
                found[x.index] = name
                how = "numbers<C>" if x.op == "to_math" else "load"
                lines.append(f"const auto {name} = {load.attr}_in.{how}(c, part);")
                continue
            elif x.op == "column":
                name, value = "column", f"numbers_from<C>({self.column})"
            else:
                name, value = names.of(x), f"part.load({self.kept[x.index][1]} + c)"
            found[x.index] = name
            lines.append(f"const V {name} = {value};")
        return lines, {**known, **found}

    def _read(self, k: int) -> set[int]:
        """What pass ``k`` reads, and what it computes of that."""
        keeps = [n for n in self.nodes if n.index in self.kept and self.kept[n.index][0] == k]
        seen: set[int] = set()
        todo = [*self._roots(k), *keeps]
        while todo:
            n = todo.pop()
            if n.index not in seen and not self._is_kept(n, k) and not n.is_reduction:
                seen.add(n.index)
                todo += n.args
        return seen

    def _blocks(self, k: int) -> _Blocks | None:
        """The loop of pass ``k`` over blocks of columns, where these lie in runs that share values."""
        if not self.by_runs:
            return None
        read = self._read(k)
        loads = [x for x in self.column_loads if x.index in read]
        last = k > self.last
        sums, stores = (list(self.sums), list(self.stores)) if last else ([], [])
        # Where nothing is shared, blocks of one size.
        blocks = _RUNS if loads or sums else _ONE_SIZE
        first = [
            *(f"const V {identifier(x.attr)}({x.attr}_row[block.run]);" for x in loads),
            *(
                f"const C* {x.attr}_row = {x.attr}_in.block({blocks.begin}, {blocks.end});"
                for x in self.row_loads if x.index in read
            ),
            *(f"C* {name}_row = {name}_out.block();" for name in stores),
            *(f"V {name}_lanes(C(0));" for name in sums),
        ]  # fmt: skip
        then = [
            *(f"{name}_sum[block.run] += hsum({name}_lanes);" for name in sums),
            *(f"{name}_out.close_block({blocks.end});" for name in stores),
        ]
        return replace(blocks, first=first, then=then)

    def _is_kept(self, node: Node, k: int) -> bool:
        """Whether an earlier pass than ``k`` kept an element."""
        return node.index in self.kept and self.kept[node.index][0] < k

    def _pass(self, k: int, known: dict[int, str]) -> tuple[list[str], list[str]]:
        """The statements of pass ``k`` for one vector of columns, which also keep what later passes need; its roots' values.

        What is summed comes as the arguments of an addition: a value, or the two factors of a product.
        """
        keeps = [n for n in self.nodes if n.index in self.kept and self.kept[n.index][0] == k]
        names = self.names.scope()
        loads, spelled = self._loads(k, [*self._roots(k), *keeps], known, names)
        taken = [self._summand(n) for n in self._reductions(k)]
        if k > self.last:
            stored = [*self.stores.values(), *self.whole_stores.values()]
            taken = [*((v,) for v in stored), *taken]
        body = Body(names, spelled, "const V", spell=self._spell, **_OF_ROW)
        lines, values = body.emit([*itertools.chain(*taken), *keeps])
        value = iter(values)
        found = [", ".join(itertools.islice(value, len(parts))) for parts in taken]
        stores = [f"part.store({self.kept[n.index][1]} + c, {v});" for n, v in zip(keeps, value, strict=True)]
        return [*loads, *lines, *stores], found

    def _summand(self, reduction: Node) -> tuple[Node, ...]:
        """As render.summand, but a product that could be kept for a later pass stays whole in any case: then the bits of a sum do
        not depend on what else the kernel computes."""
        (value,) = reduction.args
        dear = not value.span & Span.COLS or _cost(self._elements([value]).values()) >= _DEAR
        return (value,) if dear else summand(reduction, ())

    def _reductions(self, k: int) -> list[Node]:
        """The reductions that pass ``k`` over a row is for: the last adds to the column sums."""
        if k > self.last:
            return list(self.sums.values())
        return [n for n in self.nodes if n.is_reduction and n.attr == Span.COLS and self.phase[n.index] == k]

    def _reduce(self, k: int, known: dict[int, str]) -> list[str]:
        nodes = self._reductions(k)
        start = {
            "sum": "V(C(0))", "prod": "V(C(1))", "amax": "V(lowest<C>())", "amin": "V(highest<C>())", "isum": "Ints(int64_t(0))",
            "iprod": "Ints(int64_t(1))", "iamax": "Ints(kLeastInteger)", "iamin": "Ints(kMostInteger)",
        }  # fmt: skip
        names = [self.names.of(n) for n in nodes]
        earlier = [index for index, (at, _) in self.kept.items() if at < k]
        # Two chains of cheap operations: one alone would wait for the latency of each.
        two = _cost(self._elements(self._roots(k), earlier).values()) < _DEAR

        def declare(name: str, op: str) -> str:
            kind = "Ints" if op in WHOLE_REDUCTIONS else "V"
            return (
                f"{kind} {name}[2] = {{{start[op]}, {start[op]}}};"
                if two
                else f"{kind} {name} = {start[op]};"
            )

        def joined(name: str, op: str) -> str:
            if not two:
                return name
            if op in WHOLE_REDUCTIONS:
                return f"m_{op}(Whole{{}}, {name}[0], {name}[1])"
            return f"{name}[0] + {name}[1]" if op == "sum" else f"Whole::{op}({name}[0], {name}[1])"

        inner, values = self._pass(k, known)
        chain = "[chain]" if two else ""
        for n, name, value in zip(nodes, names, values, strict=True):
            to = f"{name}_block{chain}" if n.op == "sum" else f"{name}_lanes{chain}"
            if n.op in WHOLE_REDUCTIONS:
                inner.append(f"{to} = m_{n.op}(part, {to}, {value});")
            else:
                inner.append(f"{to} = part.{n.op}({to}, {value});")
        sums = [name for n, name in zip(nodes, names, strict=True) if n.op == "sum"]
        blocks = self._blocks(k) or (_ONE_SIZE if sums else None)
        indent, begin, end = ("      ", blocks.begin, blocks.end) if blocks else ("    ", "0", "N")
        sweep = f"sweep_pairs<C>({begin}, {end}, [&](int64_t c, auto part, auto chain)"
        if not two:
            sweep = f"sweep<C>({begin}, {end}, [&](int64_t c, auto part)"
        out = [
            f"    V {name}_lanes(C(0));" if n.op == "sum" else f"    {declare(f'{name}_lanes', n.op)}"
            for name, n in zip(names, nodes, strict=True)
        ]
        swept = [f"{indent}{sweep} AVO_LAMBDA {{", *(f"{indent}  {line}" for line in inner), f"{indent}}});"]
        if blocks:  # block by block, or the rounding of a long row would add up
            out.append(f"    {blocks.head}")
            out += [f"      {line}" for line in blocks.first]
            out += [f"      {declare(f'{name}_block', 'sum')}" for name in sums]
            out += swept
            for name in sums:
                block = joined(f"{name}_block", "sum")
                out.append(f"      {name}_lanes = {name}_lanes + {f'({block})' if two else block};")
            out.append("    }")
        else:
            out += swept
        across = {"sum": "hsum", "prod": "hprod", "amax": "hamax", "amin": "hamin"}
        for name, n in zip(names, nodes, strict=True):
            lanes = f"{name}_lanes" if n.op == "sum" else joined(f"{name}_lanes", n.op)
            whole = n.op in WHOLE_REDUCTIONS
            out.append(
                f"    const {'int64_t' if whole else 'C'} {name} = {f'h{n.op}' if whole else across[n.op]}({lanes});"
            )
        known.update({n.index: name for n, name in zip(nodes, names, strict=True)})
        return out

    def _results(self, known: dict[int, str], n: str) -> list[str]:
        out = []
        for name, node in self.row_stores.items():
            lines, (value,) = Body(self.names, known, "const C", element=False).emit([node])
            out += [f"    {line}" for line in lines]
            store = "store_whole_number" if node.is_whole else "store_stat<C>"
            out.append(f"    {store}(a, {self._operand(name)}, row, {value});")
        if not self.stores and not self.whole_stores and not self.sums:
            return out
        inner, values = self._pass(self.last + 1, known)
        inner += [
            f"part.store({name}_row + c, {v});"
            for name, v in zip(self.stores, values[: len(self.stores)], strict=True)
        ]
        values = values[len(self.stores) :]
        inner += [
            f"{name}_out.store(c, part, {v});"
            for name, v in zip(self.whole_stores, values[: len(self.whole_stores)], strict=True)
        ]
        sums = list(zip(self.sums, values[len(self.whole_stores) :], strict=True))
        if blocks := self._blocks(self.last + 1):
            inner += [f"{name}_lanes = part.sum({name}_lanes, {v});" for name, v in sums]
            return [
                *out,
                f"    {blocks.head}",
                *(f"      {line}" for line in blocks.first),
                f"      sweep<C>({blocks.begin}, {blocks.end}, [&](int64_t c, auto part) AVO_LAMBDA {{",
                *(f"        {line}" for line in inner),
                "      });",
                *(f"      {line}" for line in blocks.then),
                "    }",
            ]
        inner += [
            f"part.store({name}_sum + c, part.sum(part.load({name}_sum + c), {v}));" for name, v in sums
        ]
        return [
            *out,
            f"    sweep<C>(0, {n}, [&](int64_t c, auto part) AVO_LAMBDA {{",
            *(f"      {line}" for line in inner),
            "    });",
        ]


def _is_number_of(node: Node) -> bool:
    """Whether a node is an integer operand of the call's size as a number."""
    return node.op == "to_math" and node.args[0].op == "whole" and bool(node.span & Span.COLS)


def _cost(nodes: Iterable[Node]) -> int:
    return sum(_COSTS.get(n.op, PRIMITIVES[n.op].cost) for n in nodes)
