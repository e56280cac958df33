"""Plans and sums of a run are made by many machines, and kept for this one.

One idea: whatever a run keeps in the plan cache is made of pieces that need nothing of each other:
some packing groups, some rows, some items of an epoch. A task makes a piece and answers with
integers; this process joins them in order and keeps the file, the same bytes that it would have
made alone. Who opens the run afterwards, on this machine, finds everything there.

==================  ==============  ================================================================
file                a piece         what it is
==================  ==============  ================================================================
``pack``,           64 groups       where groups of packed documents start, and their rows
``packed-tokens``                   tokens of each row
``packed-rows``     64 groups       what is in each row
``trained``         2^20 rows       trained tokens of each row, for a mix that pays by them
``sums``            2^22 items      what the items of an epoch cost, in its order
==================  ==============  ================================================================

Small runs keep nothing: working it out takes no longer than finding a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.rebuild import described_lines, rebuild
from tokenloom.arguments import integer
from tokenloom.cluster.sending import OnRay, absolute_paths, described_run, sent_run
from tokenloom.documents.line import Line
from tokenloom.errors import ConfigError, StoreError
from tokenloom.ingest.cluster.ray_tasks import check_executor
from tokenloom.ingest.crew.wire import pack_error
from tokenloom.layout.pack.groups import Share, kept_groups, plan_identity
from tokenloom.layout.pack.rows import Packed, groups_of, plan_groups
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.mixture.assemble import MixSource, endless_run, single_run
from tokenloom.order.costs import SummedCosts
from tokenloom.order.prices import RunPrices, costs_of
from tokenloom.order.run import SourceRun
from tokenloom.store.plan_cache import cache_dir, file_name, is_there

__all__ = ["Prepared", "kept_names", "prepare_run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What `prepare_run` did.

    Attributes:
        kept: names of the files in the plan cache that the run finds there.
        made: those of them that were not there before.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     prepare_run(store.pack(8).describe(), executor="local").made
    ()
    """

    kept: tuple[str, ...]
    made: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Something that a run keeps.

    Attributes:
        what: "rows", "counts" or "sums".
        source: the number of its source.
        costs: which of the costs of that source, if it is about costs.
        files: the names of its files.
        keep: makes what is not there yet, here or elsewhere.
    """

    what: str
    source: int
    costs: int = 0
    files: tuple[str, ...]
    keep: Callable[[Share | None], Any]


def prepare_run(
    run: Dataset | Mapping[str, Any],
    *,
    epochs: int = 1,
    executor: str = "ray",
    workers: int | None = None,
    progress: bool | None = None,
) -> Prepared:
    """Make what a run keeps in the plan cache, on many machines: packing plans, and sums of costs.

    The files are those that the run would make by itself when it needs them, to the byte. What is
    already there is checked and left alone. Epochs that an append extends are added up when they
    are needed.

    Args:
        run: the run, or its description (`Dataset.describe()`, or one written by hand). Packing
            groups are planned as soon as a run is opened, so give a description to have them
            planned elsewhere.
        epochs: how many epochs of every source are added up.
        executor: "ray" (extra `ray`) or with an address, as in `tokenloom.build`, or "local".
        workers: how many tasks run at once, at most; default: what the cluster has room for.
        progress: show bars; default: if standard error is a terminal.

    Raises:
        ConfigError: the run cannot be sent to other machines.
        StoreError: the plan cache cannot be written to.
        WorkerError: a task was lost again and again.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     prepare_run(store.pack(8), executor="local")  # too small to be worth a file
    Prepared(kept=(), made=())
    """
    remote, workers = check_executor(executor, workers)
    epochs = integer("epochs", epochs, 0)
    if not isinstance(run, (Dataset, Mapping)):
        raise ConfigError(
            f"prepare_run: found {type(run).__name__}, allowed: a run, or its description."
        )
    made: list[str] = []
    with OnRay(executor, workers, progress) as ray:
        if isinstance(run, Dataset):
            plain = described_run(run, executor) if remote else {}
        else:
            plain = absolute_paths(run)
            made += _plan_packing(plain, ray if remote else None)
            run = rebuild(plain, None, {})
        names = list(_packing_files(run))
        for work in works_of(run, epochs):
            share = None
            if remote:
                which = {"what": work.what, "source": work.source, "costs": work.costs}
                sent = [name for name in names if not name.startswith("packed-rows")]
                share = ray.share(_piece, {"run": plain, **which}, sent, f"{work.what} of a run")
            made += [name for name in work.files if not is_there(name)]
            work.keep(share)
            names += work.files
    missing = [name for name in names if not is_there(name)]
    if missing:
        raise StoreError(
            f"{cache_dir()}: {missing[0]} could not be kept there. Set TOKENLOOM_CACHE_DIR to a "
            "directory that only you can write to."
        )
    return Prepared(kept=tuple(names), made=tuple(made))


def kept_names(run: Dataset, epochs: int) -> list[str]:
    """The names of files that whoever opens a run looks for; not all of them need to be there."""
    works = [name for work in works_of(run, epochs) for name in work.files]
    return [*_packing_files(run), *(name for name in works if not name.startswith("packed-rows"))]


# -- packing -------------------------------------------------------------------------------
def _plan_packing(plain: Mapping[str, Any], ray: OnRay | None) -> list[str]:
    """Plan the groups of every packed source, before anybody opens the run; what was not there."""
    made: list[str] = []
    for number, (config, line) in enumerate(described_lines(plain)):
        if isinstance(config.layout, PackSpec):
            share = None
            if ray is not None:
                message = {"run": plain, "what": "groups", "source": number}
                share = ray.share(_piece, message, [], "packing")
            names = kept_groups(plan_identity(line, config.layout))
            new = [name for name in names if not is_there(name)]
            groups_of(line, config.layout, share)
            made += [name for name in new if is_there(name)]
    return made


def _packing_files(run: Dataset) -> Iterator[str]:
    """Plans of packing groups, in the order of sources; a plan that two share comes once."""
    known = set()
    for source in run.sources.values():
        identity = source.layout.kept_as if isinstance(source.layout, Packed) else None
        if identity is not None:
            for name in kept_groups(identity):
                if name not in known:
                    known.add(name)
                    yield name


# -- what comes after ----------------------------------------------------------------------
def works_of(run: Dataset, epochs: int) -> Iterator[Work]:
    """What a run keeps beside its packing groups, in an order in which it can be made."""
    known: set[str] = set()
    for number, name in enumerate(run.sources):
        for work in _works_of_source(run, number, name, epochs):
            if not known.issuperset(work.files):
                known.update(work.files)
                yield work


def _works_of_source(run: Dataset, number: int, name: str, epochs: int) -> Iterator[Work]:
    layout = run.sources[name].layout
    if isinstance(layout, Packed) and layout.kept_as is not None:
        file = file_name("packed-rows", layout.kept_as, "parts")
        yield Work(what="rows", source=number, files=(file,), keep=layout.keep_rows)
    source, priced = _costs_of_source(run, name)
    for place, costs in enumerate(priced):
        prices = costs.priced
        if isinstance(prices, RunPrices) and prices.kept_as is not None:
            file = file_name("trained", prices.kept_as, "ints")
            yield Work(what="counts", source=number, costs=place, files=(file,), keep=prices.keep)
        for epoch in range(epochs if source.rows else 0):
            identity = costs.kept_as(epoch)
            if identity is not None:
                file = file_name("sums", identity, "ints")

                def keep(share: Share | None, one: SummedCosts = costs, at: int = epoch) -> None:
                    one.keep(at, share)

                yield Work(what="sums", source=number, costs=place, files=(file,), keep=keep)


def _costs_of_source(run: Dataset, name: str) -> tuple[SourceRun, list[SummedCosts]]:
    """The run of a source on its own, and those of its costs that are sums.

    These are its tokens, and what a mix pays by.
    """
    source, rule = run.sources[name], run.rule
    if rule is None:
        alone = single_run(MixSource(source.config, source.layout))
        every = [costs_of(alone, "tokens", None, least=0)] if alone.rows else []
    else:
        taken = source.taken(name, rule.cost == "loss_tokens")
        alone = endless_run(name, taken, rule)
        every = [costs_of(alone, rule.cost, None, taken.count)]
        every.append(costs_of(alone, "tokens", None, least=0))
    return alone, [one for one in every if isinstance(one, SummedCosts)]


# -- what a task does ----------------------------------------------------------------------
def _piece(message: Mapping[str, Any], piece: dict[str, int]) -> dict[str, Any]:
    """What Ray runs: makes a piece, as plain data."""
    try:
        return _made(message, piece)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pack_error(error)


def _made(message: Mapping[str, Any], piece: dict[str, int]) -> dict[str, Any]:
    what, number = message["what"], message["source"]
    if what == "groups":
        spec, line = _sent_line(message["run"], number)
        return plan_groups(line, spec, piece["number"], piece["document"], piece["groups"]).plain()
    run = sent_run(message)
    name = list(run.sources)[number]
    layout = run.sources[name].layout
    if what == "rows":
        assert isinstance(layout, Packed)
        return {"groups": layout.row_bytes(**piece)}
    costs = _priced(run, name)[message["costs"]]
    if what == "sums":
        return {"sums": costs.piece(**piece)}
    assert isinstance(costs.priced, RunPrices)
    return {"counts": costs.priced.piece(**piece)}


_lines: dict[tuple[str, int], tuple[PackSpec, Line]] = {}  # of this process


def _sent_line(plain: Mapping[str, Any], number: int) -> tuple[PackSpec, Line]:
    """The documents of a source, and how to pack them; they are chosen once, not per piece."""
    which = json.dumps(plain, sort_keys=True), number
    if which not in _lines:
        ((config, line),) = described_lines(plain, number)
        assert isinstance(config.layout, PackSpec)
        _lines.clear()
        _lines[which] = config.layout, line
    return _lines[which]


_known: dict[str, tuple[Dataset, list[SummedCosts]]] = {}  # of this process


def _priced(run: Dataset, name: str) -> list[SummedCosts]:
    """The costs of a source; their tables are read once, not per piece.

    The run itself is not asked for: where a mix ends may need the very sums that are to be made.
    """
    known = _known.get(name)
    if known is None or known[0] is not run:
        _known.clear()
        known = _known[name] = run, _costs_of_source(run, name)[1]
    return known[1]
