"""The paths of a run file, and its ``build`` section: which stores are made from which text.

Paths are relative to the file. A path has two forms: one is opened; the other, with ``${NAME}`` as
written, is what descriptions, states and messages say, so that a run moves between machines with
its variables and no value of the environment ends up in a checkpoint.

A store that is there is opened, not built again, so that loading a run costs what opening costs;
but what the file says about it must be what it was built with, else that is a problem and not a
silent difference.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from tokenloom.api.build import build_store, survey_build
from tokenloom.api.store import Store
from tokenloom.arguments import expanded, place
from tokenloom.bind import BindError
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.ingest.inputs import expand
from tokenloom.ingest.plan import BuildPlan
from tokenloom.remote.uploads import files_of
from tokenloom.runfiles.reading import Mistake, asked, told
from tokenloom.runfiles.schema import signature_of
from tokenloom.runfiles.text import below
from tokenloom.store import format as fmt
from tokenloom.store.snapshots import numbers
from tokenloom.tokenizer.spec import resolve
from tokenloom.tokenizer.vocabulary import vocabulary_identity

KIND = re.compile(r"(txt|lines|jsonl|parquet|hf):")

CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a store is published in a directory or a bucket."""
    where = place("store", path)
    return bool(numbers(files_of(where).list(where)))


class FilePath(NamedTuple):
    """A path.

    Attributes:
        opened: the path to open.
        shown: the same path as descriptions and messages have it.
    """

    opened: str
    shown: str

    def quoted(self, message: str) -> str:
        """A message with the path, and those beside it, as they were written."""
        opened, shown = self
        while shown and opened and "${" in shown:  # else both are the same
            message = message.replace(opened, shown)
            opened, shown = os.path.dirname(opened), os.path.dirname(shown)
        return message


def place_of(where: str, text: str, folder: str) -> FilePath:
    """The path that a file means.

    >>> place_of("store", "stores/wiki", "runs"), place_of("store", "/data/wiki", "runs").opened
    (FilePath(opened='runs/stores/wiki', shown='runs/stores/wiki'), '/data/wiki')
    """
    if not text:
        raise ConfigError(f"{where}: found an empty path, allowed: the path of a store.")
    full = os.path.expanduser(expanded(where, text))
    if os.path.isabs(full) or ADDRESS.match(full):
        return FilePath(full, text)
    return FilePath(_joined(folder, full), _joined(folder, text))


def _joined(folder: str, text: str) -> str:
    """A path in a folder, which may be one of a bucket.

    >>> _joined("runs", "../wiki"), _joined("s3://bucket/runs", "../wiki"), _joined("", "wiki")
    ('wiki', 's3://bucket/wiki', 'wiki')
    """
    address = ADDRESS.match(folder)
    scheme = address[0] if address else ""
    joined = os.path.normpath(os.path.join(folder.removeprefix(scheme), text)) if folder else text
    return scheme + joined


def input_places(where: str, inputs: Any, folder: str) -> list[FilePath]:
    """The inputs of a build, each with its kind, such as ``txt:``, before the path."""
    listed = [inputs] if isinstance(inputs, str) else list(inputs)
    found = []
    for one in listed:
        kind = KIND.match(one)
        prefix = kind[0] if kind else ""
        place = place_of(where, one.removeprefix(prefix), folder)
        found.append(FilePath(prefix + place.opened, prefix + place.shown))
    return found


def tokenizer_place(where: str, name: str | None, folder: str) -> str | None:
    """The tokenizer of a build: a path if there is one, else the name as it is.

    Raises:
        ConfigError: it names a function: a file of settings runs no code.
    """
    if name is None or name == "bytes" or name.startswith("tiktoken:"):
        return name
    place = place_of(where, name, folder).opened
    if os.path.exists(place):
        return place
    if CODE.fullmatch(name):
        raise ConfigError(
            f"{where}: found {name!r}, which names a function, but a run file names no code. Call "
            "tokenloom.build(...) in Python and give its store here."
        )
    looks_like_path = name.startswith((".", "/", "~", "$")) or "." in os.path.basename(name)
    return place if looks_like_path else name


class StoreShelf(NamedTuple):
    """A store that a file names.

    Attributes:
        place: where it is.
        digest: the digest that it must have, if the file says so.
        hints: arguments of `tokenloom.open`.
    """

    place: FilePath
    digest: str | None
    hints: dict[str, Any]

    @staticmethod
    def of(where: str, given: str | Mapping[str, Any], folder: str) -> StoreShelf:
        """The store of a path, or of a path and how to open it."""
        if isinstance(given, str):
            return StoreShelf(place_of(where, given, folder), None, {})
        hints = {name: one for name, one in given.items() if name not in ("path", "digest")}
        if "path" not in given:
            raise ConfigError(f"{where}.path: missing. Give the path of a store.")
        place = place_of(f"{where}.path", given["path"], folder)
        return StoreShelf(place, given.get("digest"), hints)


log = logging.getLogger("tokenloom")

RECORDED = (  # settings that a store records under the same name
    *("text_key", "id_key", "ids_key", "parse_special", "on_error", "errors", "train_on"),
    *("chunk_tokens", "shard_tokens", "block_bytes", "inner", "max_record_bytes"),
)


DECIDED = ("text_key", "ids_key", "train_on")  # by the first record, where none is given


class UnbuiltStore(NamedTuple):
    """What stands in for the reader of a store that is not there yet.

    Attributes:
        manifest: its tokenizer, columns and settings; it has no documents.
    """

    manifest: Any


def unbuilt_store(plan: BuildPlan) -> UnbuiltStore:
    """What the plan of a build decides about its store."""
    spec, job = plan.setup.spec, plan.setup.job
    record = spec and fmt.TokenizerRecord(**spec.describe(), identity=vocabulary_identity(spec))
    return UnbuiltStore(
        SimpleNamespace(
            tokenizer=record,
            vocab_size=job.vocab_size,
            columns=job.columns,
            chunk_tokens=plan.options.chunk_tokens,
            parts=(SimpleNamespace(settings=plan.settings),),
        )
    )


class Builder:
    """The stores that a file builds.

    Args:
        section: the ``build`` section, typed.
        folder: what its paths are relative to.
        problems: gets what is wrong.
        allowed: whether a missing store may be built now.

    Attributes:
        outs: directory of a store → its key in the file.
        missing: key → the place of a store that is not there yet, and that a source names.
    """

    def __init__(
        self, section: Mapping[str, Any], folder: str, problems: list[Mistake], allowed: bool
    ) -> None:
        self.section, self.folder, self.problems = section, folder, problems
        self.allowed = allowed
        self.missing: dict[str, FilePath] = {}
        self.outs: dict[str, str] = {}
        self._named: set[str] = set()
        self._surveyed: dict[str, UnbuiltStore] = {}
        for key in section.get("stores", {}):
            try:
                out = _directory(place_of("", key, folder))
                other = self.outs.setdefault(out, key)
                if other != key:
                    words = f"it is the same directory as {other!r}. Remove one of them."
                    problems.append(Mistake(self._path(key), words))
            except TokenloomError as error:
                problems += told(self._path(key), error)

    def _path(self, key: str) -> str:
        return below("build.stores", key)

    def _settings(self, key: str) -> dict[str, Any]:
        """The arguments of a build: those of all stores, then its own."""
        common = {name: one for name, one in self.section.items() if name != "stores"}
        own = self.section["stores"][key]
        mine = dict(own) if isinstance(own, Mapping) else {"inputs": own}
        return {**common, **mine}

    def check(self) -> None:
        """What is wrong with inputs and tokenizers, before anything is built."""
        for out, key in self.outs.items():
            given, path, before = self._settings(key), self._path(key), len(self.problems)
            if "tokenizer" not in given:
                words = "it has no tokenizer; give one here or for all, as in tokenizer: bytes."
                self.problems.append(Mistake(path, words))
            if "inputs" not in given:
                words = "missing; what to build it from, such as corpus/*.jsonl."
                self.problems.append(Mistake(below(path, "inputs"), words))
            elif not is_store(out):
                self._check_inputs(path, given)
                if len(self.problems) == before:
                    self._survey(key)

    def _survey(self, key: str) -> None:
        """What a build would refuse before it encodes; nothing is written."""
        path, (inputs, given) = self._path(key), self._arguments(key)
        place = place_of("", key, self.folder)

        def survey(fields: Mapping[str, Any]) -> BuildPlan:
            try:
                return survey_build([one.opened for one in inputs], place.opened, fields)
            except TokenloomError as error:
                shown = place.quoted(str(error)).removeprefix("inputs[0]: ")
                raise type(error)(_quoted(shown, inputs)) from None

        plan = asked(path, survey, given, self.problems)
        if plan is not None:
            self._surveyed[_directory(place)] = unbuilt_store(plan)

    def surveyed(self, place: FilePath) -> UnbuiltStore | None:
        """What is known of a store that is not there yet; None if nothing is."""
        return self._surveyed.get(_directory(place))

    def _check_inputs(self, path: str, given: Mapping[str, Any]) -> None:
        try:
            places = input_places("inputs", given["inputs"], self.folder)
        except TokenloomError as error:
            self.problems += told(path, error, ["inputs"])
            return
        for one in places if len(places) > 1 else ():  # one alone is listed by the survey
            try:
                expand([one.opened])
            except TokenloomError as error:
                words = one.quoted(str(error)).removeprefix("inputs[0]: ")
                self.problems.append(Mistake(path, words))
        self._tokenizer(path, given)

    def _tokenizer(self, path: str, given: Mapping[str, Any]) -> Any:
        """The tokenizer as `tokenloom.build` takes it; None if there is none or it is wrong."""
        name = given.get("tokenizer")
        where = "tokenizer" if "tokenizer" in self.section else ""
        here = "build" if where else path
        try:
            found = tokenizer_place("tokenizer", name, self.folder)
            return found and resolve(found) and found
        except (TokenloomError, BindError) as error:
            words = str(error).removeprefix("tokenizer: ").replace("'module:function', ", "")
            mistake = Mistake(below(here, "tokenizer"), " ".join(words.split()))
            self.problems += [mistake] * (mistake not in self.problems)
            return None

    def expects(self, place: FilePath) -> bool:
        """Whether a store that is not there will be built; it is remembered as missing."""
        key = self.outs.get(_directory(place))
        if key is not None:
            self._named.add(key)
            self.missing[key] = place
        return key is not None

    @property
    def unused(self) -> list[str]:
        """Stores of the section that no source names."""
        idle = [key for key in self.outs.values() if key not in self._named]
        return [f"{self._path(key)}: not used; no source names it." for key in idle]

    def build(self) -> None:
        """Build the stores that are missing; one that cannot be built is told and stays so."""
        for key in list(self.missing):
            if self._built(key, self.missing[key]):
                del self.missing[key]

    def _built(self, key: str, place: FilePath) -> bool:
        path, (inputs, given) = self._path(key), self._arguments(key)
        listed = ", ".join(one.shown for one in inputs)
        log.info("%s: not there yet, so it is built from %s.", place.shown, listed)
        try:
            build_store([one.opened for one in inputs], place.opened, **given)
        except (TokenloomError, BindError) as error:
            self.problems.append(Mistake(path, _quoted(place.quoted(str(error)), inputs)))
            return False
        return True

    def _arguments(self, key: str) -> tuple[list[FilePath], dict[str, Any]]:
        """The inputs of a build and its other arguments, with paths as they are opened."""
        given = self._settings(key)
        inputs = input_places("inputs", given.pop("inputs"), self.folder)
        given["tokenizer"] = self._tokenizer(self._path(key), given)
        if "chat_template" in given:
            template = place_of("chat_template", given["chat_template"], self.folder)
            if os.path.isfile(template.opened):
                given["chat_template"] = template.opened
        return inputs, given

    def compare(self, place: FilePath, store: Store) -> None:
        """Tell where a store that is there was built with other settings than the file has."""
        key = self.outs.get(_directory(place))
        if key is None:
            return
        self._named.add(key)
        given, path = self._settings(key), self._path(key)
        recorded = store.reader.manifest.parts[-1].settings
        for name in (one for one in RECORDED if one in recorded):
            was, wanted = recorded[name], given.get(name, signature_of(build_store)[name][1])
            decided = name in DECIDED and (was is None or wanted is None)
            if was != wanted and not decided:
                found = "missing" if wanted is None else f"found {wanted!r}"
                words = f"{found}, but the store was built with {was!r}. {REMEDY}"
                self.problems.append(Mistake(below(path, name), words))
        tokenizer = self._tokenizer(path, given)
        kept = store.reader.manifest.tokenizer
        if (
            tokenizer is not None
            and kept is not None
            and resolve(tokenizer)[0].sha256 != kept.sha256
        ):
            words = f"found {given['tokenizer']!r}, but {kept.name!r} made the store. {REMEDY}"
            self.problems.append(Mistake(below(path, "tokenizer"), words))


def _directory(place: FilePath) -> str:
    """The directory of a store, the same however its path is written."""
    path = place.opened
    return path if ADDRESS.match(path) else os.path.realpath(path)


REMEDY = "Remove the store to have it built anew, or name another directory."


def _quoted(message: str, inputs: list[FilePath]) -> str:
    """A message with the paths of inputs as they were written."""
    for one in inputs:
        message = one.quoted(message)
    return message
