"""Tiny models are trained: documents are told apart, masks hold, and a killed run has its curve."""

import itertools
import logging
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tiny_gpt
import torch
from tiny_gpt import TinyGPT, curve, killed_run, logits_of, loss_sum, train, train_in

import tokenloom as tl
from tokenloom.evaluate import pz
from tokenloom.integrations.torch import dataloader

TEXTS = (
    "The loom is old and the thread is new",
    "A token knows the book that it is from",
    "One integer says where we were before",
)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums have one order then."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three documents of 37 or 38 letters."""
    folder = tmp_path_factory.mktemp("trio") / "store"
    records = [{"text": text} for text in TEXTS]
    return tl.build(records, folder, tokenizer="bytes", progress=False)


def spliced(store, **options):
    options = {"content_length": 16, "position_scheme": "relative"} | options
    return store.splice(48, **options).shuffle().epochs(None).seed(3)


def continued(model, prompt, count):
    """The most likely continuation of some tokens."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            row = torch.tensor([tokens])
            logits = model(row, torch.ones_like(row), torch.arange(len(tokens))[None])
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


# -- what is learned -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(trio):
    """A model after 100 steps on splices of three documents, and its losses."""
    model = TinyGPT()
    return model, train(model, spliced(trio), 100)


def test_tr_01_three_documents_are_learned_in_100_steps_and_told_apart(trio, trained):
    model, losses = trained
    assert len(losses) == 100
    assert losses[-1] < 0.5 * losses[0]
    for number in range(3):
        tokens = trio.document(number).tolist()
        assert continued(model, tokens[:8], 8) == tokens[8:16]
        assert continued(model, tokens[12:20], 8) == tokens[20:28]


def test_tr_02_perplexity_is_below_2_at_starts_after_the_first(trio, trained):
    windows = pz(trained[0], trio, prefix=8, suffix=8, stride=1, progress=False).windows
    perplexity = np.exp(-windows.log_pz / 8)
    second = windows.start == 1
    assert windows.document[second].tolist() == [0, 1, 2]
    assert perplexity[second].max() < 2
    assert np.exp(-windows.log_pz[windows.start > 1].mean() / 8) < 2


def test_tr_02_it_is_not_where_only_the_start_was_trained(trio):
    """The control: splices from t = 0 alone, for as many steps."""
    anchored = {"content_start_mode": "anchor_start", "offset_stride": 48}
    model = TinyGPT()
    train(model, spliced(trio, position_scheme="absolute", **anchored), 100)
    windows = pz(model, trio, prefix=8, suffix=8, stride=1, progress=False).windows
    assert np.exp(-windows.log_pz[windows.start >= 20].mean() / 8) > 2


def test_tr_03_packed_training_with_position_ids_runs_and_the_loss_falls(trio):
    """Batches of the torch adapter: int64 tensors, positions that restart in every document."""
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = trio.pack(64).shuffle().epochs(20)
    losses = []
    for batch in dataloader(run, 2, fields=("segment_ids", "position_ids")):
        assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
        segments, positions = batch["segment_ids"].long(), batch["position_ids"].long()
        first = torch.diff(segments, dim=1, prepend=torch.zeros(2, 1, dtype=torch.int64)) != 0
        assert (positions[first] == 0).all()
        logits = model(batch["input_ids"], segments, positions)[:, :-1]
        labels = batch["labels"][:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert len(losses) == 20 * 3 // 2
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])


def test_tr_04_boundary_masking_changes_the_denominator_by_the_boundaries(trio):
    run = trio.pack(128)
    masked, whole = (run.render(mask_boundary_loss=mask)[0] for mask in (True, False))
    total = sum(map(len, TEXTS))
    assert whole.segment_ids.max() == 3
    assert whole.loss_tokens == total - 1
    assert masked.loss_tokens == total - 1 - 2  # boundaries between three documents
    for batch in (masked, whole):
        assert batch.loss_tokens == (batch.labels[:, 1:] != -100).sum() == batch.loss_mask.sum()
    model = TinyGPT()
    with torch.no_grad():
        losses = [loss_sum(model, batch).item() for batch in (masked, whole)]
    assert losses[0] < losses[1]
    steps = [
        next(iter(dataloader(one, 1, fields=("step_loss_tokens",))))["step_loss_tokens"].item()
        for one in (run, run.render(mask_boundary_loss=False))
    ]
    assert steps == [masked.loss_tokens, whole.loss_tokens]


# -- on the way ----------------------------------------------------------------------------


def test_tr_05_a_run_in_torch_logs_its_position_and_warns_of_nothing(trio, caplog):
    """Warnings are errors here, those of torch about memory that cannot be written included."""
    run = tl.mix({"a": trio.pack(16).shuffle(), "b": trio.windows(16).shuffle()})
    loader = dataloader(run, 6, fields=("index",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in itertools.islice(loader, 1):
            assert torch.is_tensor(batch["input_ids"])
            batch["input_ids"] += 0  # its memory is the batch's own
        plain = tl.Loader(run, 6, rank=0, world_size=1)
        plain.load_state_dict(loader.state_dict())
        with caplog.at_level(logging.INFO, logger="tokenloom"):
            plain.log_position()
        plain.close()
    consumed = {source["name"]: source["rows"] for source in run.state(6)["sources"]}
    assert sum(consumed.values()) == 6
    for name, rows in consumed.items():
        assert f"{name}: rows={rows}" in caplog.text


LENGTHS = (4, 9, 2, 7, 7, 1, 8, 3, 6, 5)


@pytest.mark.parametrize(
    ("mode", "documents"),
    [
        ("first", [0, 1, 2, 3]),
        ("longest", [1, 6, 3, 4]),
        ("shortest", [5, 2, 7, 0]),
        ("random", None),
    ],
)
def test_tr_06_every_policy_selects_documents_and_a_run_trains_on_no_others(
    store_of, mode, documents
):
    first = np.cumsum((0, *LENGTHS))
    store = store_of([[*range(a, b)] for a, b in itertools.pairwise(first.tolist())])
    selected = store.select(num_docs=4, doc_select_mode=mode)
    chosen = selected.indices.tolist()
    assert len(set(chosen)) == 4
    if documents is not None:
        assert chosen == documents
    assert chosen == store.select(num_docs=4, doc_select_mode=mode).indices.tolist()
    expected = sorted(token for n in chosen for token in range(first[n], first[n + 1]))
    batch = selected.pack(16)[:]
    assert sorted(batch.tokens[batch.segment_ids > 0].tolist()) == expected
    model = TinyGPT(vocabulary=64)
    losses = train(model, selected.pack(16).epochs(None), 3, batch_size=2)
    assert np.isfinite(losses).all()
    trained = set(np.flatnonzero(model.embedding.grad.abs().sum(dim=1)).tolist())
    assert trained <= {0, *expected}  # 0 is filler, too


@pytest.mark.parametrize(
    "shuffled",
    [
        lambda run: run,
        lambda run: run.shuffle(),
        lambda run: run.era_shuffle(6),
        lambda run: run.block_shuffle(io_block_size=2, window_blocks=2),
        lambda run: run.block_shuffle(io_block_size=2, window_blocks=2, lanes=2),
    ],
    ids=["stored", "full", "era", "block", "lanes"],
)
@pytest.mark.parametrize("world", [1, 2])
def test_tr_07_loaders_deliver_every_row_of_an_epoch_once_to_some_rank(store_of, shuffled, world):
    documents = [list(range(10 * n, 10 * n + 8)) for n in range(24)]
    run = shuffled(store_of(documents).windows(8)).seed(4)
    rows = []
    for rank in range(world):
        with tl.Loader(run, 4, rank=rank, world_size=world) as loader:
            for batch in loader:
                assert (batch.tokens == run.batch(batch.index).tokens).all()
                rows += batch.tokens.tolist()
    assert sorted(rows) == documents


# -- killed and resumed --------------------------------------------------------------------


def test_tr_08_a_run_that_was_killed_and_resumed_has_the_same_losses_to_the_last_bit(
    trio, tmp_path
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    train_in(whole, TinyGPT(), killed_run(trio), 12)
    command = [sys.executable, tiny_gpt.__file__, trio.path, parts, "12", "5"]
    killed = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [*curve(parts)] == [0, 1, 2, 3, 4]  # the checkpoint is of step 3
    for last in (8, 12):  # another stop, and other weights than the first: the checkpoint's count
        train_in(parts, TinyGPT(seed=9), killed_run(trio), last)
    log = (parts / "log").read_text().splitlines()
    assert len(log) == 5 + 5 + 6  # steps 3, 4, then 6, 7 were trained again
    assert curve(parts) == curve(whole)
    assert all(len(losses) == 1 for losses in curve(parts).values())


def test_tr_08_a_loader_that_starts_anew_gives_another_curve(trio, tmp_path):
    """The control: the same checkpoint without the position of the data."""
    train_in(tmp_path, TinyGPT(), killed_run(trio), 4)
    checkpoint = torch.load(tmp_path / "checkpoint")
    checkpoint["loader"] |= {"examples": 0, "step": 0}
    torch.save(checkpoint, tmp_path / "checkpoint")
    train_in(tmp_path, TinyGPT(), killed_run(trio), 4)
    assert len(curve(tmp_path)[3]) == 2


# -- what a document sees ------------------------------------------------------------------


@pytest.mark.parametrize(("isolated", "same"), [(True, True), (False, False)])
def test_tr_09_packed_documents_have_the_losses_that_they_have_alone(trio, isolated, same):
    """A model that ignores segments is the control."""
    model = TinyGPT(isolated=isolated)
    packed, alone = trio.pack(128)[0], trio.pack(128, strategy="one_doc")[:]
    assert packed.segment_ids.max() == 3
    with torch.no_grad():
        together = logits_of(model, packed).log_softmax(-1)[0]
        single = logits_of(model, alone).log_softmax(-1)
    worst = 0.0
    for segment, number in enumerate(packed.spans.document.tolist(), 1):
        row = alone.spans.document.tolist().index(number)
        length = len(TEXTS[number])
        cells = np.flatnonzero(packed.segment_ids[0] == segment)
        targets = torch.as_tensor(packed.tokens[0, cells[1:]]).long()[:, None]
        losses = [
            -scores[: length - 1].gather(1, targets) for scores in (together[cells], single[row])
        ]
        worst = max(worst, (losses[0] - losses[1]).abs().max().item())
    assert (worst < 1e-5) == same


@pytest.mark.parametrize(("isolated", "equal"), [(True, True), (False, False)])
def test_tr_10_other_filler_leaves_the_logits_of_a_document_as_they_are(trio, isolated, equal):
    model = TinyGPT(isolated=isolated)
    run = trio.splice(64, content_length=16, position_scheme="absolute")
    zeros, others = (run.render(pad_id=filler)[[0, 5]] for filler in (0, 99))
    document = torch.as_tensor(zeros.segment_ids > 0)
    assert (document.sum(dim=1) == 16).all()
    assert (zeros.tokens != others.tokens)[~document.numpy()].all()
    with torch.no_grad():
        first, second = logits_of(model, zeros), logits_of(model, others)
    assert torch.equal(first[document], second[document]) == equal
