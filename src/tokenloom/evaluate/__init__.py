"""What a model has learned: losses by place, and P(z) of every window.

- `evaluate`: perplexity and bits per byte, over all tokens and by document, source and place.
- `pz`: how likely the model writes a text by itself; `log_pz` for logits at hand.
- `contrast`: the same beside documents that were held out; `heat_map`: a picture of it.
- `overlap`: evaluation documents that were trained on, in part or as a whole.
- `token_page`: a document with the probability of every token, as text and HTML.
- `check_position_invariance`: whether a model cares where in the frame a text is.
- `Periodic`: any of these while a model trains, in files; `learned`: which documents came first;
  `gathered`: on all ranks.
"""

from tokenloom.evaluate.answer_files import gathered
from tokenloom.evaluate.decoding import Decoding, TokenScores, token_scores
from tokenloom.evaluate.evaluation_sets import content_hash, one_document_rows
from tokenloom.evaluate.extraction import Contrast, Extraction, contrast
from tokenloom.evaluate.heat_map import heat_map
from tokenloom.evaluate.losses import Losses, evaluate
from tokenloom.evaluate.models import in_jax, load_local, model_fingerprint
from tokenloom.evaluate.overlaps import Overlap, overlap
from tokenloom.evaluate.periodic import Learned, Periodic, curves, learned
from tokenloom.evaluate.positions import PositionReport, check_position_invariance
from tokenloom.evaluate.probabilities import (
    draws_needed,
    log_pz,
    log_threshold,
    longest_suffix,
)
from tokenloom.evaluate.token_page import TokenPage, token_page
from tokenloom.evaluate.windows import pz, window_run

__all__ = [
    "Contrast",
    "Decoding",
    "Extraction",
    "Learned",
    "Losses",
    "Overlap",
    "Periodic",
    "PositionReport",
    "TokenPage",
    "TokenScores",
    "check_position_invariance",
    "content_hash",
    "contrast",
    "curves",
    "draws_needed",
    "evaluate",
    "gathered",
    "heat_map",
    "in_jax",
    "learned",
    "load_local",
    "log_pz",
    "log_threshold",
    "longest_suffix",
    "model_fingerprint",
    "one_document_rows",
    "overlap",
    "pz",
    "token_page",
    "token_scores",
    "window_run",
]
