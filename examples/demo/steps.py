"""The steps of the demo: each is a method of `Demo` that prints what it did."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from examples.demo.corpus import Document, code, prose
from examples.demo.tokenizer import EOS, train
from tokenloom.inspect import coverage, places
from tokenloom.loader import latest_state, write_state
from tokenloom.quality import alone_probe, leak_probe
from tokenloom.report import report_on

WIDTH = 88
FIELDS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")
ROWS = 60  # of a step that is loaded
BATCH, TRAINED, SAVE_EVERY = 8, 48, 6  # rows and steps of training


class DemoFailed(Exception):
    """The demo cannot continue: something is missing, or a promise is broken."""


# ---------------------------------------------------------------- printing


def heading(text: str) -> None:
    """The first line of a step."""
    print(f"\n── {text} {'─' * (WIDTH - len(text) - 4)}", flush=True)


def say(*lines: object) -> None:
    """Lines of a step, not wrapped."""
    for line in itertools.chain.from_iterable(str(one).splitlines() or [""] for one in lines):
        print(f"   {line}".rstrip(), flush=True)


def explain(text: str) -> None:
    """A paragraph below a line; it is wrapped, but paths stay whole."""
    lines = textwrap.wrap(text, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    say(*(f"    {line}" for line in lines))


def prove(text: str, holds: bool) -> None:
    """A promise followed by a tick; the demo ends if it is broken."""
    if not holds:
        raise DemoFailed(f"a promise is broken: {text}")
    say(f"{text} ✓")


def table(columns: Mapping[str, Mapping[str, str]]) -> None:
    """A table with one column per source and one row per name."""
    names = list(next(iter(columns.values())))
    width = max(map(len, names))
    widths = {head: max(map(len, (head, *cells.values()))) for head, cells in columns.items()}
    say(" " * width + "".join(f"  {head:>{widths[head]}}" for head in columns))
    for name in names:
        cells = (f"  {columns[head][name]:>{widths[head]}}" for head in columns)
        say(f"{name:<{width}}" + "".join(cells))


# ---------------------------------------------------------------- processes that are killed


def run_process(
    work: Callable[..., None], *arguments: Any, exit_code: int = -signal.SIGKILL
) -> None:
    """Run a function in another process, which must end in a given way."""
    child = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    child.start()
    child.join()
    if child.exitcode != exit_code:
        raise DemoFailed(f"{work.__name__} ended with {child.exitcode}, expected {exit_code}")


def build_and_die(inputs: Path, out: Path, fatal: int, options: dict[str, Any]) -> None:
    """Build a store, and be killed while shard number `fatal` is being published."""
    shards, rename = itertools.count(1), os.rename

    def mortal(source: Path, target: Path) -> None:
        """Give a shard its name, or die with no chance to clean up."""
        if Path(target).name.startswith("shard-") and next(shards) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = mortal
    tl.build(inputs, out, **options)


def load_and_die(description: dict[str, Any], folder: Path, fatal: int) -> None:
    """Two ranks load steps, save their state every few of them, and are killed."""
    steps = steps_of(tl.from_config(description), world_size=2)
    with (folder / "log").open("w") as log:
        for step, (ranks, digest) in enumerate(steps, 1):
            print(digest, file=log, flush=True)
            if step % 5 == 0:
                write_state(ranks[0].state_dict(), folder)
            if step == fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def steps_of(
    run: tl.Dataset, world_size: int, state: Mapping[str, Any] | None = None
) -> Iterator[tuple[list[tl.Loader], str]]:
    """(the loaders, digest of the global batch) after every step."""
    ranks = [tl.Loader(run, ROWS, rank, world_size, fields=FIELDS) for rank in range(world_size)]
    for loader in ranks if state is not None else ():
        loader.load_state_dict(state)
    for batches in zip(*ranks, strict=True):
        digest = hashlib.sha256()
        for name in FIELDS:
            digest.update(np.concatenate([getattr(batch, name) for batch in batches]).tobytes())
        yield ranks, digest.hexdigest()[:16]
    for loader in ranks:
        loader.close()


def train_until(description: dict[str, Any], vocab: int, folder: Path, fatal: int | None) -> None:
    """A training process: resumes from its folder, and is killed in step `fatal`."""
    import torch

    from tokenloom.integrations.torch import dataloader

    torch.set_num_threads(1)
    torch.manual_seed(0)
    embed, mix = torch.nn.Embedding(vocab, 32), torch.nn.GRU(32, 32, batch_first=True)
    head = torch.nn.Linear(32, vocab)
    model = torch.nn.ModuleList([embed, mix, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = dataloader(tl.from_config(description), BATCH, contract="plain")
    done, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        done = saved["step"]
    for step, batch in enumerate(itertools.islice(loader, TRAINED - done), done):
        logits = head(mix(embed(batch["inputs"]))[0])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with (folder / "losses.jsonl").open("a") as log:
            print(json.dumps([step, loss.item()]), file=log)
        if (step + 1) % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"data": loader.state_dict(), "step": step + 1}
            torch.save(state, folder / "new.pt")
            os.replace(folder / "new.pt", checkpoint)
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------- the steps


class Demo:
    """What the steps make.

    Args:
        out: the output directory.
        fast: whether the corpus is tiny.
    """

    def __init__(self, out: Path, fast: bool) -> None:
        self.out, self.fast = out, fast
        self.texts: dict[str, tuple[Document, ...]] = {}
        self.inputs: dict[str, Path] = {}
        self.stores: dict[str, tl.Store] = {}
        # small shards, so that a build can be killed midway
        self.options: dict[str, Any] = {
            "tokenizer": str(out / "tokenizer.json"),
            "id_key": "id",
            "shard_tokens": 1 << (16 if fast else 20),
        }

    def find_text(self) -> None:
        """Both sources, in files of two kinds."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        stdlib, folder = Path(sysconfig.get_path("stdlib")), self.out / "corpus"
        folder.mkdir()
        budget = 400_000 if self.fast else 12_000_000
        self.texts = {"code": code(stdlib, budget), "prose": prose(stdlib, budget // 2)}
        self.inputs = {"code": folder / "code.jsonl", "prose": folder / "prose.parquet"}
        say(f"the standard library of Python {sys.version.split()[0]}; nothing is downloaded")
        for source, documents in self.texts.items():
            if not documents:
                raise DemoFailed(f"there is no text for {source!r} below {stdlib}")
            say(f"{source}: {len(documents):,} documents → {self.inputs[source]}")
        rows = {name: [one._asdict() for one in texts] for name, texts in self.texts.items()}
        lines = (json.dumps(row) + "\n" for row in rows["code"])
        self.inputs["code"].write_text("".join(lines), encoding="utf-8")
        pq.write_table(pa.Table.from_pylist(rows["prose"]), self.inputs["prose"])

    def train_tokenizer(self) -> None:
        """`tokenizer.json`, from a fair sample of every source."""
        size, vocab_size = (100_000, 1024) if self.fast else (1_500_000, 8192)
        sample = []
        for documents in self.texts.values():
            texts = sorted((one.text for one in documents), key=_hashed)
            sizes = np.cumsum([len(text) for text in texts])
            sample += texts[: 1 + int(np.searchsorted(sizes, size))]
        train(sample, Path(self.options["tokenizer"]), vocab_size=vocab_size)
        say(f"byte-level BPE, {vocab_size:,} ids, {EOS} ends a document")

    def build_stores(self) -> None:
        """Text files in, stores out."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        say(f">>> tl.build(text, store, {settings})")
        for source, path in self.inputs.items():
            self.stores[source] = tl.build(path, self.out / "stores" / source, **self.options)
        table({source: self._facts(source) for source in self.stores})
        store, texts = self.stores["prose"], self.texts["prose"]
        number = median_document(store)
        ids = store.document(number)
        say("", f">>> prose.document({number})  # {len(ids):,} tokens; the first of them:")
        say(*store.tokenizer.token_strings(ids[:10]))
        same = ids[-1] == store.tokenizer.eos
        same &= store.tokenizer.decode(ids[:-1]) == texts[number].text
        prove("all of them, decoded: the text that went in", same)

    def _facts(self, source: str) -> dict[str, str]:
        """A column of the table; lengths are in tokens, including EOS."""
        store = self.stores[source]
        size = sum(len(one.text.encode()) for one in self.texts[source])
        return {
            "documents": f"{store.num_documents:,}",
            "tokens": f"{store.num_tokens:,}",
            "bytes per token": f"{size / store.num_tokens:.2f}",
            "median length": f"{np.median(store.lengths):,.0f}",
            "longest": f"{store.lengths.max():,}",
            "digest": store.digest[:16],
        }

    def keep_promises(self) -> None:
        """Everything is tried on `code`, which is unchanged afterwards."""
        root, scratch = self.stores["code"].path, self.out / "scratch"
        wanted, inputs = fingerprints(root), self.inputs["code"]
        for workers in (1, 2):
            tl.build(inputs, scratch / f"workers-{workers}", workers=workers, **self.options)
        same = all(fingerprints(folder) == wanted for folder in scratch.iterdir())
        prove(f"rebuilt with 1 and 2 workers: {len(wanted)} files with the same bytes", same)
        killed = scratch / "killed"
        fatal = (len(list(root.glob("*/shard.json"))) + 1) // 2
        run_process(build_and_die, inputs, killed, fatal, self.options)
        refusal = refused(lambda: tl.open(killed), tl.StoreNotFound)
        tl.build(inputs, killed, **self.options)
        prove(
            "killed in the middle (SIGKILL), run again: same bytes", fingerprints(killed) == wanted
        )
        explain(f"Killed while publishing shard {fatal}. Opening it then fails with: {refusal}")
        shutil.rmtree(scratch)
        payload = root / "shard-00000" / "input_ids" / "c" / "0"
        whole = payload.read_bytes()
        place = len(whole) // 4
        payload.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            store = tl.open(root, cache_bytes=0)
            found = store.check()
            refused(lambda: store.tokens(0, store.num_tokens), tl.StoreCorrupt)
        finally:
            payload.write_bytes(whole)
        prove(f"flipped one byte, number {place:,} of shard 0: verify says no", not found.ok)
        explain(" ".join(found.problems))
        prove("restored: verify says all is well", tl.open(root).check().ok)

    def load_and_resume(self) -> None:
        """One run three ways, and every way gives the same batches."""
        run = self.stores["code"].windows(256).block_shuffle(lanes=8).epochs(2).seed(7)
        say(repr(run))
        whole = [digest for _, digest in steps_of(run, world_size=1)]
        folder, fatal = self.out / "run", len(whole) // 2
        folder.mkdir()
        run_process(load_and_die, run.describe(), folder, fatal)
        state = latest_state(folder)
        if state is None:
            raise DemoFailed("the run that was killed left no state")
        seen = (folder / "log").read_text().split()[: state["step"]]
        rest = [digest for _, digest in steps_of(run, world_size=3, state=state)]
        say(f"1 rank, never interrupted: {len(whole)} steps of {ROWS} rows")
        say(f"2 ranks, killed (SIGKILL) in step {fatal}; its state is row {state['examples']:,}")
        say(f"3 ranks from there on: {len(rest)} more steps")
        prove(
            "killed and resumed on another number of ranks: the same batches", seen + rest == whole
        )
        other = tl.Loader(run.seed(8), ROWS)
        refusal = refused(lambda: other.load_state_dict(state), tl.StateError)
        explain(f"The same state for another seed is refused: {refusal.splitlines()[1]}")

    def pack_documents(self) -> None:
        """The planner's table, the run that it promises, and a check for leaks."""
        store = self.stores["prose"]
        plan = tl.plan_packing(store, seq_len=[1024], overflow=["split", "truncate"])
        say(plan)
        choice, _ = plan.recommended[0]
        run = store.pack(1024, strategy=choice.spec.strategy)
        spans = run.spans(np.arange(len(run)))
        prove(
            f"{choice.spec.strategy}: {len(run):,} rows as planned, each token in exactly one cell",
            len(run) == choice.rows and int(spans.length.sum()) == store.num_tokens,
        )
        found = tl.check_batch(run.batch(np.arange(min(len(run), 64))))
        prove(f"{len(found.checked)} laws of a batch hold", found.ok)
        busy = run.batch(np.argsort(-np.diff(spans.frame))[:2])  # the rows with most documents
        apart = leak_probe(sums_of_documents, busy, vocab_size=store.vocab_size)
        together = leak_probe(sums_of_rows, busy, vocab_size=store.vocab_size)
        prove("in a model that respects segments, documents do not see each other", apart.ok)
        prove("a model that ignores them is caught", not together.ok)
        alone = alone_probe(sums_of_documents, busy)
        prove("documents in a row give the same logits as alone", alone.ok)

    def splice_documents(self) -> None:
        """Three documents, seen from every start, and what is known about it in advance."""
        store = self.stores["prose"]
        chosen = store.select(num_docs=3, doc_select_mode="longest", max_doc_length=2000)
        run = chosen.splice(512, content_length=128, position_scheme="relative")
        seen = coverage(run)
        say(seen)
        even = all(np.ptp(seen.targets(document)[1:]) == 0 for document in chosen.indices.tolist())
        prove("every token but the first is trained 127 times, none more or less", even)
        document = int(chosen.indices[0])
        found = places(run, document, 300)
        shown = run.spans(found)
        known = ((shown.document == document) & (shown.start == 300)).sum() == len(found) > 0
        prove(f"document {document} from token 300 on is at index {found.tolist()}", bool(known))
        endless = chosen.splice(512, content_length=128, sampler="stream")
        first = endless.batch([10**12]).tokens
        same = (first == tl.from_config(endless.describe()).batch([10**12]).tokens).all()
        prove("example 10^12 of an endless run, twice: the same bytes", bool(same))

    def mix_sources(self) -> None:
        """Packed prose, windows of code and a spliced document in one run that is edited."""
        text, book = (
            self.stores["prose"],
            self.stores["prose"].select(doc_select_mode="longest", max_doc_length=2000),
        )
        sources = {
            "prose": text.pack(512).shuffle(),
            "code": self.stores["code"].windows(512).block_shuffle(),
            "book": book.splice(512, content_length=128, position_scheme="relative").shuffle(),
        }
        run = tl.mix(sources, weights={"prose": 3, "code": 2, "book": 1}).seed(7)
        edited = run.edit(at=192, weights={"code": 6})
        tokens = [
            np.array([one["tokens"] for one in edited.consumed(n)], float) for n in (192, 384)
        ]
        shares = {
            head: dict(zip(sources, (f"{share:.1%}" for share in some / some.sum()), strict=True))
            for head, some in (("before", tokens[0]), ("after the edit", tokens[1] - tokens[0]))
        }
        table(shares)
        same = (run[0:192].tokens == edited[0:192].tokens).all()
        prove("the first 192 examples of the edited run are those of the original run", bool(same))
        loader = tl.Loader(run, batch_size=16)
        for _ in range(6):
            next(loader)
        again = tl.Loader(edited, batch_size=16, rank=1, world_size=4)
        again.load_state_dict(loader.state_dict())
        same = all(
            (next(again).tokens == edited[16 * step + 4 : 16 * step + 8].tokens).all()
            for step in range(6, 24)
        )
        prove("resumed before the edit and continued across it, on another number of ranks", same)
        explain("The source of example n is a function of n: no counter was kept or synchronised.")

    def train_a_model(self) -> None:
        """One training run in one piece, and one that dies on the way."""
        if importlib.util.find_spec("torch") is None:
            say("torch is not installed, so there is nothing to train here.")
            return
        settings = self._asked().describe(), self.stores["code"].vocab_size
        whole, killed = self.out / "training", self.out / "training-killed"
        for folder in (whole, killed):
            folder.mkdir()
        run_process(train_until, *settings, whole, None, exit_code=0)
        run_process(train_until, *settings, killed, TRAINED // 2 + 2)
        run_process(train_until, *settings, killed, None, exit_code=0)
        # a step that was trained again counts as it was the last time
        one, two = (
            dict(json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines())
            for folder in (whole, killed)
        )
        say(f"losses of {TRAINED} steps: {one[0]:.3f} → {one[TRAINED - 1]:.3f}")
        prove("killed in training and resumed: all losses are equal to the last bit", one == two)
        explain("A checkpoint holds model, optimizer, and one integer and a fingerprint for data.")

    def _asked(self) -> tl.Dataset:
        return self.stores["code"].pack(64).shuffle().seed(7)

    def ask_the_run(self) -> None:
        """At, where, diff and audit of the run that the last step has trained."""
        run, path = self._asked(), self.out / "run.yaml"
        tl.save(run, path)
        prove("its file gives the same run", tl.load(path) == run)
        found = run.at(step=34, row=5, batch_size=BATCH)
        say(f">>> run.at(step=34, row=5, batch_size={BATCH})", repr(found))
        document = found.spans[0].document
        steps = {(one.step, one.row) for one in run.where(doc=document, batch_size=BATCH)}
        prove(f"run.where(doc={document}) has that row among {len(steps)}", (34, 5) in steps)
        say(">>> tl.diff(run, run.seed(8))", repr(tl.diff(run, run.seed(8))))
        certificate = run.audit(0, min(2000, len(run)))
        say(*itertools.islice(certificate.lines(), 3))
        prove("an audit of the first examples finds every law kept", certificate.ok)
        file = self.out / "certificate.json"
        file.write_text(json.dumps(certificate.as_json(), indent=1))
        explain(f"Whoever has the store computes it again: tokenloom audit {path} --check {file}")
        report = report_on(run, batch_size=BATCH, ranks=2, certificate=certificate, name="demo")
        size = report.save(self.out / "report.html")
        for answer in report.answers:
            say(answer.question)
            explain(answer.sentence)
        prove(
            f"the report is one file of {size:,} bytes, without a network", "://" not in report.html
        )


STEPS: tuple[tuple[str, Callable[[Demo], None]], ...] = (
    ("Find text on this machine", Demo.find_text),
    ("Train a tokenizer on a slice of it", Demo.train_tokenizer),
    ("Build a store per source, and look inside", Demo.build_stores),
    ("Try the promises of a store", Demo.keep_promises),
    ("Shuffle, load, get killed, resume with other ranks", Demo.load_and_resume),
    ("Pack documents, and look for leaks", Demo.pack_documents),
    ("Splice a few documents, and check their coverage", Demo.splice_documents),
    ("Mix three sources, and edit the run midway", Demo.mix_sources),
    ("Train a tiny model, kill it, resume it", Demo.train_a_model),
    ("Ask what was trained where, audit it, and look at it", Demo.ask_the_run),
)


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def median_document(store: tl.Store) -> int:
    """The document whose length is the median."""
    order = np.argsort(store.lengths, kind="stable")
    return int(order[len(order) // 2])


def fingerprints(root: Path) -> dict[str, str]:
    """The sha256 of every file of a store, except the lock file."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refused(call: Callable[[], object], error: type[Exception]) -> str:
    """The message of the error that a call must raise."""
    try:
        call()
    except error as found:
        return str(found)
    raise DemoFailed(f"a promise is broken: no {error.__name__} was raised")


def sums_of_documents(tokens: Any, batch: tl.Batch) -> Any:
    """A toy model: the logit is a running sum over the tokens of the same document."""
    return _running_sums(tokens, np.asarray(batch.segment_ids))


def sums_of_rows(tokens: Any, batch: tl.Batch) -> Any:
    """The same over the whole row."""
    return _running_sums(tokens, np.ones_like(tokens))


def _running_sums(tokens: Any, segment: Any) -> Any:
    same = np.tril(segment[:, :, None] == segment[:, None, :])
    sums = (same @ (tokens[:, :, None] % 97)).astype(np.float64)
    return np.concatenate([sums, -sums], axis=-1) / 97
