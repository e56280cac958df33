"""The run of a run file: stores opened or built, sources laid out, mixed, edited.

One idea: a file is a call of the public functions, written down. Everything here calls what a
person would call in Python, with the arguments of the file, and collects what each call refuses.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.mix import mix
from tokenloom.api.origin import RunFile
from tokenloom.api.source import Source
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import field_names
from tokenloom.documents.spec import SelectSpec
from tokenloom.errors import StoreNotFound, TokenloomError
from tokenloom.evaluate.evaluation_sets import PINNED, content_hash
from tokenloom.loader.loader import Loader
from tokenloom.loader.steps import check_accepted
from tokenloom.order.spec import MAIN, SourceConfig
from tokenloom.runfiles.building import Builder, StoreShelf
from tokenloom.runfiles.checks import (
    CHECKS,
    check_mix,
    check_source,
    int_keys,
    layout_of,
    shuffle_of,
    split_of,
)
from tokenloom.runfiles.reading import (
    REFUSALS,
    Mistake,
    asked,
    is_known,
    overridden,
    refuse,
    settings_of,
    told,
)
from tokenloom.runfiles.schema import LAYOUTS
from tokenloom.runfiles.text import Written, below

log = logging.getLogger("tokenloom")

DIALECT = "run file"

FIELDS = field_names(SelectSpec)

OWN = {"sources", "evaluate", "loader", "build"}  # sections that only a run file has

T = TypeVar("T")

Given = Mapping[str, Any]


def is_run_mapping(config: Any) -> bool:
    """Whether a mapping has the human form: sources by name."""
    if not isinstance(config, Mapping) or "store" in config or "format" in config:
        return False
    sources = config.get("sources")
    return isinstance(sources, Mapping) or (
        sources is None and bool(OWN & config.keys()) and not isinstance(config.get("mix"), list)
    )


@dataclass(kw_only=True)
class FileCheck:
    """What is known of a file.

    Attributes:
        written: what it says.
        run: the run; None if something is wrong, or a store must be built first.
        problems: what is wrong.
        to_build: stores that are not there yet and would be built.
    """

    written: Written
    run: Dataset | None = None
    problems: list[Mistake] = field(default_factory=list)
    to_build: list[str] = field(default_factory=list)


def run_of(written: Written, overrides: tuple[str, ...] = (), *, build: bool = True) -> Dataset:
    """The run of what a file says.

    Raises:
        ConfigError: every problem, with its place.
    """
    found = check_run(written, overrides, build=build)
    refuse(found.written, found.problems)
    if found.run is None:
        names = ", ".join(found.to_build)
        raise StoreNotFound(f"{written.name}: not built yet: {names}. Load it with build=True.")
    return found.run


def check_run(
    written: Written, overrides: tuple[str, ...] = (), *, build: bool = False
) -> FileCheck:
    """What is known of a file; stores that are missing are built only if `build` is True."""
    written = overridden(written, overrides)
    found = FileCheck(written=written)
    settings = settings_of(written, found.problems)
    _Maker(found, settings, build).make()
    return found


class _Maker:
    """Makes one run; everything that is wrong goes to the report."""

    def __init__(self, report: FileCheck, settings: dict[str, Any], build: bool) -> None:
        self.report, self.settings = report, settings
        self.problems, self.folder = report.problems, report.written.folder
        self.builder = Builder(settings.get("build", {}), self.folder, self.problems, build)
        self.stores: dict[str, Store | None] = {}
        self.unbuilt: dict[str, Dataset] = {}  # sources whose stores are not there: only settings

    @property
    def _held(self) -> dict[str, dict[str, Any]]:
        """The evaluation sets; one without a layout has one document in a row."""
        found = {}
        for name, given in self.settings.get("evaluate", {}).items():
            path = below("evaluate", name)
            laid = any(one in given or is_known(below(path, one), self.problems) for one in LAYOUTS)
            pinned = {} if laid or "seq_len" not in self.settings else {"pack": dict(PINNED)}
            found[name] = {**given, **pinned}
        return found

    def make(self) -> None:
        sources, held = self.settings.get("sources", {}), self._held
        if not sources and not any(one.path.startswith("sources") for one in self.problems):
            words = (
                "missing; name at least one source, as in wiki: {store: stores/wiki, pack: 2048}."
            )
            self.problems.append(Mistake("sources", words))
        sections = {"sources": sources, "evaluate": held}
        for section, each in sections.items():
            for name, given in each.items():
                path = below(section, name)
                check_source(path, given, self.settings.get("seq_len"), self.problems)
        every = self.report.written.plain.get("sources")
        names = list(map(str, every)) if isinstance(every, Mapping) else []
        check_mix(self.settings, names, self.problems)
        asked("loader", check_accepted, self.settings.get("loader", {}), self.problems)
        self.builder.check()
        named = [(section, name) for section, each in sections.items() for name in each]
        made = {one: self._source(*one, sections[one[0]][one[1]]) for one in named}
        if self.unbuilt and not self.problems:
            known = {name: made["sources", name] or self.unbuilt.get(name) for name in sources}
            self._check_together({name: one for name, one in known.items() if one is not None})
        if self.builder.missing and self.builder.allowed and not self.problems:
            self.builder.build()  # only now: nothing is wrong with what is there
            self.stores.clear()
            late = [one for one in named if made[one] is None]
            made |= {one: self._source(*one, sections[one[0]][one[1]]) for one in late}
        self.report.to_build += [place.shown for place in self.builder.missing.values()]
        whole = {one: dataset for one, dataset in made.items() if dataset is not None}
        if self.problems or len(whole) < len(named) or not sources:
            return
        run = self._run({name: whole["sources", name] for name in sources})
        if run is not None:
            self._finish(run, {name: whole["evaluate", name] for name in held})

    def _finish(self, run: Dataset, sets: Given) -> None:
        """Put what the file says beside the run to it."""
        loader, held = dict(self.settings.get("loader", {})), self._held
        for name, one in sets.items():
            self._check_content(name, held[name], one)
        _check_loader(run, loader, self.problems)
        unused = tuple(self.builder.unused)
        for one in unused:
            log.info("%s: %s", self.report.written.name, one)
        file = RunFile(
            path=self.report.written.name,
            dialect=DIALECT,
            loader=loader,
            evaluate={name: self._seeded(held[name], one) for name, one in sets.items()},
            unused=unused,
        )
        self.report.run = run._but(file=file)

    def _check_content(self, name: str, given: Given, made: Dataset) -> None:
        """Whether a set is still the one that was pinned."""
        found = content_hash(made)
        if given.get("content", found) != found:
            words = (
                f"found {given['content']!r:.80}, but its documents have {found!r}. Evaluate what "
                "was pinned, or pin these, whose results can't be compared with earlier ones."
            )
            self.problems.append(Mistake(below(f"evaluate.{name}", "content"), words))

    def _try(self, path: str, function: Callable[[], T], known: Iterable[str] = ()) -> T | None:
        """What a call gives, or None and what is wrong."""
        try:
            return function()
        except REFUSALS as error:
            self.problems += told(path, error, known)
            return None

    # -- one source --------------------------------------------------------------------------
    def _source(self, section: str, name: str, given: Given) -> Dataset | None:
        path = below(section, name)
        before = len(self.problems)
        kind, layout = layout_of(path, given, self.settings.get("seq_len"), [])
        store = self._store(below(path, "store"), given["store"]) if "store" in given else None
        wrong = any(one.path.startswith(f"{path}.") or one.path == path for one in self.problems)
        if not kind or wrong or len(self.problems) > before:
            return None
        if store is None:
            self._check_unbuilt(section, name, given, kind, layout)
            return None
        documents = self._try(below(path, "select"), lambda: _chosen(store, given), FIELDS)
        if documents is None:
            return None
        made = asked(
            below(path, kind),
            lambda fields: getattr(documents, kind)(**fields),
            layout,
            self.problems,
        )
        return None if made is None else self._try(path, lambda: _ordered(made, given))

    def _check_unbuilt(
        self, section: str, name: str, given: Given, kind: str, layout: Given
    ) -> None:
        """What the tokenizer and the columns of a store that is not there yet do not allow."""
        path, place = (
            below(section, name),
            StoreShelf.of("store", given["store"], self.folder).place,
        )
        store = self.builder.surveyed(place)
        if store is None:
            return
        laid = asked(
            below(path, kind),
            lambda fields: CHECKS[kind](fields, store, place.shown),
            layout,
            self.problems,
        )
        if laid is None:
            return
        spec, render = laid
        source = Source(
            reader=cast(Any, store),
            path=place.shown,
            config=SourceConfig(layout=spec),
            layout=cast(Any, spec),  # has a width, and no rows
            render=render,
        )
        rendering = {name: one for name, one in given.items() if name == "render"}
        made = self._try(path, lambda: _ordered(Dataset({MAIN: source}), rendering))
        if made is not None and section == "sources":
            self.unbuilt[name] = made

    def _check_together(self, sources: dict[str, Dataset]) -> None:
        """Whether sources go into one mix, before their stores are built."""
        edits = self.settings.get("edits", ())
        joined = {name for edit in edits for name in edit.get("add", ())}
        if len(sources) == 1 and "mix" not in self.settings:
            return
        first = {name: one for name, one in sources.items() if name not in joined}
        given = int_keys("mix", self.settings.get("mix", {}), mix, [])
        rows = ("stages", *(["temperature"] if given.get("weights") is None else []))
        known = {name: one for name, one in given.items() if name not in rows}  # of rows nothing
        mixed = asked("mix", lambda fields: _mixed(first, fields), known, self.problems)
        if mixed is not None and joined:
            other = any(edit.get("different_tokenizers") for edit in (given, *edits))
            self._try("edits", lambda: mix(sources, different_tokenizers=other))

    def _store(self, path: str, given: Any) -> Store | None:
        """A store by its place, opened once, built if the file says how."""
        try:
            shelf = StoreShelf.of("store", given, self.folder)
        except TokenloomError as error:
            self.problems += told(path, error, ["path"])
            return None
        known = f"{shelf.place.opened} {sorted(shelf.hints.items())}"
        if known not in self.stores:
            self.stores[known] = self._opened(path, shelf)
        store = self.stores[known]
        if store is not None and shelf.digest not in (None, store.digest):
            words = f"its digest is {store.digest}, the file says {shelf.digest}."
            self.problems.append(Mistake(path, words))
            return None
        return store

    def _opened(self, path: str, shelf: StoreShelf) -> Store | None:
        place = shelf.place
        try:
            store = open_store(place.opened, **shelf.hints)
            self.builder.compare(place, store)
        except StoreNotFound as error:
            if not self.builder.expects(place):
                words = place.quoted(str(error)).removeprefix(f"{place.shown}: ")
                self.problems.append(Mistake(path, f"found {place.shown!r}: {words}"))
            return None
        except TokenloomError as error:
            self.problems.append(Mistake(path, place.quoted(str(error))))
            return None
        return Store(store.reader, place.shown)

    # -- all of them -------------------------------------------------------------------------
    def _run(self, sources: dict[str, Dataset]) -> Dataset | None:
        edits = self.settings.get("edits", ())
        joined = {name for edit in edits for name in edit.get("add", ())}
        first = {name: one for name, one in sources.items() if name not in joined}
        alone = len(sources) == 1 and "mix" not in self.settings and not joined
        if alone:
            ((name, made),) = sources.items()
            names = {name: MAIN}
        else:
            given = int_keys("mix", self.settings.get("mix", {}), mix, [])
            mixed = asked("mix", lambda fields: _mixed(first, fields), given, self.problems)
            if mixed is None:
                return None
            made, names = mixed, {}
        run = self._try("", lambda: self._ended(made, tokens=False))
        for number, edit in enumerate(edits):
            if run is None:
                return None
            change = functools.partial(self._edited, run, sources, names)
            run = asked(below("edits", number), change, edit, self.problems)
        if run is None:
            return None
        return self._try("", functools.partial(self._ended, run, tokens=True))

    def _seeded(self, given: Given, made: Dataset) -> Dataset:
        """An evaluation set with the seed of the run, unless it has its own."""
        seed = self.settings.get("seed")
        return made if seed is None or "seed" in given else made.seed(seed)

    def _ended(self, run: Dataset, *, tokens: bool) -> Dataset:
        """The run with its seed and its end; an end in tokens is found after the edits."""
        take = self.settings.get("take")
        by_tokens = isinstance(take, Mapping) and "tokens" in take
        if not tokens and self.settings.get("seed") is not None:
            own = run.rule is None and next(iter(run.sources.values())).config.seed is not None
            run = run if own else run.seed(self.settings["seed"])
        if take is None or by_tokens != tokens:
            return run
        return run.take(**take) if isinstance(take, Mapping) else run.take(take)

    def _edited(
        self, run: Dataset, sources: Given, names: Mapping[str, str], given: Given
    ) -> Dataset:
        fields = {key: one for key, one in given.items() if key not in ("add", "append")}
        if "add" in given:
            fields["add"] = {name: sources[name] for name in given["add"]}
        if "append" in given:
            stores = {
                names.get(n, n): StoreShelf.of(f"append.{n}", one, self.folder)
                for n, one in given["append"].items()
            }
            fields["append"] = {
                n: Store(open_store(one.place.opened, **one.hints).reader, one.place.shown)
                for n, one in stores.items()
            }
        if "quarantine" in given:
            fields["quarantine"] = [
                (names.get(pair[0], pair[0]), *pair[1:]) for pair in given["quarantine"]
            ]
        return run.edit(**fields)


def _chosen(store: Store, given: Given) -> Documents:
    """The documents of a source: a part of a split, and what is selected of it."""
    choice: Any = split_of(given["split"]) if "split" in given else None
    documents: Documents = store
    if choice is not None:
        documents = Documents(store.reader, store._path, choice)
    chosen = given.get("select", ())
    for fields in [chosen] if isinstance(chosen, Mapping) else chosen:
        choice = SelectSpec(**fields, within=choice)
        documents = Documents(store.reader, store._path, choice)
        documents._tell()
    return documents


def _ordered(made: Dataset, given: Given) -> Dataset:
    if "render" in given:
        made = made.render(**given["render"])
    if "epochs" in given:
        made = made.epochs(given["epochs"])
    if "shuffle" in given:
        made = made.shuffle(shuffle_of(given["shuffle"]) or False)
    return made.seed(given["seed"]) if "seed" in given else made


def _mixed(sources: dict[str, Dataset], given: Given) -> Dataset:
    fields = {name: one for name, one in given.items() if name != "shuffle"}
    made = mix(sources, **fields)
    return made.shuffle(shuffle_of(given["shuffle"]) or False) if "shuffle" in given else made


_looked_at: ContextVar[bool] = ContextVar("runs are only looked at", default=False)


@contextlib.contextmanager
def only_looked_at() -> Iterator[None]:
    """Let files of runs without an example be opened in this block: no loader will be made."""
    before = _looked_at.set(True)
    try:
        yield
    finally:
        _looked_at.reset(before)


def _check_loader(run: Dataset, given: Given, problems: list[Mistake]) -> None:
    """What a loader would refuse of this run; as one rank, without a thread or a warning."""
    if _looked_at.get() and run.run.n == 0:
        return

    def made(fields: dict[str, Any]) -> None:
        usual = {"batch_size": 1, **fields, "fetch": "rows", "prefetch": 0}
        Loader(run, rank=0, world_size=1, **usual).close()

    asked("loader", made, given, problems)
