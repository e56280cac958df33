"""Random small runs of every kind, and the slow and obvious way to look into them.

`Stores` are three states of one store that grew twice, and another store. `random_run` draws a run:
layouts x orders x mixes x edits x appends. `cells_of_run` goes through all examples one by one and
writes down every cell; nothing of `tokenloom.trace` is used for that.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

import tokenloom as tl
from tokenloom.errors import ConfigError

SEQ_LEN = 8
BOS, EOS, SPECIALS = 998, 999, (998, 999)
STRATEGIES = ("sequential", "greedy", "first_fit", "best_fit", "first_fit_decreasing")
STRATEGIES += ("best_fit_decreasing", "one_doc")


class Cell(NamedTuple):
    """One cell of one example; `offset` is -1 for a BOS, the document's length for an EOS."""

    index: int
    column: int
    source: str
    epoch: int
    document: int
    offset: int
    label_only: bool
    blank: bool


class Stores(NamedTuple):
    first: tl.Store
    second: tl.Store
    third: tl.Store
    other: tl.Store


def make_stores(folder) -> Stores:
    """Documents of 0 to 30 tokens, some twice as long as a frame, some with the same id."""
    draw = random.Random(5)

    def records(first, last):
        return [
            {"input_ids": [draw.randrange(900) for _ in range(draw.choice(sizes))], "id": i % 9}
            for i in range(first, last)
        ]

    def build(path, first, last, **options):
        rows = records(first, last)
        options |= {"tokenizer": None, "vocab_size": 1000, "id_key": "id", "progress": False}
        return tl.build(rows, path, **options)

    sizes = (0, 1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 23, 30)
    grown = [build(folder / "grown", 0, 14)]
    grown += [build(folder / "grown", a, b, append=True) for a, b in ((14, 19), (19, 25))]
    return Stores(*grown, build(folder / "other", 0, 11))


# -- drawing runs --------------------------------------------------------------------------


def random_layout(draw: random.Random, store: tl.Store, lookahead: bool) -> tl.Dataset:
    """Windows, packed frames or splices of all or some of the documents."""
    choice = draw.random()
    documents = store
    if choice < 0.2:
        documents = store.split({"x": 0.7, "y": 0.3})["x"]
    elif choice < 0.3:
        documents = store.select(num_docs=7, doc_select_mode="random", doc_select_seed=3)
    kind = draw.choice(["windows", "pack", "pack", "splice"])
    if kind == "windows":
        return documents.windows(
            SEQ_LEN,
            tail=draw.choice(["drop", "keep"]),
            lookahead=lookahead,
            overlap=draw.randrange(2) if lookahead else 0,
        )
    if kind == "pack":
        return _packed(draw, documents, lookahead)
    return (
        _spliced(draw, documents) if not lookahead else documents.windows(SEQ_LEN, lookahead=True)
    )


def _packed(draw: random.Random, documents, lookahead: bool) -> tl.Dataset:
    strategy = draw.choice(STRATEGIES)
    special = {}
    if draw.random() < 0.5:
        special |= {"add_eos": True, "eos_id": EOS}
    if draw.random() < 0.4:
        special |= {"add_bos": True, "bos_id": BOS}
    return documents.pack(
        SEQ_LEN,
        strategy=strategy,
        overflow="split"
        if strategy == "sequential"
        else draw.choice(["split", "truncate", "drop"]),
        stride=0 if strategy == "sequential" else draw.choice([0, 0, 2]),
        min_len=draw.choice([1, 1, 4]),
        max_len=draw.choice([None, None, 25]),
        max_doc_tokens=draw.choice([None, None, 11]),
        min_row_len=draw.choice([1, 1, 5]),
        lookahead=lookahead,
        overlap=draw.randrange(2) if lookahead and strategy == "sequential" else 0,
        shuffle_output=draw.random() < 0.3,
        group_docs=draw.choice([3, 5, 10_000]),
        **special,
    )


SPLICES = {
    "balanced": {"offset_jitter": 2, "content_stride": 2},
    "balanced with tail": {"include_tail": True, "content_stride": 5},
    "clip": {"edge": "clip"},
    "clip pack": {"position_scheme": "relative", "content_length": 4},
    "pack": {"fill": "pack", "content_length": 3},
    "sweep": {"content_start_mode": "slide_within", "offset_stride": 3, "content_stride": 2},
    "shuffled sweep": {
        "content_start_mode": "slide_within",
        "placement": "truncate",
        "shuffle_content": True,
        "shuffle_offsets": True,
    },
    "roll": {"content_start_mode": "cyclic_roll", "offset_stride": 4, "content_stride": 3},
    "anchor": {"content_start_mode": "anchor_start"},
    "slide": {"mode": "slide", "content_length": None},
    "grid": {"grid": (2, 2)},
}
SHARES = {
    "usual": {},
    "quota": {"sampler": "quota", "balance_tau": 0.5},
    "by document": {"balance_mode": "by_document"},
    "short epochs": {"sampler": "quota", "epoch_length": 5},
    "stream": {"sampler": "stream"},
    "schedule": {"content_length": {0: 3, 10: 5}},
    "growth": {"doc_growth": {0: 3, 2: 6}},
    "edges": {"alpha": 0.5, "content_length": 4},
    "duplicates": {"alpha": 1.0, "content_length": 4, "edge_mode": "duplicate"},
}


def _spliced(draw: random.Random, documents) -> tl.Dataset:
    options: dict = {"pad_id": 0, "content_length": draw.choice([None, 3, 4, 6])}
    options |= draw.choice(list(SPLICES.values())) | draw.choice(list(SHARES.values()))
    if draw.random() < 0.3:
        options |= {"bos": BOS}
    return documents.splice(SEQ_LEN, **options)


def random_order(draw: random.Random, ds: tl.Dataset) -> tl.Dataset:
    kind = draw.choice(["stored", "full", "full", "era", "block", "lanes", "linear"])
    if kind == "full":
        return ds.shuffle()
    if kind == "linear":
        return ds.shuffle(perm_type="linear")
    if kind == "era":
        return ds.era_shuffle(5)
    if kind == "block":
        return ds.block_shuffle(io_block_size=2, window_blocks=3)
    if kind == "lanes":
        return ds.block_shuffle(io_block_size=2, window_blocks=2, lanes=3)
    return ds


def random_run(seed: int, stores: Stores) -> tuple[tl.Dataset, tl.Dataset]:
    """A run, and the same run without its quarantines, whose spans are all to be seen."""
    draw = random.Random(seed)
    while True:
        try:
            run, seen = _drawn(draw, stores)
            _ = run.run, seen.run  # which are made on first use
            return run, seen
        except (ConfigError, TypeError, IndexError):  # settings that do not go together
            continue


def _drawn(draw: random.Random, stores: Stores) -> tuple[tl.Dataset, tl.Dataset]:
    lookahead = draw.random() < 0.3
    epochs = draw.choice([None, 1, 2, 3])
    first = random_order(draw, random_layout(draw, stores.first, lookahead)).epochs(epochs)
    if draw.random() < 0.4:
        return _edited(draw, first.seed(draw.randrange(9)), stores, ["main"], single=True)
    other = random_order(draw, random_layout(draw, stores.other, lookahead))
    other = other.epochs(draw.choice([None, 1, 2]))
    rule = draw.choice(["least_consumed", "weights", "rounds", "random", "round_robin"])
    options: dict = {"rule": rule, "block": 6} if rule in ("rounds", "random") else {"rule": rule}
    if rule != "round_robin":
        options |= {"weights": {"a": draw.choice([1, 2.5]), "b": 1}}
        options |= {"cost": draw.choice(["rows", "tokens", "loss_tokens"])}
    options |= {"stop": draw.choice(["restart", "first_exhausted", "all_exhausted"])}
    if draw.random() < 0.2:
        options |= {"max_epochs": 1.5}
    run = tl.mix({"a": first, "b": other}, **options).seed(draw.randrange(9))
    if draw.random() < 0.15:
        shuffled = run.shuffle()
        return shuffled, shuffled
    names = ["a", "b"]
    run, seen = _edited(draw, run, stores, names, single=False)
    if draw.random() < 0.3:
        n = draw.randrange(10, 60)
        if not run.edits or run.edits[-1].at <= n:
            run, seen = run.take(n), seen.take(n)
    return run, seen


def _edited(draw, run, stores, names, *, single):
    """Some edits, the same ones but for quarantines in the second run."""
    seen, at, grown = run, 0, 0
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        at += draw.choice([0, 1, 3, 6, 12, 30])
        block = 6 if not single and run.rule.rule in ("rounds", "random") else 1
        at = -(-at // block) * block
        kind = draw.choice(["quarantine", "append", "weights", "add", "remove"])
        hidden = {"quarantine": [(draw.choice(names), draw.randrange(11)) for _ in range(2)]}
        change: dict = {}
        if kind == "append" and grown < 2:
            name = names[0]
            change = {"append": {name: (stores.second, stores.third)[grown]}}
            grown += 1
        elif kind == "weights" and not single and run.rule.rule != "round_robin":
            change = {"weights": {names[0]: draw.choice([0.5, 3])}}
        elif kind == "add" and not single and "c" not in names:
            fresh = random_order(draw, random_layout(draw, stores.other, run.run.width > SEQ_LEN))
            change = {"add": {"c": fresh.epochs(draw.choice([None, 2]))}}
            names = [*names, "c"]
        elif kind == "remove" and not single and len(names) == 3:
            change = {"remove": [names[1]]}
        if kind == "quarantine":
            run, seen = run.edit(at=at, **hidden), seen.edit(at=at)
        else:
            run, seen = run.edit(at=at, **change), seen.edit(at=at, **change)
    return run, seen


# -- the slow way --------------------------------------------------------------------------


def horizon(run: tl.Dataset, most: int = 70) -> int:
    return most if run.run.n is None else min(run.run.n, most)


def cells_of_run(run: tl.Dataset, seen: tl.Dataset, n: int) -> list[Cell]:
    """Every cell of the first n examples, one by one, from spans; `seen` shows what is blank."""
    cells, readers = [], {name: one.layout.line.reader for name, one in _sources(run)}
    for index in range(n):
        shown = {span[:4] for span in _spans(run, index)}
        epoch = int(run.locate([index])[0][0])
        for document, start, length, at, flags, source in _spans(seen, index):
            blank = (document, start, length, at) not in shown
            begin, end = readers[source].bounds(np.array([document]))
            offsets = [*range(start, start + length)]
            offsets = [-1] * (flags & 1) + offsets + [int(end[0] - begin[0])] * (flags >> 1 & 1)
            for column, offset in enumerate(offsets, at):
                only = column >= run.seq_len
                cells.append(Cell(index, column, source, epoch, document, offset, only, blank))
    return cells


def _sources(run: tl.Dataset):
    return zip(run.run.names, run.run.sources, strict=True)


def _spans(run: tl.Dataset, index: int):
    spans = run.spans([index])
    name = spans.sources[int(spans.source[0])]
    columns = (spans.document, spans.start, spans.length, spans.at, spans.flags)
    return [(*map(int, one), name) for one in zip(*columns, strict=True)]


def cells_of_places(places) -> list[Cell]:
    """Every cell of some places."""
    return [
        Cell(
            p.index, p.column + k, p.source, p.epoch, p.document, p.start + k, p.label_only, p.blank
        )
        for p in places
        for k in range(p.length)
    ]


def cells_of_examples(examples) -> list[Cell]:
    """Every cell of some examples."""
    return [
        Cell(
            one.index,
            run.column + k,
            span.source,
            span.epoch,
            span.document,
            run.start + k,
            run.label_only,
            span.blank,
        )
        for one in examples
        for span in one.spans
        for run in span.cells
        for k in range(run.length)
    ]
