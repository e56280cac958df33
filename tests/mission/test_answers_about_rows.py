"""What rows, batches and answers say about themselves: tokens as text, metadata, lists, tables."""

import copy
import pickle

import pytest
from refusals import refused

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    rows = [{"text": f"tale <{i}> " * (i % 5 + 1), "id": f"t{i % 7}"} for i in range(20)]
    path = tmp_path_factory.mktemp("texts") / "store"
    return tl.build(rows, path, tokenizer="bytes", id_key="id", progress=False)


def test_some_rows_of_a_batch_know_what_the_whole_knows(texts):
    whole = texts.pack(16).batch(range(8))
    part = whole.part(2, 5)
    assert part.token_strings() == whole.token_strings()[2:5]
    assert "".join(part.token_strings()[0]) == bytes(part.tokens[0].tolist()).decode()
    assert part.metadata == whole.metadata[2:5]
    assert [one["id"] for one in part.metadata[0]] == [
        texts.metadata(document)["id"] for document in part.spans.frames(0, 1).document.tolist()
    ]
    inner = part.part(1, 3)
    assert inner.metadata == whole.metadata[3:5]
    assert inner.spans.document.tolist() == whole.spans.frames(3, 5).document.tolist()
    assert inner.segment_ids.tolist() == whole.segment_ids[3:5].tolist()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_without_its_store_has_ids_for_text_and_no_metadata(texts, copied):
    whole = texts.pack(16).batch(range(3))
    made = copied(whole)
    assert made.token_strings()[0] == [str(token) for token in whole.tokens[0].tolist()]
    refused(lambda: made.metadata, tl.ConfigError, "metadata")
    assert made.spans.at.tolist() == whole.spans.at.tolist()


def test_micro_batches_are_copied_and_keep_their_arrays(texts):
    folded = next(tl.Loader(texts.pack(16), 6, accumulate=3, prefetch=0))
    assert len(folded) == 6
    again = pickle.loads(pickle.dumps(folded))
    assert again.shape == folded.shape == (3, 2, 16)
    assert again.tokens.tolist() == folded.tokens.tolist()
    assert "3 groups" in repr(folded)
    assert folded.renders == folded.whole.renders


def test_answers_are_lists_and_tables(texts):
    run = texts.pack(16, add_bos=True, bos_id=1, add_eos=True, eos_id=2).edit(
        at=2, quarantine=[("main", 5)]
    )
    found = run.at(range(len(run)), text=True, metadata=True)
    assert [one.index for one in found[3:6]] == [3, 4, 5]
    shown = [repr(one) for one in found]
    for word in ("BOS", "EOS", "quarantined"):
        assert any(word in one for one in shown)
    blank = [any(span.blank for span in one.spans) for one in found]
    assert blank == ["quarantined" in one for one in shown]
    (tail,) = texts.windows(16, tail="keep").at([len(texts.windows(16))])
    assert "filler" in repr(tail)


@pytest.mark.parametrize("kind", ["store", "run", "loader"])
def test_notebooks_show_a_table_without_markup_of_the_data(texts, kind):
    made = {
        "store": lambda: texts,
        "run": lambda: texts.pack(16).shuffle(),
        "loader": lambda: tl.Loader(texts.pack(16), 4, prefetch=0),
    }[kind]()
    page = made._repr_html_()
    assert page.startswith("<")
    assert "<script" not in page


def test_why_a_splice_never_shows_a_document(texts):
    ten = texts.select(num_docs=10)
    growing = ten.splice(8, content_length=4, doc_schedule={0: 2, 5: 3}).epochs(None)
    never = growing.where(doc=7)
    assert not list(never)
    assert never.reason
    longest = int(texts.lengths.argmax())
    strided = texts.splice(8, content_length=4, content_stride=40).epochs(None)
    answer = strided.where(doc=longest, tokens=(20, 22))
    assert not list(answer)
    assert answer.reason
    ring = texts.splice(
        16, content_start_mode="cyclic_roll", content_length=8, content_stride=7
    ).epochs(1)
    size = int(texts.lengths[longest])
    cells = [
        (p.start + k) % size
        for p in ring.where(doc=longest, tokens=(0, 2))
        for k in range(p.length)
    ]
    assert cells
    assert set(cells) <= {0, 1}
