"""Other loaders over the same tokens, and the check that a loader's output is correct.

A *rival* is a loader that can be started from its files any number of times. Every peer reads the
flat uint16 array at the start of a store's payload file, or a copy of it in the peer's own
format, and shuffles windows of `SEQ` tokens into batches of `BATCH`. Where a peer leaves a choice
that changes no result, the one that costs less CPU was taken: one torch thread, no reader threads
in Grain, Hugging Face lists of fixed length and uint16 (much cheaper to iterate than variable ones
of int32; as a map it makes no clear difference).

A peer that is not installed is left out; `find` says so.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BATCH", "SEQ", "Corpus", "Rival", "check", "endless", "find"]

BATCH = 32  # windows
SEQ = 2048  # tokens of a window
SEED = 7
BUFFER = 1000  # examples that Hugging Face's iterable keeps to shuffle among
LITDATA_CHUNK = 1 << 22  # tokens per file of LitData


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """One flat array of uint16 tokens in a file, and a folder for what peers make of it."""

    path: Path
    tokens: int
    folder: Path

    def map(self) -> np.memmap[Any, np.dtype[np.uint16]]:
        """The tokens, mapped anew."""
        return np.memmap(self.path, np.uint16, "r", shape=(self.tokens,))

    @property
    def windows(self) -> int:
        """Whole windows of `SEQ` tokens, side by side."""
        return self.tokens // SEQ


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """A loader to be timed.

    `start` opens everything anew and gives batches without end; `arrays` names the arrays of a
    batch, tokens first.
    """

    name: str
    start: Callable[[], Iterator[Any]]
    arrays: Callable[[Any], Mapping[str, Any]]


def endless(epoch: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """The batches of one epoch after another."""
    while True:
        found = False
        for batch in epoch():
            found = True
            yield batch
        if not found:
            raise ValueError("an epoch without a batch: the data is shorter than one batch.")


# -- the check -----------------------------------------------------------------------------


def check(rival: Rival, batch: Any, corpus: Corpus) -> str:
    """What the batch holds, in words, if every row of it is a window of the data, in any order.

    Raises:
        ValueError: the shape is wrong, a row is nowhere in the data, or nothing was shuffled.
    """
    arrays = rival.arrays(batch)
    for name, array in arrays.items():
        if tuple(array.shape) != (BATCH, SEQ):
            raise ValueError(f"{rival.name}: {name} has shape {tuple(array.shape)}.")
    starts = _starts(rival.name, np.asarray(next(iter(arrays.values()))), corpus)
    if len(set(starts)) < BATCH // 2 or starts == sorted(starts):
        raise ValueError(f"{rival.name}: the windows of a batch are repeated or in order: {starts}")
    if "targets" in arrays:
        after = _starts(rival.name, np.asarray(arrays["targets"]), corpus)
        if after != [start + 1 for start in starts]:
            raise ValueError(f"{rival.name}: targets are not the tokens one further.")
    kind = type(next(iter(arrays.values()))).__module__.partition(".")[0]
    kinds = ", ".join(f"{name} {str(a.dtype).removeprefix('torch.')}" for name, a in arrays.items())
    return f"{rival.name} gives {kind} arrays: {kinds}."


def _starts(name: str, rows: np.ndarray, corpus: Corpus) -> list[int]:
    """Where in the data each row starts."""
    flat = np.asarray(corpus.map())
    heads = flat[: corpus.windows * SEQ].reshape(-1, SEQ)[:, :4]
    aligned = {head.tobytes(): i * SEQ for i, head in enumerate(np.ascontiguousarray(heads))}
    return [_start(name, flat, aligned, row) for row in rows]


def _start(name: str, flat: np.ndarray, aligned: Mapping[bytes, int], row: np.ndarray) -> int:
    """Where this row starts: looked up among the aligned windows, else searched for."""
    narrow = row.astype(np.uint16)
    likely = aligned.get(narrow[:4].tobytes(), 0)
    for place in itertools.chain([likely], _anywhere(flat, narrow)):
        if np.array_equal(flat[place : place + SEQ], row):
            return place
    raise ValueError(f"{name}: a row that starts with {row[:4]} is not a window of the data.")


def _anywhere(flat: np.ndarray, row: np.ndarray) -> Iterator[int]:
    """Every place where the first eight tokens are those of the row; costs a pass over the data."""
    places = np.flatnonzero(flat[: len(flat) - SEQ + 1] == row[0])
    for ahead in range(1, 8):
        places = places[flat[places + ahead] == row[ahead]]
    yield from places.tolist()


# -- the peers -----------------------------------------------------------------------------


def find(corpus: Corpus) -> tuple[dict[str, Rival], list[str]]:
    """Rivals by their short name, and a line for every one that is left out."""
    found: dict[str, Rival] = {}
    notes: list[str] = []
    for name, (modules, make) in PEERS.items():
        missing = [module for module in modules if not importlib.util.find_spec(module)]
        if missing:
            notes.append(f"{name} is left out: {', '.join(missing)} not installed.")
            continue
        try:
            found[name] = make(name, corpus)
        except ImportError as problem:  # installed, but not for this torch or NumPy
            notes.append(f"{name} is left out: {problem}.")
    return found, notes


def _named(name: str, package: str) -> str:
    return f"{name} ({package} {importlib.metadata.version(package)})"


def _only_tokens(batch: Any) -> dict[str, Any]:
    return {"tokens": batch}


class _Slices:
    """A map-style dataset, the way it is usually written: a slice of a memory map per item."""

    def __init__(self, corpus: Corpus, convert: Callable[[np.ndarray], Any]) -> None:
        self.tokens, self.windows, self.convert = corpus.map(), corpus.windows, convert

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> Any:
        return self.convert(self.tokens[index * SEQ : (index + 1) * SEQ])


def _torch() -> Any:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)  # as in the workers of a DataLoader
    return torch


def _torch_loader(name: str, corpus: Corpus) -> Rival:
    torch = _torch()
    make = torch.utils.data.DataLoader
    return _torch_like(_named(name, "torch"), torch, make, corpus)


def _stateful_loader(name: str, corpus: Corpus) -> Rival:
    torch = _torch()
    make = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader

    def quiet(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it calls what torch has deprecated
            return make(*args, **options)

    return _torch_like(_named(name, "torchdata"), torch, quiet, corpus)


def _torch_like(name: str, torch: Any, make: Callable[..., Any], corpus: Corpus) -> Rival:
    def to_tensor(window: np.ndarray) -> Any:
        return torch.from_numpy(window.astype(np.int64))

    def start() -> Iterator[Any]:
        loader = make(
            _Slices(corpus, to_tensor),
            batch_size=BATCH,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(SEED),
        )
        return endless(lambda: loader)

    return Rival(name=name, start=start, arrays=_only_tokens)


def _nanogpt(name: str, corpus: Corpus) -> Rival:
    """Random windows, inputs and targets stacked; the file is mapped for every batch."""
    torch = _torch()
    random = torch.Generator().manual_seed(SEED)

    def rows(tokens: np.ndarray, starts: Any) -> Any:
        windows = [tokens[start : start + SEQ].astype(np.int64) for start in starts]
        return torch.stack([torch.from_numpy(window) for window in windows])

    def start() -> Iterator[Any]:
        while True:
            tokens = corpus.map()
            # a tensor, as there; as a list of ints it would be cheaper to slice with
            starts = torch.randint(corpus.tokens - SEQ, (BATCH,), generator=random)
            yield rows(tokens, starts), rows(tokens, starts + 1)

    return Rival(
        name=f"{name} (torch {torch.__version__})",
        start=start,
        arrays=lambda batch: {"tokens": batch[0], "targets": batch[1]},
    )


def _hf_folder(corpus: Corpus) -> Path:
    """The windows as a dataset on disk, made once."""
    folder = corpus.folder / "huggingface"
    if not folder.exists():
        datasets: Any = importlib.import_module("datasets")
        pyarrow: Any = importlib.import_module("pyarrow")
        datasets.disable_progress_bars()
        flat = pyarrow.array(np.asarray(corpus.map())[: corpus.windows * SEQ])
        table = pyarrow.table({"input_ids": pyarrow.FixedSizeListArray.from_arrays(flat, SEQ)})
        datasets.Dataset(table).save_to_disk(folder)
    return folder


def _hf_loader(name: str, corpus: Corpus, shuffled: Callable[[Any], Any]) -> Rival:
    datasets: Any = importlib.import_module("datasets")
    folder = _hf_folder(corpus)

    def start() -> Iterator[Any]:
        opened = shuffled(datasets.load_from_disk(folder)).with_format("numpy")
        return endless(lambda: opened.iter(BATCH, drop_last_batch=True))

    def arrays(batch: Any) -> dict[str, Any]:
        return {"tokens": batch["input_ids"]}

    return Rival(name=_named(name, "datasets"), start=start, arrays=arrays)


def _hf_map(name: str, corpus: Corpus) -> Rival:
    return _hf_loader(name, corpus, lambda opened: opened.shuffle(SEED, keep_in_memory=True))


def _hf_iterable(name: str, corpus: Corpus) -> Rival:
    return _hf_loader(
        name,
        corpus,
        lambda opened: opened.to_iterable_dataset().shuffle(SEED, buffer_size=BUFFER),
    )


def _litdata(name: str, corpus: Corpus) -> Rival:
    """Chunks as `litdata.optimize` writes them, without the processes that it starts."""
    torch = _torch()
    litdata: Any = importlib.import_module("litdata")
    cache: Any = importlib.import_module("litdata.streaming.cache")
    folder = corpus.folder / "litdata"
    writer = cache.Cache(
        str(folder), chunk_size=LITDATA_CHUNK, item_loader=litdata.TokensLoader(SEQ)
    )
    flat = np.asarray(corpus.map())
    for number, first in enumerate(range(0, corpus.tokens, LITDATA_CHUNK)):
        writer[number] = torch.from_numpy(flat[first : first + LITDATA_CHUNK].astype(np.int32))
    writer.done()
    writer.merge()

    def start() -> Iterator[Any]:
        data = litdata.StreamingDataset(
            str(folder),
            item_loader=litdata.TokensLoader(SEQ),
            shuffle=True,
            drop_last=True,
            seed=SEED,
        )
        loader = litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=0, drop_last=True)
        return endless(lambda: loader)

    return Rival(name=_named(name, "litdata"), start=start, arrays=_only_tokens)


def _grain(name: str, corpus: Corpus) -> Rival:
    grain: Any = importlib.import_module("grain")
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

    def start() -> Iterator[Any]:
        data = grain.MapDataset.source(_Slices(corpus, lambda window: window.astype(np.int32)))
        batches = data.shuffle(seed=SEED).batch(BATCH, drop_remainder=True)
        return endless(lambda: batches.to_iter_dataset(options))

    return Rival(name=_named(name, "grain"), start=start, arrays=_only_tokens)


Make = Callable[[str, Corpus], Rival]
PEERS: dict[str, tuple[tuple[str, ...], Make]] = {
    "torch DataLoader": (("torch",), _torch_loader),
    "StatefulDataLoader": (("torch", "torchdata"), _stateful_loader),
    "HF map": (("datasets", "pyarrow"), _hf_map),
    "HF iterable": (("datasets", "pyarrow"), _hf_iterable),
    "LitData": (("torch", "litdata"), _litdata),
    "Grain": (("grain",), _grain),
    "nanoGPT get_batch": (("torch",), _nanogpt),
}
