"""The splice experiment trains on what its table says, and finds what theory says it must."""

import numpy as np
import pytest
import torch

from examples import splice_claim as claim
from tokenloom.inspect import triples

T = range(claim.DOCUMENT - claim.WINDOW + 1)  # starts of whole windows
S = range(claim.FRAME - claim.WINDOW + 1)  # offsets where they fit


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return claim.build(str(tmp_path_factory.mktemp("claim")))


def places(store, settings):
    """(t, s) of all splices of each document, which must be the same."""
    data = store.splice(claim.FRAME, **settings)
    found = triples(data, np.arange(len(data)))
    columns = (found.document, found.t, found.s)
    listed = list(zip(*(column.tolist() for column in columns), strict=True))
    each = [sorted((t, s) for d, t, s in listed if d == one) for one in range(len(claim.SAYINGS))]
    assert all(some == each[0] for some in each)
    return each[0]


@pytest.mark.parametrize(
    ("regime", "wanted"),
    [
        ("anchor", [(0, 0)]),
        ("tile", [(0, 0), (32, 0)]),
        ("slide_t", [(t, 0) for t in T]),
        ("slide_within", [(t, s) for t in T for s in S]),
    ],
)
def test_a_regime_shows_the_starts_and_offsets_of_its_description(store, regime, wanted):
    assert places(store, claim.REGIMES[regime]) == wanted


def test_packed_shows_every_clipped_window_and_the_grid_is_that_of_the_maps(store):
    data = store.splice(claim.FRAME, **claim.REGIMES["packed"])
    found = triples(data, np.arange(len(data)))
    for document in range(len(claim.SAYINGS)):
        starts = np.sort(found.t[found.document == document])
        assert starts.tolist() == list(range(2 - claim.WINDOW, claim.DOCUMENT - 1))
    wanted = [(t, s) for t in range(0, 33, 8) for s in range(0, 81, 16)]
    assert places(store, claim.GRID) == wanted


@pytest.mark.slow
def test_splicing_does_what_theory_says_it_does(capsys):
    """Orderings only; the figures themselves change with the seed and the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found = claim.experiment()
    torch.set_num_threads(before)
    shown = capsys.readouterr().out
    for (model, regime), x in found.losses.items():
        assert x.shape == (claim.STARTS, claim.OFFSETS)
        assert f"\n{model:7}  {regime:12}" in shown
        if model == "RoPE":  # offsets are nothing to it, whatever it was trained on
            assert np.abs(x - x[:, :1]).max() < 1e-3
    rope, learned = ({r: x for (m, r), x in found.losses.items() if m == n} for n in claim.RUNS)
    # tiles are known from where they were trained only; t = 0 and t = 32 were
    assert rope["slide_t"][1:].mean() < 0.1 * rope["tile"][1:].mean()
    assert rope["packed"][1:].mean() < 0.1 * rope["tile"][1:].mean()
    # learned positions are known where they were trained only
    assert learned["slide_within"][:, 1:].mean() < 0.1 * learned["anchor"][:, 1:].mean()
    assert found.packed < 1e-5
