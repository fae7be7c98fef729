"""What the operators compute: one module a family, math only. ``CATALOGUE`` lists every record."""

from . import activations, bias, gated, normalization, softmax
from .record import FLAT, LAST, Columns, OpDef, Sample, along, trailing

CATALOGUE: tuple[OpDef, ...] = (
    *activations.CATALOGUE,
    *bias.CATALOGUE,
    *gated.CATALOGUE,
    *normalization.CATALOGUE,
    *softmax.CATALOGUE,
)

__all__ = ["CATALOGUE", "FLAT", "LAST", "Columns", "OpDef", "Sample", "along", "trailing"]
