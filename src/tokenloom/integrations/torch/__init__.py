"""Takes a run → gives a real `DataLoader` of PyTorch, with an exact state.

`dataloader` is the one line. `StepDataset` and `StepSampler` are its parts, for loaders of other
libraries; `stateful` is for distributed checkpoints, `context_slice` for rows that several ranks
share.
"""

from tokenloom.integrations.torch.data_loader import (
    Stateful,
    StepDataLoader,
    StepDataset,
    StepSampler,
    context_slice,
    dataloader,
    stateful,
)

__all__ = [
    "Stateful",
    "StepDataLoader",
    "StepDataset",
    "StepSampler",
    "context_slice",
    "dataloader",
    "stateful",
]
