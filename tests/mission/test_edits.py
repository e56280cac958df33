"""Edits: what they cost, what they warn about, and what is written of them."""

import json

import numpy as np
import pytest
from mixtoys import four_sources, picks_of
from refusals import refused

import tokenloom as tl
from tokenloom.testing import tiny

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return four_sources(tmp_path_factory.mktemp("edits"))


@pytest.fixture(scope="module")
def three(four):
    return {name: four[name] for name in ("wiki", "code", "books")}


def test_the_run_before_an_edit_stays_as_it_was(four, three):
    first = tl.mix(three).seed(1).edit(at=4, weights={"wiki": 2.0})
    before = picks_of(first), first.consumed(9), first.batch(range(9)).tokens.tolist()
    first.edit(at=6, add={"web": four["web"]}, quarantine=[("wiki", 0)])
    assert (picks_of(first), first.consumed(9), first.batch(range(9)).tokens.tolist()) == before


def test_ruling_13_an_edit_is_at_the_edge_of_a_block(three):
    """For every kind of edit under `rounds` and `random`; the other rules take any index."""
    for rule in ("rounds", "random"):
        mixed = tl.mix(three, rule=rule, block=16)
        for change in ({"weights": {"wiki": 2}}, {"quarantine": [("wiki", 0)]}, {}):
            for at in (17, 31, 33):
                edges = at // 16 * 16, at // 16 * 16 + 16
                refused(
                    lambda at=at, change=change, mixed=mixed: mixed.edit(at=at, **change),
                    tl.ConfigError,
                    f"at={at}",
                    *edges,
                )
            edited = mixed.edit(at=32, **change)
            assert picks_of(edited, 0, 32) == picks_of(mixed, 0, 32)
    for rule in ("weights", "least_consumed"):
        assert tl.mix(three, rule=rule, block=16).edit(at=33, weights={"wiki": 2}).is_finite


@pytest.mark.parametrize("followed", [0, 64])
def test_blank_rows_are_counted_exactly_in_the_warning_and_stay(three, followed):
    """However they are found: by searching all rows, or by following the documents."""
    alone = three["books"].epochs(1).shuffle(False)
    spans, hidden = alone.spans(range(len(alone))), {*range(20), 40}
    rows = np.split(spans.document, spans.frame[1:-1])
    blank = sum(set(row.tolist()) <= hidden for row in rows)
    assert 1 < blank < len(rows)
    with tiny(followed_documents=followed, blank_chunk_rows=5):
        with pytest.warns(UserWarning, match=f"quarantine: {blank} rows of source 'books'"):
            edited = tl.mix(three, stop="all_exhausted").edit(
                at=0, quarantine=[("books", d) for d in hidden]
            )
        batch = edited.batch(range(len(edited)))
    books = np.array(batch.source) == "books"
    assert (~batch.attention_mask[books].any(1)).sum() == 2 * blank, "in both epochs"


def test_a_state_of_an_edited_run_is_refused_by_other_edits_which_are_named(four, three):
    def state_of(run):
        with tl.Loader(run, 8, prefetch=0) as loader:
            for _ in range(3):
                next(loader)
            return json.loads(json.dumps(loader.state_dict()))

    def load(run, state):
        return lambda: tl.Loader(run, 8).load_state_dict(state)

    mixed = tl.mix(three).seed(4)
    late = mixed.edit(at=23, weights={"wiki": 2})
    refused(load(late, state_of(mixed)), tl.StateError, "edit", 23, 24)
    loader = tl.Loader(late, 8)
    loader.load_state_dict(state_of(mixed), allow_mismatch=True)
    assert loader.state_dict()["examples"] == 24
    state = state_of(mixed.edit(at=16, weights={"wiki": 2}))
    refused(load(mixed, state), tl.StateError, "edits")
    refused(load(mixed.edit(at=16, weights={"wiki": 3}), state), tl.StateError, "edits", "wiki")
    web = four["web"]
    state = state_of(mixed.edit(at=8, add={"web": web}))
    masked = mixed.edit(at=8, add={"web": web.render(mask_boundary_loss=False)})
    refused(load(masked, state), tl.StateError)


def test_all_sources_gone_is_the_end(three):
    edited = tl.mix(three).edit(at=20, remove=list(three))
    assert len(edited) == 20
    with tl.Loader(edited, 8, end="pad") as loader:
        assert [batch.index.tolist()[-1] for batch in loader] == [7, 15, -1]


def test_edits_are_listed_in_the_description_and_each_changes_the_fingerprint(four, three):
    runs = [tl.mix(three).seed(2)]
    for change in (
        {"at": 10, "weights": {"wiki": 2}},
        {"at": 20, "add": {"web": four["web"]}, "weights": {"web": 1 / 3}},
        {"at": 30, "remove": ["code"], "quarantine": [("wiki", 4)]},
    ):
        runs.append(runs[-1].edit(**change))
    edits = json.loads(json.dumps(runs[-1].describe()))["mix"]["edits"]
    assert [edit["at"] for edit in edits] == [10, 20, 30]
    assert edits[0]["weights"] == {"wiki": 2.0}
    assert edits[1]["add"] == ["web"]
    assert edits[1]["weights"] == {"web": 0.333333333333}
    assert edits[2]["remove"] == ["code"]
    assert edits[2]["quarantine"] == [["wiki", 4]]
    others = [runs[0].edit(at=11, weights={"wiki": 2}), runs[0].edit(at=10, weights={"wiki": 3})]
    others.append(runs[0].edit(at=10, quarantine=[("wiki", 1)]))
    others.append(runs[0].edit(at=10, quarantine=[("wiki", 2)]))
    assert len({run.fingerprint for run in runs + others}) == len(runs + others)
