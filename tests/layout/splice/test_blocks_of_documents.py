"""Documents that lie together in a store are shown together by a block shuffle of splices."""

from itertools import pairwise

import pytest
from toydata import ToyStore, numbered

from tokenloom.layout.splice import rows as spliced_rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("fill", ["one", "pack"])
def test_documents_that_lie_together_are_shown_together(fill, monkeypatch):
    """Rows of a block of documents come together, also where a frame has several splices."""
    monkeypatch.setattr(spliced_rows, "BLOCK_TOKENS", 20)
    with ToyStore(numbered([[9] * 12], 10)) as toy:
        run = toy.store.splice(8, content_length=4, fill=fill).block_shuffle(window_blocks=1)
        owner = [9 * d // 20 for d in range(12)]
        spans = run.spans(range(len(run)))
        rows = [spans.document[a:b].tolist() for a, b in pairwise(spans.frame.tolist())]
        shown = [{owner[d] for d in row} for row in rows]
        assert all(len(row) == 1 for row in shown)
        blocks = [min(row) for row in shown]
        changes = sum(a != b for a, b in pairwise(blocks))
        assert changes == len(set(owner)) - 1 == 4
