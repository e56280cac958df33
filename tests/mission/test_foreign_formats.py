"""What each raw format says about itself, and what must be said about it."""

import gzip
import logging
import os

import numpy as np
import pytest
from foreignfiles import (
    CODES,
    EOT,
    WRITERS,
    joined,
    some_documents,
    write_datatrove,
    write_list,
    write_llm_c,
    write_megatron,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from quickfolder import quick_folder

import tokenloom as tl
from tokenloom.testing import tiny, write_store


def read(store):
    return [one.tolist() for one in store.documents(range(store.num_documents))]


@given(
    name=st.sampled_from(sorted(WRITERS)),
    documents=st.lists(st.lists(st.integers(0, 998), max_size=9), min_size=1, max_size=12),
)
def test_every_format_gives_the_documents_that_were_written(name, documents):
    with quick_folder() as folder:
        path, said, expected = WRITERS[name](folder, documents)
        store = tl.open(path, vocab_size=1000, **said)
        assert read(store) == expected
        assert store.lengths.tolist() == [len(one) for one in expected]
        assert store.num_tokens == sum(map(len, expected))
        flat = [token for one in expected for token in one]
        assert store.tokens(0, store.num_tokens).tolist() == flat


# -- Megatron ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_megatron_has_a_code_for_every_dtype(tmp_path, dtype):
    documents = [[1, 2, 100], [], [7]]
    path = write_megatron(tmp_path / "corpus", documents, dtype)
    for name in (path, f"{path}.bin", f"{path}.idx", tmp_path):
        assert read(tl.open(name)) == documents


@pytest.mark.parametrize("code", [6, 7])
def test_megatron_floats_are_refused(tmp_path, code):
    path = write_megatron(tmp_path / "corpus", [[1, 2]], "<i4")
    raw = bytearray((tmp_path / "corpus.idx").read_bytes())
    raw[17] = code
    (tmp_path / "corpus.idx").write_bytes(raw)
    with pytest.raises(tl.ConfigError, match=rf"corpus\.idx.*\b{code}\b"):
        tl.open(path)


def test_a_megatron_document_of_several_sequences_is_one_document(tmp_path, cli):
    documents, lengths = [[1, 2, 3, 4, 5], [6], [7, 8]], [2, 3, 1, 0, 2]
    path = write_megatron(tmp_path / "x", documents, sequences=(lengths, [0, 2, 3, 5]))
    assert read(tl.open(path)) == documents
    assert "5 sequences" in cli("info", path)


@pytest.mark.parametrize("sizes", ["<i4", "<i8"])
@pytest.mark.parametrize("modes", [None, [0, 1, 0]])
def test_megatron_modes_are_passed_over_and_lengths_have_either_width(tmp_path, sizes, modes):
    documents = [[1, 2], [3], []]
    path = write_megatron(tmp_path / "x", documents, modes=modes, sizes=sizes)
    assert read(tl.open(path)) == documents


def test_megatron_sequences_that_overlap_are_refused(tmp_path):
    path = write_megatron(tmp_path / "x", [[1, 2], [3, 4]])
    raw = bytearray((tmp_path / "x.idx").read_bytes())
    raw[34 + 8 + 8 : 34 + 8 + 16] = (2).to_bytes(8, "little")
    (tmp_path / "x.idx").write_bytes(raw)
    with pytest.raises(tl.StoreCorrupt, match=r"x\.idx.*sequence 1\b"):
        tl.open(path)


def test_a_folder_of_several_megatron_datasets_is_not_guessed(tmp_path):
    write_megatron(tmp_path / "a", [[1]])
    write_megatron(tmp_path / "b", [[2]])
    with pytest.raises(tl.ConfigError, match="a, b"):
        tl.open(tmp_path)


# -- datatrove -----------------------------------------------------------------------------


def test_datatrove_loss_becomes_a_loss_mask(tmp_path, cli):
    documents, loss = [[5, 6, 7], [8]], [[0, 1, 1], [1]]  # whether a token is trained on
    path = write_datatrove(tmp_path / "00000.ds", documents, loss=loss, tokenizer="gpt2")
    store = tl.open(path)
    assert store.columns == {"loss_mask": "bool"}
    assert store.document(0, "loss_mask").tolist() == [False, True, True]
    # the mask of a cell is about the token after it
    assert store.windows(2, lookahead=True).batch([0]).loss_mask.tolist() == [[True, True]]
    assert "gpt2" in cli("info", path)


def test_a_loss_column_has_the_digest_and_the_counts_of_a_copy(tmp_path):
    documents = some_documents(longest=90)
    loss = [[token % 3 > 0 for token in one] for one in documents]
    foreign = tl.open(write_datatrove(tmp_path / "x.ds", documents, loss=loss))
    column = {"loss_mask": ("bool", lambda ids: ids % 3 > 0)}
    write_store(tmp_path / "own", [documents], columns=column, vocab_size=1 << 16)
    own = tl.open(tmp_path / "own")
    assert foreign.digest == own.digest
    runs = [store.windows(16).shuffle() for store in (foreign, own)]
    steps = [[b.step_loss_tokens for b in tl.Loader(run, 4, untrained="zero")] for run in runs]
    assert steps[0] == steps[1]


def test_a_datatrove_file_of_uint32_that_was_cut_in_half_is_not_taken_for_uint16(tmp_path):
    path = write_datatrove(tmp_path / "0.ds", [[1, 2], [3, 4]], "<u4", tokenizer="gpt2", width=4)
    assert read(tl.open(path)) == [[1, 2], [3, 4]]
    os.truncate(path, 8)
    with pytest.raises(tl.StoreCorrupt, match=r"0\.ds"):
        tl.open(path)
    os.remove(f"{path}.metadata")
    with pytest.raises(tl.StoreCorrupt, match=r"0\.ds"):
        tl.open(path, dtype="uint32")


def test_datatrove_files_of_several_tokenizers_are_refused(tmp_path):
    write_datatrove(tmp_path / "0.ds", [[1]], tokenizer="gpt2")
    write_datatrove(tmp_path / "1.ds", [[1]], tokenizer="llama")
    with pytest.raises(tl.ConfigError, match=r"gpt2.*llama"):
        tl.open(tmp_path)


# -- llm.c ---------------------------------------------------------------------------------


def test_train_and_validation_shards_are_never_joined_silently(tmp_path):
    write_llm_c(tmp_path / "fineweb_train_000001.bin", [EOT, 1, 2])
    write_llm_c(tmp_path / "fineweb_train_000002.bin", [EOT, 3])
    write_llm_c(tmp_path / "fineweb_val_000000.bin", [EOT, 4])
    with pytest.raises(tl.ConfigError, match=r"fineweb_train.*fineweb_val"):
        tl.open(tmp_path, bos=EOT)
    assert read(tl.open(tmp_path / "fineweb_train", bos=EOT)) == [[EOT, 1, 2], [EOT, 3]]
    assert read(tl.open(tmp_path / "fineweb_val", bos=EOT)) == [[EOT, 4]]
    with pytest.raises(tl.StoreNotFound):  # a start that leaves out letters is a typing error
        tl.open(tmp_path / "fineweb_tr", bos=EOT)


def test_without_a_token_that_tells_documents_apart_a_file_is_one_document(tmp_path):
    write_llm_c(tmp_path / "a_0.bin", [EOT, 1, 2, EOT, 3])
    write_llm_c(tmp_path / "a_1.bin", [4])
    assert read(tl.open(tmp_path)) == [[EOT, 1, 2, EOT, 3], [4]]


def test_tokens_before_the_first_start_and_after_the_last_end_are_documents(tmp_path):
    path = write_llm_c(tmp_path / "a.bin", [7, EOT, 1, 2])
    assert read(tl.open(path, bos=EOT)) == [[7], [EOT, 1, 2]]
    assert read(tl.open(path, eos=EOT)) == [[7, EOT], [1, 2]]


@pytest.mark.parametrize("word", ["eos", "bos"])
@pytest.mark.parametrize(
    ("dtype", "largest"), [("uint8", 255), ("int16", 32_767), ("uint16", 65_535)]
)
def test_a_token_that_no_id_can_be_tells_no_documents_apart(tmp_path, word, dtype, largest):
    np.arange(9, dtype=dtype).tofile(tmp_path / "a.bin")
    with pytest.raises(tl.ConfigError, match=rf"{word}: .*{largest + 1}.*{dtype}.*{largest}"):
        tl.open(tmp_path / "a.bin", dtype=dtype, **{word: largest + 1})
    assert len(tl.open(tmp_path / "a.bin", dtype=dtype, **{word: largest})) == 1  # the control


@pytest.mark.parametrize(
    ("said", "there"),
    [
        ({"eos": 500}, False),
        ({"bos": 500}, False),
        ({"eos": 8}, True),  # the last token, and the first: one document, as it was meant
        ({"bos": 0}, True),
        ({"eos": 3}, True),
    ],
)
def test_a_token_that_occurs_nowhere_is_reported(tmp_path, caplog, cli, said, there):
    caplog.set_level(logging.INFO)
    np.arange(9, dtype="<u2").tofile(tmp_path / "a.uint16.bin")
    ((word, token),) = said.items()
    store = tl.open(tmp_path / "a.uint16.bin", **said)
    assert (f"({word}=)" in caplog.text) == (not there)
    printed = cli("info", tmp_path / "a.uint16.bin", f"--{word}", token)
    assert (f"({word}=)" in printed) == (not there)
    assert store.reads.read_ops == 0


def test_evaluation_files_and_unknown_magics_of_llm_c_are_refused(tmp_path):
    path = write_llm_c(tmp_path / "hellaswag.bin", [1], magic=20240522)
    with pytest.raises(tl.ConfigError, match=r"20240522|hellaswag"):
        tl.open(path)
    path = write_llm_c(tmp_path / "own.bin", [1, 2], magic=20250401)
    with pytest.raises(tl.ConfigError, match="20250401"):
        tl.open(path, format="llm.c")
    assert read(tl.open(path, format="llm.c", dtype="uint16")) == [[1, 2]]


# -- bare arrays ---------------------------------------------------------------------------


def test_a_bare_array_must_say_its_dtype(tmp_path):
    np.arange(3, dtype="<u2").tofile(tmp_path / "train.bin")
    with pytest.raises(tl.ConfigError, match=r"train\.bin.*dtype=.*uint8, uint16, int8, int16\b"):
        tl.open(tmp_path / "train.bin")
    assert read(tl.open(tmp_path / "train.bin", dtype="uint16")) == [[0, 1, 2]]
    os.rename(tmp_path / "train.bin", tmp_path / "train.uint16.bin")
    assert read(tl.open(tmp_path / "train.uint16.bin")) == [[0, 1, 2]]
    with pytest.raises(tl.StoreCorrupt, match=r"train\.uint16\.bin.*\b6\b.*uint32"):
        tl.open(tmp_path / "train.uint16.bin", dtype="uint32")


def test_a_pickle_beside_the_files_is_reported_and_never_opened(tmp_path, cli):
    np.arange(3, dtype="<u2").tofile(tmp_path / "train.bin")
    (tmp_path / "meta.pkl").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    assert "meta.pkl" in cli("info", tmp_path / "train.bin", "--dtype", "uint16")
    assert not os.path.exists("opened")


def test_olmo_lists_tell_documents_and_the_rest_is_one_more(tmp_path):
    documents = [[1, 2, EOT], [3, EOT]]
    ids = joined([*documents, [4, 5]], "<u4")
    ids.tofile(tmp_path / "a.npy")
    write_list(tmp_path / "a.csv.gz", documents)
    assert read(tl.open(tmp_path / "a.npy", dtype="uint32")) == [*documents, [4, 5]]


@pytest.mark.parametrize(
    "text", ["0,2\n3,5\n", "0,9\n", "0,2\n2,2\n", "0\n", "x,y\n", "0,99999999999999999999\n"]
)
def test_olmo_lists_that_do_not_fit_are_refused(tmp_path, text):
    np.arange(5, dtype="<u2").tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(tl.StoreCorrupt, match=r"a\.csv\.gz: "):
        tl.open(tmp_path / "a.npy", dtype="uint16")


def test_a_matrix_has_a_document_in_each_row(tmp_path):
    np.save(tmp_path / "m.npy", np.arange(6, dtype="<i4").reshape(2, 3))
    assert read(tl.open(tmp_path / "m.npy")) == [[0, 1, 2], [3, 4, 5]]
    np.save(tmp_path / "m.npy", np.asfortranarray(np.arange(6).reshape(2, 3)))
    with pytest.raises(tl.ConfigError, match=r"m\.npy"):
        tl.open(tmp_path / "m.npy")


@pytest.mark.parametrize("array", [np.zeros(3), np.array(["a"]), np.zeros((1, 1, 1), int)])
def test_arrays_that_hold_no_ids_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(tl.ConfigError, match=r"a\.npy"):
        tl.open(tmp_path / "a.npy")


# -- what is said --------------------------------------------------------------------------


def test_what_is_said_wrongly_is_refused_with_what_is_allowed(tmp_path):
    path = write_megatron(tmp_path / "x", [[1, 2]])
    for said, words in (
        ({"format": "megatorn"}, "Did you mean 'megatron'"),
        ({"format": "npy"}, "'npy'"),
        ({"dtype": "uint61"}, "Did you mean 'uint64'"),
        ({"eos": -1}, "eos"),
        ({"eos": 1, "bos": 2}, "eos.*bos|bos.*eos"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"identity": "ful"}, "Did you mean 'full'"),
        ({"snapshot": 2}, "snapshot"),
        ({"eso": 1}, "Did you mean 'eos'"),
        ({"seal": 3}, "seal: "),
    ):
        with pytest.raises(tl.ConfigError, match=words):
            tl.open(path, **said)


def test_a_tokenloom_store_takes_no_dtype(tmp_path):
    write_store(tmp_path / "own", [[[1]]])
    with pytest.raises(tl.ConfigError, match=r"dtype: .*own"):
        tl.open(tmp_path / "own", dtype="uint16")


@pytest.mark.parametrize("name", ["megatron int32", "flat uint64", "npy, big-endian"])
def test_ids_outside_the_vocabulary_are_refused_with_document_and_offset(tmp_path, name):
    documents = [[1, 2], [3] * 30, [4, 5, 800, 6]]
    path, said, expected = WRITERS[name](tmp_path, documents)
    for size, document, offset, token in ((1000, None, 0, 0), (800, 2, 2, 800), (5, 2, 1, 5)):
        if document is None:
            tl.open(path, vocab_size=size, **said)
            continue
        if EOT in expected[0]:  # ends every document there, and is the first that is too large
            document, offset, token = 0, 2, EOT
        with (
            tiny(foreign_shard_tokens=7, foreign_chunk_tokens=3),
            pytest.raises(
                tl.StoreCorrupt, match=rf"token {offset} of document {document}\b.* {token}\b"
            ),
        ):
            tl.open(path, vocab_size=size, **said)


def test_negative_ids_are_found(tmp_path):
    for dtype in ("<i2", "<i4", "<i8"):
        path = write_megatron(tmp_path / "x", [[1, 2], [3, -4]], dtype)
        with pytest.raises(tl.StoreCorrupt, match=r"token 1 of document 1\b.* -4\b"):
            tl.open(path)


@settings(max_examples=20)
@given(st.integers(0, 3), st.integers(0, 5))
def test_empty_files_are_stores_without_tokens(files, documents):
    with quick_folder() as folder:
        for number in range(files + 1):
            write_datatrove(folder / f"{number}.ds", [[]] * documents)
        store = tl.open(folder)
        assert (store.num_documents, store.num_tokens) == ((files + 1) * documents, 0)
