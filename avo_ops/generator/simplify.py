"""Rewriting of the normal form: local identities when a node is made, and sums that split or vanish."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from .ir import PRIMITIVES, Builder, Graph, Node, Span, is_const, uses


def local_rules(b: Builder, op: str, args: tuple[Node, ...], attr: object) -> Node | None:
    """A simpler node for ``op(*args)``, or None. Identities hold for every input, signed zeros and NaN included."""
    if op in _RULES:
        simpler = _RULES[op](b, args)
        if simpler is not None:
            return simpler
    if op in PRIMITIVES and op in _FOLDABLE and all(is_const(a) for a in args):
        return b.const(_FOLDABLE[op](*(a.attr for a in args)))
    return None


_FOLDABLE: dict[str, Callable[..., float]] = {
    "neg": lambda x: -x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
}


def _mul(b: Builder, args: tuple[Node, ...]) -> Node | None:
    for one, other in (args, args[::-1]):
        if is_const(one, 1.0):
            return other
        if is_const(one, -1.0):
            return b.make("neg", other)
        if one.op == "neg" and is_const(other):
            return b.make("mul", one.args[0], b.const(-other.attr))
        if not (is_const(one) and one.attr and other.op == "mul"):
            continue
        for inner, rest in (other.args, other.args[::-1]):
            # c * (d * x) = (c * d) * x: one rounding fewer.
            if is_const(inner):
                if not 1e-30 < abs(one.attr * inner.attr) < 1e30:  # it could overflow or vanish in float32
                    continue
                return b.make("mul", b.const(one.attr * inner.attr), rest)
            # c * (r * x) = (c * r) * x where r does not vary along the columns: once a row, not once an element;
            # c * ((d * y) * x) = ((c * d) * y) * x.
            if rest.span & Span.COLS and (not inner.span & Span.COLS or _has_const(inner)):
                return b.make("mul", b.make("mul", one, inner), rest)
    return _mul_by_own_function(b, args) or _mul_of_products(b, args)


def _mul_of_products(b: Builder, args: tuple[Node, ...]) -> Node | None:
    """(c * x) * (d * y) = (c * d) * (x * y): one rounding fewer, or two where c * d = 1. Squares stay, for exp_neg_sq."""
    if args[0] is args[1] or not all(_has_const(a) for a in args):
        return None
    (c, x), (d, y) = (a.args if is_const(a.args[0]) else a.args[::-1] for a in args)
    if not 1e-30 < abs(c.attr * d.attr) < 1e30:
        return None
    return b.make("mul", b.const(c.attr * d.attr), b.make("mul", x, y))


def _mul_by_own_function(b: Builder, args: tuple[Node, ...]) -> Node | None:
    """x * Phi(x) and x * sigmoid(x) as one primitive, which is more accurate than the product (and the first is cheaper)."""
    for x, other in (args, args[::-1]):
        if other.op in ("ndtr", "sigmoid") and other.args[0] is x:
            return b.make(f"x_{other.op}", *other.args)
    return None


def _has_const(node: Node) -> bool:
    return node.op == "mul" and any(is_const(a) for a in node.args)


def _add(b: Builder, args: tuple[Node, ...]) -> Node | None:
    for one, other in (args, args[::-1]):
        if is_const(one, -0.0):  # x + 0 is not x for x = -0
            return other
        if one.op == "neg":
            return b.make("sub", other, one.args[0])
        # x + (x + y) = 2 x + y: the doubling is exact.
        if one.op == "add" and other in one.args and other.op == "mul":
            rest = one.args[1] if one.args[0] is other else one.args[0]
            return b.make("add", b.make("mul", b.const(2.0), other), rest)
    return None


def _sub(b: Builder, args: tuple[Node, ...]) -> Node | None:
    if is_const(args[1], 0.0):
        return args[0]
    if args[1].op == "neg":
        return b.make("add", args[0], args[1].args[0])
    if is_const(args[0], 1.0) and args[1].op == "sigmoid":
        return b.make("sigmoid_rest", args[1].args[0], args[1])
    return None


def _div(b: Builder, args: tuple[Node, ...]) -> Node | None:
    top, bottom = args
    if is_const(bottom, 1.0):
        return top
    if is_const(bottom) and 1e-30 < abs(bottom.attr) < 1e30 and math.frexp(bottom.attr)[0] in (0.5, -0.5):
        return b.make("mul", top, b.const(1.0 / bottom.attr))
    if bottom.op == "sqrt":
        return b.make("mul", top, b.make("rsqrt", bottom.args[0]))
    # One division a row, then products: much cheaper for each element. `contract` looks to their accuracy.
    if not is_const(bottom) and bottom.op != "size" and top.span & ~bottom.span:
        return b.make("mul", top, b.make("recip", bottom))
    return None


def _pow(b: Builder, args: tuple[Node, ...]) -> Node | None:
    base, power = args
    if not is_const(power):
        return None
    square = b.make("mul", base, base) if power.attr in (2.0, 3.0, 4.0, -2.0) else None
    if power.attr == 1.0:
        return base
    if power.attr == 0.5:
        return b.make("sqrt", base)
    if power.attr == -0.5:
        return b.make("rsqrt", base)
    if power.attr == -1.0:
        return b.make("recip", base)
    if square is not None:
        if power.attr == 2.0:
            return square
        if power.attr == 3.0:
            return b.make("mul", square, base)
        if power.attr == 4.0:
            return b.make("mul", square, square)
        return b.make("recip", square)
    return None


def _neg(b: Builder, args: tuple[Node, ...]) -> Node | None:
    (x,) = args
    if x.op == "neg":
        return x.args[0]
    if x.op == "mul" and any(is_const(a) for a in x.args):
        constant, other = x.args if is_const(x.args[0]) else x.args[::-1]
        return b.make("mul", b.const(-constant.attr), other)
    return None


def _exp(b: Builder, args: tuple[Node, ...]) -> Node | None:
    (x,) = args
    # exp(-z * z) keeps its accuracy as one primitive, and is what erfc shares with its derivative.
    if x.op == "neg" and x.args[0].op == "mul" and x.args[0].args[0] is x.args[0].args[1]:
        return b.make("exp_neg_sq", x.args[0].args[0])
    return None


def _sqrt_half_times(z: Node) -> tuple[float, Node] | None:
    """The sign and x of z = +-sqrt(1/2) * x."""
    if z.op == "mul":
        for c, x in (z.args, z.args[::-1]):
            if is_const(c) and math.isclose(abs(c.attr), math.sqrt(0.5), rel_tol=1e-14):
                return math.copysign(1.0, c.attr), x
    return None


def _exp_neg_sq(b: Builder, args: tuple[Node, ...]) -> Node | None:
    found = _sqrt_half_times(args[0])
    return b.make("exp_neg_half_sq", found[1]) if found else None


def _erfc(b: Builder, args: tuple[Node, ...]) -> Node | None:
    """erfc(-x / sqrt(2)) = 2 Phi(x): no rounding of the quotient, which the tail would magnify."""
    found = _sqrt_half_times(args[0])
    if not found:
        return None
    sign, x = found
    return b.make(
        "mul", b.const(2.0), b.make("ndtr", x if sign < 0 else b.make("neg", x), b.make("exp_neg_half_sq", x))
    )


def _where(b: Builder, args: tuple[Node, ...]) -> Node | None:
    return args[1] if args[1] is args[2] else None


def _is_mask_as_integer(node: Node) -> bool:
    """Whether a node is 1 where a mask holds, else 0."""
    return node.op == "iwhere" and [(a.op, a.attr) for a in node.args[1:]] == [("iconst", 1), ("iconst", 0)]


def _ine(b: Builder, args: tuple[Node, ...]) -> Node | None:
    for one, other in (args, args[::-1]):
        if _is_mask_as_integer(one) and (other.op, other.attr) == ("iconst", 0):
            return one.args[0]
    return None


def _to_math(b: Builder, args: tuple[Node, ...]) -> Node | None:
    (x,) = args
    if x.op == "iconst":
        return b.const(float(x.attr))
    return b.make("where", x.args[0], b.const(1.0), b.const(0.0)) if _is_mask_as_integer(x) else None


_RULES: dict[str, Callable[[Builder, tuple[Node, ...]], Node | None]] = {
    "mul": _mul, "add": _add, "sub": _sub, "div": _div, "pow": _pow, "neg": _neg, "exp": _exp, "where": _where,
    "exp_neg_sq": _exp_neg_sq, "erfc": _erfc, "ine": _ine, "to_math": _to_math,
}  # fmt: skip


def phase_of(
    nodes: list[Node], known: frozenset[int] = frozenset(), given: Mapping[int, int] | None = None
) -> dict[int, int]:
    """How many row reductions must have ended before each node can be computed; ``known`` nodes are there already.

    ``given``: the phases of some reductions.
    """
    phase = dict(given or {})
    for node in nodes:
        before = max((phase[a.index] for a in node.args), default=0)
        own = 0 if node.index in known else before + (node.is_reduction and node.attr == Span.COLS)
        phase.setdefault(node.index, own)
    return phase


def pick_columns(b: Builder, graph: Graph, integers: Collection[str]) -> Graph:
    """The graph with row sums of values but for one column, which an integer of the row names, as loads of that column."""

    def change(node: Node, args: tuple[Node, ...]) -> Node | None:
        if node.op != "sum" or node.attr != Span.COLS or args[0].op != "where":
            return None
        where, value, rest = args[0].args
        if where.op != "eq" or not (is_const(rest, 0.0) or is_const(rest, -0.0)):
            return None
        place = next((a for a in where.args if a.op == "load" and a.attr in integers), None)
        if place is None or all(a.op != "column" for a in where.args):
            return None
        if any(n.op == "uniform" for n in Graph({"": value}).nodes()):
            return None
        b.source, b.name = node.source, node.name
        return b.make("pick", value, place)

    return rebuild(b, graph, change)


def online_phases(nodes: list[Node], online: Mapping[int, Node]) -> dict[int, int]:
    """Phases where a sum that is ``online`` ends with the maximum that it is taken from."""
    given: dict[int, int] = {}
    for node in nodes:  # operands first
        if node.index in online:
            given[node.index] = phase_of(nodes, given=given)[online[node.index].index]
    return phase_of(nodes, given=given)


def merged_phases(graph: Graph) -> dict[int, int]:
    """Phases where a reduction that can wait is made beside others of its kind, which costs no barrier of its own."""
    nodes = graph.nodes()
    phase = phase_of(nodes)
    latest = dict.fromkeys(phase, max(phase.values(), default=0))
    for node in reversed(nodes):
        here = phase[node.index] - 1 if _of_row(node) else latest[node.index]
        for a in node.args:
            latest[a.index] = min(latest[a.index], here)
    groups: dict[tuple[int, str], list[Node]] = {}
    for node in filter(_of_row, nodes):
        groups.setdefault((phase[node.index], node.op), []).append(node)
    given: dict[int, int] = {}
    for (own, op), group in groups.items():
        end = min(latest[n.index] for n in group)
        later = [k for k, other in groups if other == op and own < k <= end]
        if later:
            given |= {n.index: min(later) for n in group}
    return phase_of(nodes, given=given)


def computed_again(graph: Graph, phase: Mapping[int, int]) -> dict[int, tuple[Node, int]]:
    """Values of elements, dear to compute, that a reduction of a row needs and a later pass over it again: each with the first of
    its passes. What is needed for such a value alone is none.
    """
    nodes = graph.nodes()
    last = max(phase.values(), default=0)
    roots: dict[int, list[Node]] = {k: [] for k in range(1, last + 2)}
    for node in nodes:
        if node.is_reduction:
            roots[phase[node.index] if _of_row(node) else last + 1].append(node.args[0])
    roots[last + 1] += [v for v in graph.results.values() if v.span & Span.ROWS and v.span & Span.COLS]
    first: dict[int, int] = {}
    found: dict[int, tuple[Node, int]] = {}
    for k, todo in roots.items():
        seen: set[int] = set()
        while todo:
            n = todo.pop()
            if n.index in seen or not n.span & Span.COLS:
                continue
            seen.add(n.index)
            dear = n.op in PRIMITIVES and PRIMITIVES[n.op].approximate
            if dear and first.setdefault(n.index, k) < k:
                found[n.index] = n, first[n.index]
            else:
                todo += n.args
    return found


def may_replace_row(graph: Graph) -> bool:
    """Whether the results need what :func:`computed_again` finds, and no operand of the row beside it."""
    again = computed_again(graph, merged_phases(graph))
    seen: set[int] = set()
    todo = [v for v in graph.results.values() if v.span & Span.ROWS and v.span & Span.COLS]
    while todo:
        n = todo.pop()
        if n.index in seen or n.index in again or not n.span & Span.COLS:
            continue
        if n.op == "load" and n.span == Span.BOTH:
            return False
        seen.add(n.index)
        todo += n.args
    return bool(again)


def _of_row(node: Node) -> bool:
    return node.is_reduction and node.attr == Span.COLS


def online_sums(nodes: list[Node]) -> dict[int, Node]:
    """Row sums of exp(x - max(x)) by index, with the maximum: known so far, it and the sum take one pass over a row.

    Milakov and Gimelshein, arXiv:1805.02867. The sum so far is multiplied by exp(m - m') when the maximum grows from m to m'.
    """
    found = {}
    for node in nodes:
        if node.op == "sum" and node.attr == Span.COLS and node.args[0].op == "exp":
            (centred,) = node.args[0].args
            if centred.op == "sub":
                x, largest = centred.args
                if largest.op == "amax" and largest.attr == Span.COLS and largest.args[0] is x:
                    found[node.index] = largest
    return found


def joined(graph: Graph) -> list[Node]:
    """Results of several row operands (or of random numbers), rounded, through which alone the row reductions and all that follows
    know these operands: a kernel computes and stores such a value once, and keeps it instead of what it is made of.
    """
    nodes = graph.nodes()
    phase = phase_of(nodes)
    read = {n.args[0].index for n in nodes if n.is_reduction and n.attr == Span.COLS}
    in_reductions = Graph({str(i): n for i, n in enumerate(nodes) if n.index in read}).nodes()
    found = []
    for node in in_reductions:
        if node.op != "round_result" or phase[node.index] or graph.results.get(node.attr) is not node.args[0]:
            continue
        below = Graph({"": node}).nodes()
        own = {n.index for n in below if n.op == "load" and n.span == Span.BOTH}
        if len(own) + sum(n.op == "uniform" for n in below) < 2:
            continue
        if any((n.op == "load" or n.is_reduction) and n.span == Span.COLS for n in below):
            continue
        seen: set[int] = {node.index}
        todo = [v for name, v in graph.results.items() if name != node.attr]
        while todo:
            n = todo.pop()
            if n.index not in seen:
                seen.add(n.index)
                todo += n.args
        if not own & seen:
            found.append(node)
    return found


def rebuild(b: Builder, graph: Graph, change: Callable[[Node, tuple[Node, ...]], Node | None]) -> Graph:
    """The graph with every node offered to ``change`` (node, its new operands), operands first."""
    new: dict[int, Node] = {}
    for node in graph.nodes():
        args = tuple(new[a.index] for a in node.args)
        changed = change(node, args)
        if changed is None:
            b.source, b.name = node.source, node.name
            changed = node if args == node.args else b.make(node.op, *args, attr=node.attr, span=node.span)
        new[node.index] = changed
    b.source = b.name = None
    return Graph({name: new[node.index] for name, node in graph.results.items()})


def split_sums(b: Builder, graph: Graph, known: frozenset[int] = frozenset(), finite: bool = False) -> Graph:
    """Pull factors that do not vary along the columns out of row sums and split sums of terms, where that saves a phase.

    sum(f * r) = r * sum(f), sum(f + g) = sum(f) + sum(g), and sum(x - mean(x)) = 0. After it the sums of a norm's
    backward no longer wait for one another, so they share one pass over the row. The last is NaN in rows that are not finite,
    unless ``finite`` says that they show it otherwise: in gradients, whose other terms are NaN there.
    """
    for _ in range(8):
        phase = phase_of(graph.nodes(), known)
        late = [
            n for n in graph.nodes()
            if n.op == "sum" and n.attr == Span.COLS and phase[n.index] > 1 and _splits(n.args[0], phase, phase[n.index])
        ]  # fmt: skip
        if not late:
            return graph
        target = late[0]
        total = _sum_of(b, target.args[0], finite)
        changed = rebuild(b, graph, lambda node, args: total if node is target else None)  # noqa: B023
        if max(phase_of(changed.nodes(), known).values()) > max(phase.values()):
            return graph
        if len(changed.nodes()) == len(graph.nodes()) and changed.results == graph.results:
            return graph
        graph = changed
    return graph


def _splits(value: Node, phase: dict[int, int], at: int) -> bool:
    """Whether the sum of ``value``, which becomes known in phase ``at``, splits into sums that are known earlier.

    A difference from a row's largest or least value does not: it may be much smaller than these.
    """
    terms = _terms(value)
    if any(t.value is None and any(f.op in ("amax", "amin") for f in t.factors) for t in terms):
        return False
    return all(phase[t.value.index] + 1 < at for t in terms if t.value is not None)


@dataclass(frozen=True)
class _Term:
    """``sign * product(factors) / product(divisors) * value``; all but the value are constant along the columns.

    ``value`` None stands for 1.
    """

    sign: float
    factors: tuple[Node, ...]
    divisors: tuple[Node, ...]
    value: Node | None


def _terms(
    value: Node, sign: float = 1.0, factors: tuple[Node, ...] = (), divisors: tuple[Node, ...] = ()
) -> list[_Term]:
    """``value`` as a sum of terms."""
    if not value.span & Span.COLS:
        return [_Term(sign, (*factors, value), divisors, None)]
    if _is_centred(value):
        return [_Term(sign, factors, divisors, value)]
    if value.op == "neg":
        return _terms(value.args[0], -sign, factors, divisors)
    if value.op in ("add", "sub"):
        other = -sign if value.op == "sub" else sign
        return _terms(value.args[0], sign, factors, divisors) + _terms(
            value.args[1], other, factors, divisors
        )
    if value.op == "mul":
        for one, rest in (value.args, value.args[::-1]):
            if not one.span & Span.COLS:
                return _terms(rest, sign, (*factors, one), divisors)
    if value.op == "div" and not value.args[1].span & Span.COLS:
        return _terms(value.args[0], sign, factors, (*divisors, value.args[1]))
    return [_Term(sign, factors, divisors, value)]


def _sum_of(b: Builder, value: Node, finite: bool) -> Node:
    """The sum of ``value`` over the columns, term by term; a centred term's sum vanishes."""
    total: Node | None = None
    for t in _terms(value):
        if t.value is None:
            term = b.size(Span.COLS)
        elif not _is_centred(t.value):
            term = b.make("sum", t.value, attr=Span.COLS)
        elif finite:
            continue
        else:
            mean = t.value.args[1]
            term = b.make("sub", mean, mean)
        for factor in t.factors:
            term = b.make("mul", term, factor)
        for divisor in t.divisors:
            term = b.make("div", term, divisor)
        if t.sign < 0:
            term = b.make("neg", term)
        total = term if total is None else b.make("add", total, term)
    return total if total is not None else b.const(0.0)


def _is_centred(value: Node) -> bool:
    """Whether value is x - mean(x) over the columns: its sum vanishes but for rounding."""
    if value.op != "sub":
        return False
    x, mean = value.args
    return _mean_of(mean) is x


def regroup_powers(b: Builder, graph: Graph) -> Graph:
    """x * (r * r * r * k) = (x * r) * (r * (r * k)) where r and k do not vary along the columns.

    So a norm's gradient multiplies its normalised row. rstd^3 alone leaves the range of float32 for rows of 1e13 or more,
    and of 1e-13 or less where eps is as small, though the gradient does not. If k has the row's sum of x * y, it becomes that of
    (x * r) * y: the sum of large rows would overflow, and r be 0. The result does not depend on what else is computed, so that
    the bits of a row's gradient do not depend on which gradients are wanted.
    """

    def scaled(total: Node, x: Node, r: Node) -> Node | None:
        """r times a row's sum of products with x, or with its difference from a value of the row."""
        if total.op != "sum" or total.attr != Span.COLS or total.args[0].op != "mul":
            return None
        for one, other in (total.args[0].args, total.args[0].args[::-1]):
            if one is x or (one.op == "sub" and one.args[0] is x and not one.args[1].span & Span.COLS):
                return b.make("sum", b.make("mul", b.make("mul", one, r), other), attr=Span.COLS)
        return None

    def change(node: Node, args: tuple[Node, ...]) -> Node | None:
        if node.op != "mul":
            return None
        for x, k in (args, args[::-1]):
            if not x.span & Span.COLS or k.span & Span.COLS:
                continue
            (factors, divisors, negative) = _factors(k)
            repeated = [f for f in factors if not is_const(f) and sum(g is f for g in factors) > 1]
            if not repeated:
                continue
            b.source, b.name = node.source, node.name
            constant = math.prod(f.attr for f in factors if is_const(f)) * (-1.0 if negative else 1.0)
            value = b.const(constant)
            for f in factors:
                if is_const(f) or any(f is r for r in repeated):
                    continue
                total = scaled(f, x, repeated[0]) if sum(g is repeated[0] for g in repeated) > 2 else None
                if total is not None:
                    repeated = repeated[1:]
                value = b.make("mul", value, total or f)
            for divisor in divisors:
                value = b.make("div", value, divisor)
            for f in repeated[1:]:
                value = b.make("mul", f, value)
            return b.make("mul", b.make("mul", x, repeated[0]), value)
        return None

    return rebuild(b, graph, change)


def _factors(value: Node) -> tuple[list[Node], list[Node], bool]:
    """A product as its factors, its divisors, and whether it is negative."""
    if value.op == "mul":
        left, right = (_factors(a) for a in value.args)
        return left[0] + right[0], left[1] + right[1], left[2] != right[2]
    if value.op == "div":
        factors, divisors, negative = _factors(value.args[0])
        return factors, [*divisors, value.args[1]], negative
    if value.op == "neg":
        factors, divisors, negative = _factors(value.args[0])
        return factors, divisors, not negative
    return [value], [], False


def contract(b: Builder, graph: Graph) -> Graph:
    """Write a * b + c as fma where the product has no other use: the only contraction that any kernel gets.

    And a product with a reciprocal of the row as their quotient, which costs a remainder where results are float32.
    """
    count = uses(graph.results.values())

    def change(node: Node, args: tuple[Node, ...]) -> Node | None:
        if node.op == "mul":
            for i in (0, 1):
                difference, k = args[i], args[1 - i]
                if k.op == "recip" and difference.span & ~k.span & Span.COLS:
                    b.source, b.name = node.source, node.name
                    return b.make("quotient", difference, k.args[0], k)
                # (a - r) * k where r is what rounding left of the mean of a, a centred row: r * k is as small.
                if k.span & Span.COLS or count[node.args[i].index] != 1 or not _is_centred(difference):
                    continue
                a, r = difference.args
                if _is_centred(a):
                    b.source, b.name = node.source, None
                    rest = b.make("neg", b.make("mul", r, k))
                    b.name = node.name
                    return b.make("fma", a, k, rest)
            return None
        if node.op not in ("add", "sub"):
            return None
        for i in (1, 0):
            old, product = node.args[i], args[i]
            if product.op != "mul" or count[old.index] != 1:
                continue
            left, right, other = product.args[0], product.args[1], args[1 - i]
            b.source, b.name = node.source, None
            if node.op == "sub":
                left, other = (b.make("neg", left), other) if i == 1 else (left, b.make("neg", other))
            b.name = node.name
            return b.make("fma", left, right, other)
        return None

    return rebuild(b, graph, change)


def keep_means_in_range(b: Builder, graph: Graph, statistics: Collection[str] = ()) -> Graph:
    """A mean that is no more than a shift, for what it misses a second mean gives back, as sums that do not overflow.

    The terms of the first are divided by a power of two, which is exact but for the smallest: the second mean makes up for these.
    The second is 0 where its sum overflows, as squares then do too: the row's normal form is 0. ``statistics`` are results that
    nobody but the backward sees.
    """
    again = [n for n in graph.nodes() if (x := _mean_of(n)) is not None and _is_centred(x)]
    again = [n for n in again if _is_given_back(n, graph, statistics)]
    shifts = [n.args[0].args[0].args[1] for n in again]
    scale = 2.0**32

    def change(node: Node, args: tuple[Node, ...]) -> Node | None:
        b.source, b.name = node.source, None
        if any(node is n for n in shifts):
            b.name = "scaled"
            scaled = b.make("mul", args[0].args[0], b.const(1.0 / scale))
            b.name = None
            total = b.make("sum", scaled, attr=Span.COLS)
            mean = b.make("div", total, args[1])
            b.name = node.name
            return b.make("mul", mean, b.const(scale))
        if any(node is n for n in again):
            mean = b.make("div", *args)
            finite = b.make("lt", b.make("abs", mean), b.const(math.inf))
            b.name = node.name
            return b.make("where", finite, mean, b.const(0.0))
        return None

    return rebuild(b, graph, change)


def _is_given_back(residue: Node, graph: Graph, statistics: Collection[str]) -> bool:
    """Whether a row's mean, and what it missed, are seen in its variance and its normal form alone.

    Whoever saw one of them by itself would miss the digits of small rows, and the NaN of those that have one.
    """
    centred = residue.args[0].args[0]
    mean = centred.args[1]
    shown = [v for name, v in graph.results.items() if name not in statistics]
    if any(v is n for v in shown for n in (mean, centred, residue)):
        return False
    nodes = list(graph.nodes())
    both = [residue, *(n for n in nodes if n.op == "neg" and n.args[0] is residue)]
    squared = any(
        n.op in ("mul", "fma") and all(any(a is r for r in both) for a in n.args[:2]) for n in nodes
    )
    return squared and all(n is centred for n in nodes if any(a is mean for a in n.args))


def _mean_of(node: Node) -> Node | None:
    """What a node is the mean of over the columns."""
    if node.op != "div" or node.args[1].op != "size" or node.args[1].attr != Span.COLS:
        return None
    total = node.args[0]
    return total.args[0] if total.op == "sum" and total.attr == Span.COLS else None
