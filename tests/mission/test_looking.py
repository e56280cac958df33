"""What is asked of a run and answered in words: steps, next, ids, reasons, sums, text."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from virtual import VirtualStore

import tokenloom as tl

# what packing loses, and rows that a quarantine leaves blank, are told when runs are made
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents of 0 to 30 tokens, without text."""
    sizes = [8, 0, 3, 30, 12, 1, 5, 16, 9, 2, 23, 7, 17, 4]
    rows = [{"input_ids": [1 + k for k in range(n)]} for n in sizes]
    path = tmp_path_factory.mktemp("ids") / "store"
    return tl.build(rows, path, tokenizer=None, vocab_size=99, progress=False)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    rows = [{"text": f"tale {i} " * (i % 5 + 1), "id": f"t{i % 7}"} for i in range(20)]
    path = tmp_path_factory.mktemp("texts") / "store"
    return tl.build(rows, path, tokenizer="bytes", id_key="id", progress=False)


def test_the_last_step_and_its_rows_are_bounds(texts):
    run = texts.windows(8).take(10)
    assert len(run.at(step=1, batch_size=7)) == 3
    refused(lambda: run.at(step=2, batch_size=7), IndexError, "step 2", 10)
    refused(lambda: run.at(step=1, row=3, batch_size=7), tl.ConfigError, "row", 3, "step 1")


# -- next ----------------------------------------------------------------------------------


def test_next_says_when_it_stopped_looking(texts):
    run = texts.windows(8).shuffle().epochs(None)
    place = run.next(doc=3, after=10**12)
    assert place.index > 10**12
    assert run.at(place.index).route.epoch == place.epoch
    ended = texts.windows(8).shuffle().epochs(2)
    last = list(ended.where(doc=3))[-1].index
    assert "does not show main document 3 again" in ended.next(doc=3, after=last).reason
    assert "the run ends before" in ended.next(doc=3, after=len(ended)).reason
    chosen = texts.select(doc_index=[2], num_docs=1).windows(8).epochs(None)
    assert "is not selected" in chosen.next(doc=3, after=0).reason
    growing = texts.splice(8, content_length=4, doc_growth={0: 2, 50: 9}).epochs(None)
    told = growing.next(doc=7, after=0, within=10)
    assert "not shown in epochs 0 to 9 of its source; within=" in told.reason
    assert growing.next(doc=7, after=0).epoch == 50


# -- endless runs --------------------------------------------------------------------------


def test_where_is_lazy_and_endless(texts):
    run = texts.windows(8).shuffle().epochs(None)
    found = list(itertools.islice(run.where(doc=5), 500))
    assert [one.index for one in found] == sorted(one.index for one in found)
    assert found[-1].epoch > 50


@given(st.integers(0, 10**12), st.integers(0, 19), st.sampled_from(["windows", "pack", "mix"]))
@settings(max_examples=40)
def test_at_and_where_are_inverse_anywhere_in_an_endless_run(texts, index, document, kind):
    packed, cut = texts.pack(8, add_eos=True, eos_id=0).shuffle(), texts.windows(8).block_shuffle()
    run = {
        "windows": cut.epochs(None),
        "pack": packed.epochs(None),
        "mix": tl.mix({"p": packed.epochs(None), "w": cut.epochs(None)}, cost="rows"),
    }[kind]
    one = run.at(index)
    for span in one.spans:
        epoch = [span.epoch]
        places = run.where(span.source, span.document, epochs=epoch)
        cells = [place for place in places if place.index == index]
        assert {(p.column, p.start, p.length) for p in cells} == {c[:3] for c in span.cells}
    place = run.next(one.source, document, after=index)
    assert any(span.document == document for span in run.at(place.index).spans)
    again = run.next(one.source, document, after=place.index - 1)
    assert (again.index, again.epoch) == (place.index, place.epoch)


def test_epochs_and_before_bound_what_is_searched(texts):
    run = texts.windows(8).shuffle().epochs(None)
    every = list(run.where(doc=5, epochs=6))
    assert {one.epoch for one in every} == set(range(6))
    assert list(run.where(doc=5, epochs=[4, 2])) == [o for o in every if o.epoch in (2, 4)]
    assert list(run.where(doc=5, epochs=range(1, 3))) == [o for o in every if o.epoch in (1, 2)]
    limit = every[3].index
    assert list(run.where(doc=5, before=limit)) == [o for o in every if o.index < limit]


def test_places_after_an_index_are_found_at_once_however_far_it_is(texts):
    run = texts.windows(8).shuffle().epochs(None)
    far = 10**12
    first, second = itertools.islice(run.where(doc=5, after=far), 2)
    assert far < first.index < second.index
    assert first == run.next(doc=5, after=far)
    assert next(run.where(doc=5, after=first.index)).index == second.index
    assert next(run.where(id="t5", after=far)).index <= first.index  # documents 5, 12 and 19
    ended = run.epochs(3)
    every = list(ended.where(doc=5))
    for after in (-1, 0, every[1].index, len(ended) - 1):
        left = [place for place in every if place.index > after]
        assert list(ended.where(doc=5, after=after)) == left
    assert "the run ends before" in ended.where(doc=5, after=len(ended) - 1).reason
    refused(lambda: run.where(doc=5, after=-2), tl.ConfigError, "after", -2)


def test_the_next_place_of_a_document_is_a_command(texts, tmp_path, cli):
    run = texts.windows(8).shuffle().epochs(3)
    tl.save(run, tmp_path / "run.yaml")
    places = [place.to_dict() for place in run.where(doc=5, batch_size=4)]
    after = places[0]["index"]
    words = ("where", tmp_path / "run.yaml", "--batch-size", 4, "--limit", 1, "--json")
    for name, value in (("doc", 5), ("id", "t5")):
        answer = json.loads(cli(*words, f"--{name}", value, "--after", after))
        expected = run.where(**{name: value}, batch_size=4, after=after)
        assert answer["places"] == [next(expected).to_dict()]
        assert answer["more"]
    later = [place for place in places if place["index"] > after]
    assert json.loads(cli(*words, "--doc", 5, "--after", after))["places"] == later[:1]
    ended = json.loads(cli(*words, "--doc", 5, "--after", len(run) - 1))
    assert ended["places"] == []
    assert f"the run ends before {len(run):,}" in ended["reason"]
    assert "'next'" in cli("next", tmp_path / "run.yaml", "--doc", 5, code=2)


def cells_of(places):
    """(index, column, offset in the document) of every cell of some places."""
    return [(p.index, p.column + k, p.start + k) for p in places for k in range(p.length)]


def test_tokens_cut_places_to_document_offsets(texts):
    run = texts.pack(8, add_bos=True, bos_id=1, add_eos=True, eos_id=0).shuffle().epochs(2)
    whole = cells_of(run.where(doc=4))
    for tokens in (0, range(3, 9), (-1, 2), texts.lengths[4].item()):
        first, last = (tokens, tokens + 1) if isinstance(tokens, int) else (tokens[0], tokens[-1])
        last = tokens.stop if isinstance(tokens, range) else last
        right = [cell for cell in whole if first <= cell[2] < last]
        assert right
        assert cells_of(run.where(doc=4, tokens=tokens)) == right


# -- reasons -------------------------------------------------------------------------------


def reason_of(run, document, **options):
    answer = run.where(doc=document, **options)
    assert answer.reason is not None
    assert list(answer) == []
    assert answer.reason in repr(answer)
    return answer.reason


def test_a_document_that_no_row_can_show_is_answered_with_the_setting(store):
    sizes = store.lengths.tolist()
    empty, longest = sizes.index(0), sizes.index(max(sizes))
    short = sizes.index(min(size for size in sizes if size))
    endless = store.pack(8, min_len=4).epochs(None)
    assert "is empty" in reason_of(store.windows(8), empty)
    assert "dropped: min_len=4" in reason_of(endless, short)
    assert "dropped: max_len=9" in reason_of(store.pack(8, max_len=9).epochs(None), longest)
    dropped = store.pack(8, overflow="drop").epochs(None)
    assert "overflow='drop'" in reason_of(dropped, longest)
    alone = store.pack(8, strategy="one_doc", min_row_len=5).epochs(None)
    assert "min_row_len=5" in reason_of(alone, short)
    few = store.select(doc_index=[longest], num_docs=1)
    assert "is not selected: the source takes 1 of the 14" in reason_of(few.windows(8), short)
    spliced = store.splice(8, content_length=8, adaptive_k=False, pad_id=0).epochs(None)
    assert "too short for content_length=8" in reason_of(spliced, short)
    scarce = store.splice(8, content_length=4, sampler="quota", epoch_length=2, pad_id=0)
    shown = set(scarce.spans(range(len(scarce))).document.tolist())
    nothing = next(d for d in range(14) if d not in shown and sizes[d] >= 4)
    assert "quota 0" in reason_of(scarce.epochs(None), nothing)
    cut = store.pack(8, overflow="truncate").epochs(None)
    assert "are cut off: rows have its tokens 0 to 7 only" in reason_of(
        cut, longest, tokens=(9, 12)
    )
    assert "do not exist" in reason_of(cut, longest, tokens=(900, 901))


def test_the_tail_that_windows_leave_out_is_told(tmp_path):
    rows = [{"input_ids": [1] * 16}, {"input_ids": [2] * 3}]
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=9, progress=False)
    assert "in the tail" in reason_of(store.windows(8).epochs(None), 1)
    assert [one.length for one in store.windows(8, tail="keep").where(doc=1)] == [3]


def test_a_run_that_ends_before_a_document_comes_says_so_at_its_end(texts):
    run = texts.windows(8).take(1)
    answer = run.where(doc=19)
    assert answer.reason is None
    assert list(answer) == []
    assert answer.reason == "no example in the range that was asked for shows main document 19."


# -- ids, text, metadata, JSON -------------------------------------------------------------


def test_an_id_is_looked_up_in_every_source_and_places_are_merged(texts):
    run = tl.mix({"a": texts.pack(8).shuffle(), "b": texts.windows(8).shuffle()}).seed(1)
    found = list(run.where(id="t3", before=60))
    documents = texts.find("t3").tolist()
    assert len(documents) == 3
    alone = [p for s in "ab" for d in documents for p in run.where(s, d, before=60)]
    assert sorted(map(repr, found)) == sorted(map(repr, alone))
    assert [one.index for one in found] == sorted(one.index for one in found)
    only = list(run.where("b", id="t3", before=60))
    assert {one.source for one in only} == {"b"}
    assert "no document of a, b has the id 'nobody'" in run.where(id="nobody").reason


def test_text_and_metadata_are_read_on_request_only(texts):
    run = texts.pack(16).shuffle()
    reads = texts.reads.read_ops
    assert run.at(3).spans[0].text is None
    assert texts.reads.read_ops == reads
    one = run.at(3, text=True, metadata=True)
    for span in one.spans:
        tokens = texts.document(span.document)
        start, length = span.cells[0].start, sum(c.length for c in span.cells)
        assert span.text == bytes(tokens[start : start + length].tolist()).decode()
        assert span.metadata == texts.metadata(span.document)


def test_ids_without_a_tokenizer_have_no_text(store):
    refused(lambda: store.windows(8).at(0, text=True), tl.ConfigError, "text", "'main'")


def test_answers_are_plain_json(texts):
    run = tl.mix({"a": texts.pack(8, add_eos=True, eos_id=0), "b": texts.windows(8)}).seed(1)
    told = run.at(range(5), batch_size=2, text=True, metadata=True).to_dict()
    assert json.loads(json.dumps(told)) == told
    places = run.where("a", 3, before=99, batch_size=2).to_dict()
    assert json.loads(json.dumps(places)) == places
    assert json.loads(json.dumps(run.next("a", 3, after=10**6).to_dict()))["reason"]


def test_the_way_there_has_bands_lanes_and_the_time_of_the_mix(texts):
    laned = texts.windows(8).block_shuffle(io_block_size=2, window_blocks=1, lanes=3)
    run = tl.mix({"a": laned, "b": texts.pack(8).shuffle()}, cost="tokens").seed(2)
    moments, lanes = [], set()
    for one in run.at(range(30)):
        moments.append(one.route.time)
        if one.source == "a":
            lanes.add(one.route.lane)
            assert one.route.band == one.route.item // 6
        else:
            assert one.route.band is None
    assert moments == sorted(moments)
    assert lanes == {0, 1, 2}


# -- refusals ------------------------------------------------------------------------------


def test_questions_that_make_no_sense_are_refused(texts):
    run = tl.mix({"a": texts.pack(8), "b": texts.windows(8)})
    for ask, named in {
        (lambda: run.at()): ("index", "step"),
        (lambda: run.at(step=3)): ("batch_size",),
        (lambda: run.at(3, row=1)): ("row",),
        (lambda: run.at(3, txt=True)): ("txt",),
        (lambda: run.where("a")): ("doc", "id"),
        (lambda: run.where(doc=3)): ("source", "a, b"),
        (lambda: run.where("c", 3)): ("'c'",),
        (lambda: run.where("a", 3, tokens=(4, 2))): ("tokens", 4, 2),
        (lambda: run.where("a", 3, epochs=-1)): ("epochs", -1),
        (lambda: run.where("a", 3, batch_size=0)): ("batch_size", 0),
        (lambda: run.next("a", after=3)): ("doc",),
        (lambda: run.next("a", 3, after=3, within=0)): ("within", 0),
    }.items():
        refused(ask, tl.ConfigError, *named)
    refused(lambda: run.where("a", 20), IndexError, 20)
    refused(lambda: run.at(len(run)), IndexError, len(run))


# -- the way there, and what it costs ------------------------------------------------------


def test_a_hundred_million_documents_are_looked_into_without_reading_a_token(tmp_path):
    store = VirtualStore([(131_072, 1 << 27)] * 764)
    opened = tl.open(store.write_manifest(tmp_path / "s"), source=store, verify="never")
    run = opened.windows(64).shuffle().epochs(None)
    for index in (0, 10**6, 10**12 + 7):
        for span in run.at(index).spans:
            places = list(run.where(doc=span.document, epochs=[span.epoch]))
            here = [(p.column, p.start, p.length) for p in places if p.index == index]
            assert here == [cell[:3] for cell in span.cells]
            offsets = sorted(k for p in places for k in range(p.start, p.start + p.length))
            assert offsets == list(range(len(offsets)))  # each once in an epoch
            assert sum(cell.length for cell in span.cells) <= len(offsets)
            assert run.next(doc=span.document, after=index).index > index
    assert opened.reads.read_ops == 0
