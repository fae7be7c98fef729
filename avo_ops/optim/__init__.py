"""Optimizers whose step updates all parameters of a group in one launch, with the arguments and the state of torch.optim's.

``AdamW`` and ``SGD`` take the place of ``torch.optim.AdamW`` and ``torch.optim.SGD``, whose ``state_dict`` they load and which load
theirs; ``Lion`` has no twin in torch. A ``torch.amp.GradScaler`` neither unscales gradients before a step nor waits for the GPU.
"""

from .clipping import clip_factor
from .optimizers import SGD, AdamW, Lion

__all__ = ["SGD", "AdamW", "Lion", "clip_factor"]
