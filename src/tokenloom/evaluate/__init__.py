"""Takes a model and a run → gives what was learned: losses by place, and P(z) of every window.

- `evaluate`: perplexity and bits per byte, over all tokens and by document, source and place.
- `pz`: how likely the model writes a text by itself; `log_pz` for logits at hand.
"""

from tokenloom.evaluate.decoding import Decoding, token_scores
from tokenloom.evaluate.extract import pz, window_run
from tokenloom.evaluate.extraction import draws_needed, log_pz, log_threshold, longest_suffix
from tokenloom.evaluate.jax_models import in_jax
from tokenloom.evaluate.losses import Losses, evaluate
from tokenloom.evaluate.window_scores import Extraction

__all__ = [
    "Decoding",
    "Extraction",
    "Losses",
    "draws_needed",
    "evaluate",
    "in_jax",
    "log_pz",
    "log_threshold",
    "longest_suffix",
    "pz",
    "token_scores",
    "window_run",
]
