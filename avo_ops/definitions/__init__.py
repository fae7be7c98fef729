"""What the operators compute: one module a family, math only.

``CATALOGUE`` lists every record that becomes kernels, ``COMPOSITES`` those made of such operators, ``LISTS`` those over lists of
tensors, which become kernels of their own class.
"""

from . import activations, bias, dropout, gated, losses, normalization, position, quantization, softmax
from .composites import COMPOSITES, Composite
from .lists import ListDef, ListReduction, OverLists
from .optimizers import LISTS
from .record import FLAT, LAST, Columns, OpDef, Sample, along, groups, trailing

CATALOGUE: tuple[OpDef, ...] = (
    *activations.CATALOGUE,
    *bias.CATALOGUE,
    *dropout.CATALOGUE,
    *gated.CATALOGUE,
    *losses.CATALOGUE,
    *normalization.CATALOGUE,
    *position.CATALOGUE,
    *quantization.CATALOGUE,
    *softmax.CATALOGUE,
)

__all__ = [
    "CATALOGUE",
    "COMPOSITES",
    "FLAT",
    "LAST",
    "LISTS",
    "Columns",
    "Composite",
    "ListDef",
    "ListReduction",
    "OpDef",
    "OverLists",
    "Sample",
    "along",
    "groups",
    "trailing",
]
