"""Expressions and statements, in the common subset of CUDA and C++ that both emitters share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from .ir import PRIMITIVES, Node, Span, uses

# Words that an author may use as a variable or argument and that a kernel cannot: C++, and what the templates declare.
_RESERVED = frozenset(
    """
    A BlockBuffers BlockRows C Ints IntegersOfRow K M Max Min N P Product R RowBuffers RowPanel RowScratch RowSum
    RowTile Sum T V Vec W WholeTile X a accuracy_t alignas aligned alignof and and_eq announce_row asm auto avo
    await_row base bf16 bitand bitor blockDim blockIdx block_end body bool break buffer c c0 c_begin c_end case
    catch chain char chunk class clear close_row col_begin col_end column compl compute_t concept const consteval
    constexpr constinit continue copy count decltype default delete do double dynamic_cast else enum exists
    explicit export extern extreme f16 f32 f64 false fetch finish_column first float for friend goto gridDim groups hamax
    hamin highest hprod hsum if inline int int16_t int32_t int64_t int8_t j kAhead kBlock kKeep kLeastInteger
    kMostInteger kN kSumBlock kVector linux live load_element load_panel load_row load_stat long lowest mutable n
    namespace narrow new noexcept not not_eq nullptr open_row operator or or_eq out own p panel part partial_row
    partials private protected public quiet_nan register requires return row row_begin row_end row_reduce rows
    scratch shared short signed sizeof starts_at_chunk static static_assert static_cast step store_panel
    store_stat store_whole_number struct sweep sweep_pairs switch template this threadIdx throw tile total true
    try turn typedef typeid typename uint8_t union unix unsigned using virtual void volatile wchar_t while whole
    widen write_partial xor xor_eq zero_partial
    """.split()  # noqa: SIM905
)


def identifier(name: str) -> str:
    """An argument's name as a variable of a kernel."""
    return f"{name}_" if name in _RESERVED or name.startswith("m_") else name


def literal(value: float) -> str:
    """A constant of the compute type; 17 digits name a double exactly."""
    if value != value:
        return "quiet_nan<C>()"
    if value in (float("inf"), float("-inf")):
        return "highest<C>()" if value > 0 else "lowest<C>()"
    text = repr(float(value))
    return f"C({text})"


def integer_literal(value: int) -> str:
    """A constant of integers; the least one has no literal."""
    return "kLeastInteger" if value == -(2**63) else f"int64_t({value})"


@dataclass
class Names:
    """Gives each value of one kernel a name: the author's variable where there is one, and never the same twice."""

    taken: set[str] = field(default_factory=set)
    counter: int = 0

    def reserve(self, name: str) -> str:
        self.taken.add(name)
        return name

    def scope(self) -> Names:
        """Names of an inner scope: those of this one are taken, its own do not leak out."""
        return Names(set(self.taken), self.counter)

    def of(self, node: Node) -> str:
        name = node.name or ""
        if node.is_reduction:
            inner = node.args[0].attr if node.args[0].op == "load" else node.args[0].name
            if node.args[0].op == "whole":
                inner = node.args[0].args[0].attr
            verb = {"sum": "sum", "prod": "product", "amax": "max", "amin": "min"}[node.op.removeprefix("i")]
            name = name or (f"{verb}_{inner}" if inner else "")
        if not re.fullmatch(r"[A-Za-z]\w*", name) or identifier(name) != name:
            self.counter += 1
            name = f"t{self.counter}"
        return self.free(name)

    def free(self, name: str) -> str:
        """The name, or one like it that nothing has."""
        while name in self.taken:
            name += "_"
        return self.reserve(name)


def _unchanged(text: str) -> str:
    return text


@dataclass
class Body:
    """Straight-line code for some roots: ``known`` nodes have a name already, shared ones get one.

    ``row_value`` spells a value that does not vary along the columns where an element is computed, ``row_mask`` a mask,
    ``row_whole`` an integer.
    """

    names: Names
    known: dict[int, str]
    declare: str  # how a value is declared, as in "const C"
    row_value: Callable[[str], str] = _unchanged
    row_mask: Callable[[str], str] = _unchanged
    row_whole: Callable[[str], str] = _unchanged
    element: bool = True
    keep: frozenset[int] | set[int] = frozenset()  # roots that the caller names itself
    approximate: str = ""  # follows the name of a function that has an accuracy
    kept: Mapping[int, str] = field(
        default_factory=dict
    )  # where values are to be kept for later passes, if any are
    again: Mapping[int, str] = field(default_factory=dict)  # where an earlier pass kept values
    spell: Callable[[Node], str | None] | None = (
        None  # another spelling than the primitive's, where it is not None
    )

    def emit(self, roots: Iterable[Node]) -> tuple[list[str], list[str]]:
        """The statements, and one expression for each root."""
        roots = list(roots)
        count = self._uses(roots)
        lines: list[str] = []
        known = dict(self.known)
        for node in self._order(roots):
            kept, again = self.kept.get(node.index), self.again.get(node.index)
            shared = count[node.index] > 1 or node.name is not None or kept or again
            if node.index not in self.keep and shared:
                text, _ = self._expression(node, known)
                text = f"kKeep ? {again} : {text}" if again else text
                name = self.names.of(node)
                kind = "const auto" if node.is_mask or node.is_whole else self.declare
                lines.append(f"{kind} {name} = {text};")
                lines += [f"if constexpr (kKeep) {kept} = {name};"] if kept else []
                known[node.index] = name
        return lines, [self._expression(r, known)[0] for r in roots]

    def _stops(self, node: Node) -> bool:
        return node.index in self.known or node.op in ("const", "iconst", "column")

    def _order(self, roots: list[Node]) -> list[Node]:
        seen: set[int] = set()
        order: list[Node] = []

        def visit(node: Node) -> None:
            if node.index in seen or self._stops(node):
                return
            seen.add(node.index)
            for a in node.args:
                visit(a)
            order.append(node)

        for root in roots:
            visit(root)
        return order

    def _uses(self, roots: list[Node]) -> dict[int, int]:
        count = {n.index: 0 for n in self._order(roots)}
        for node in [*roots, *(a for n in self._order(roots) for a in n.args)]:
            if node.index in count:
                count[node.index] += 1
        return count

    def _expression(self, node: Node, known: dict[int, str]) -> tuple[str, int]:
        if node.index in known:
            text = known[node.index]
            of_row = self.element and not node.span & Span.COLS
            spelled = self.row_mask if node.is_mask else self.row_whole if node.is_whole else self.row_value
            return (spelled(text) if of_row else text), 9
        if node.op == "iconst":
            text = integer_literal(node.attr)
            return (self.row_whole(text) if self.element else text), 9
        if node.op == "const":
            text = literal(node.attr)
            return (self.row_value(text) if self.element else text), 9
        primitive = PRIMITIVES[node.op]
        spelling = self.spell(node) if self.spell is not None else None
        if spelling is not None and "{" not in spelling:
            return spelling, 9
        parts = []
        for i, a in enumerate(node.args):
            text, precedence = self._expression(a, known)
            needs = primitive.precedence + (i > 0 or primitive.precedence == 8)
            in_call = primitive.precedence == 9
            parts.append(text if in_call or precedence >= needs else f"({text})")
        spelling = spelling or primitive.spelling
        if primitive.approximate and "<" not in spelling:
            spelling = spelling.replace("(", f"{self.approximate}(", 1)
        return spelling.format(*parts), primitive.precedence


def formula_comment(formula: str, source: str, width: int = 110) -> list[str]:
    """The record's formula and source as comment lines."""
    lines: list[str] = []
    for text in (formula, f"Source: {source}"):
        line = "//"
        for word in text.split():
            if len(line) + 1 + len(word) > width:
                lines.append(line)
                line = "//  "
            line += " " + word
        lines.append(line)
    return lines


def summand(reduction: Node, known: Collection[int]) -> tuple[Node, ...]:
    """What a reduction takes of each element: a sum of products their factors, for products are added by fma."""
    (value,) = reduction.args
    product = reduction.op == "sum" and value.op == "mul" and value.index not in known
    return value.args if product else (value,)


def row_level(nodes: Iterable[Node], roots: Iterable[Node], phase: dict[int, int]) -> dict[int, list[Node]]:
    """Values that do not vary along the columns and must be named, by the phase in which they become known."""
    nodes, roots = list(nodes), list(roots)
    count = uses(roots)
    inside = {n.index for n in nodes}
    wanted: dict[int, list[Node]] = {}
    result = {r.index for r in roots}
    users: dict[int, list[Node]] = {}
    for n in nodes:
        for a in n.args:
            users.setdefault(a.index, []).append(n)
    for n in nodes:
        if (
            n.span & Span.COLS
            or n.op in ("load", "scalar", "const", "iconst", "size")
            or n.is_reduction
            or n.index not in inside
        ):
            continue
        later = any(
            u.span & Span.COLS or u.is_reduction or phase[u.index] > phase[n.index]
            for u in users.get(n.index, [])
        )
        if later or n.op == "pick" or n.index in result or count[n.index] > 1 or n.name:
            wanted.setdefault(phase[n.index], []).append(n)
    return wanted
