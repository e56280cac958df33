"""The file of a run: any dataset as the settings that a person would write.

One idea: only what differs from its default is written, and the stores are pinned by their digests,
so that the file gives the same run or says why it cannot. `tokenloom.load` of it has the same
fingerprints, whatever the run was made of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.documents import Documents
from tokenloom.api.mix import mix
from tokenloom.api.source import Source, usual_render
from tokenloom.arguments import expanded, near_misses, place
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import unbind
from tokenloom.documents.spec import Choice, SelectSpec, SplitSpec
from tokenloom.errors import ConfigError, StoreExists
from tokenloom.evaluate.evaluation_sets import content_hash
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.mixture.spec import Edit, MixSpec, usual_cost
from tokenloom.order.shuffle import BlockShuffle, EraShuffle, FullShuffle, Shuffle, describe_shuffle
from tokenloom.order.spec import MAIN, kind_of
from tokenloom.remote.uploads import write_whole
from tokenloom.runfiles.building import ADDRESS
from tokenloom.runfiles.schema import NONE, signature_of
from tokenloom.store.reader import Reader


@near_misses("save")
def save(run: Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the run file of a run, from which `tokenloom.load` makes it again.

    Args:
        run: any dataset.
        path: the file, ``.yaml``, ``.yml`` or ``.json``, or its URL. Relative paths of stores are
            written relative to it.
        overwrite: replace a file that is there.

    Raises:
        StoreExists: there is a file, and `overwrite` is False.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     tl.save(run, folder + "/run.yaml")
    ...     tl.load(folder + "/run.yaml") == run
    True
    """
    name, target = os.fspath(path), place("path", path)
    suffix = PurePath(target.name).suffix.lower()
    if suffix not in (".yaml", ".yml", ".json"):
        raise ConfigError(f"path: found {name!r}, allowed: a name that ends in .yaml or .json.")
    plain = run_mapping(dataset_of("save", run), folder=os.path.dirname(name))
    is_json = suffix == ".json"
    text = json.dumps(plain, indent=1, ensure_ascii=False) + "\n" if is_json else dumped(plain)
    if not write_whole(target, text.encode(), new=not overwrite):
        raise StoreExists(f"{name}: it is there already. Pass overwrite=True to replace it.")


def dumped(plain: Mapping[str, Any]) -> str:
    """Settings as YAML: sections as blocks, what is inside them in one line each."""
    import yaml

    return yaml.safe_dump(
        dict(plain), sort_keys=False, default_flow_style=None, width=96, allow_unicode=True
    )


def run_mapping(run: Dataset, *, folder: str | None = None) -> dict[str, Any]:
    """The settings of a run, as a run file has them; `tokenloom.from_config` takes them back.

    Args:
        run: any dataset.
        folder: what relative paths shall be relative to; None: the working directory.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.runfiles import run_mapping
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
    ...     made = run_mapping(store.windows(2).shuffle().epochs(None).seed(7))
    >>> made["seed"], made["seq_len"]
    (7, 2)
    >>> {key: one for key, one in made["sources"]["main"].items() if key != "store"}
    {'windows': {}, 'shuffle': 'full', 'epochs': 'endless'}
    """
    found: dict[str, Any] = {}
    rule, alone = run.rule, run.rule is None
    first = next(iter(run.run.sources))
    seed = first.seed if rule is None else rule.seed
    if seed:
        found["seed"] = seed
    found["seq_len"] = run.seq_len
    found["sources"] = {
        name: _source(source, one, folder, alone=alone, seq_len=run.seq_len)
        for (name, source), one in zip(run.sources.items(), run.run.sources, strict=True)
    }
    take = next(iter(run.sources.values())).config.take if rule is None else rule.take
    if rule is not None:
        found["mix"] = _mix(rule, run._shuffle)
    if take is not None:
        found["take"] = take
    # all that Levanter's rule knows are stages
    count = len(run.edits) if rule is not None and rule.rule == "levanter" else run._stages
    stages, edits = run.edits[:count], run.edits[count:]
    if stages:
        found["mix"]["stages"] = {one.at: _plain(unbind(one.weights)) for one in stages}
    if edits:
        found["edits"] = [_edit(one, folder) for one in edits]
    file = run.file
    if file is not None and file.loader:
        found["loader"] = _plain(file.loader)
    if file is not None and file.evaluate:
        found["evaluate"] = {
            name: _source(
                one.sources[MAIN], one.run.sources[0], folder, alone=True, seq_len=run.seq_len
            )
            | ({"seed": one.run.sources[0].seed} if one.run.sources[0].seed else {})
            | {"content": content_hash(one)}
            for name, one in file.evaluate.items()
        }
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _source(
    source: Source, run: Any, folder: str | None, *, alone: bool, seq_len: int
) -> dict[str, Any]:
    """The settings of a source, without what the whole file says: the frame, or a lone seed."""
    manifest, config = source.reader.manifest, source.config
    found: dict[str, Any] = {
        "store": _store(source.path, manifest.number, manifest.digest, folder)
        | _said(source.reader),
        **_choice(config.choice),
    }
    kind, spec = kind_of(config.layout), config.layout
    usual: dict[str, Any] = {}
    if isinstance(spec, SpliceSpec):
        fields, usual = _splice(spec), {"position_scheme": "absolute"}
    elif isinstance(spec, PackSpec):
        fields, usual = _pack(spec), {"eos_id": spec.eos_id}
    else:
        fields = unbind(spec)
        if spec.overlap == int(spec.lookahead):  # its default
            del fields["overlap"]
    fields = _different(getattr(Documents, kind), fields)
    if spec.seq_len == seq_len:
        del fields["seq_len"]
    found[kind] = spec.seq_len if set(fields) == {"seq_len"} else fields
    render = RenderSpec(**usual_render(spec, source.reader, usual))
    changed = {
        name: NONE[name] if one is None else one
        for name, one in unbind(source.render).items()
        if one != getattr(render, name)
    }
    if changed:
        found["render"] = changed
    streams = isinstance(spec, SpliceSpec) and spec.sampler == "stream"
    if run.shuffle is not None or streams:
        found["shuffle"] = _shuffle(run.shuffle)
    if config.epochs != 1 or streams:
        found["epochs"] = NONE["epochs"] if config.epochs is None else config.epochs
    if config.seed is not None and not alone:
        found["seed"] = config.seed
    return found


def _store(path: str, snapshot: int, digest: str, folder: str | None) -> dict[str, Any]:
    """A store by path and content; the path relative to a folder unless it is absolute."""
    real = os.path.expanduser(expanded("store", path))
    if folder is not None and not os.path.isabs(real) and not ADDRESS.match(real):
        if ADDRESS.match(folder):
            raise ConfigError(
                f"store: found {path!r}, a path of this machine, but the run file is to be in a "
                "bucket, and its paths are relative to it. Copy the store there, or write the run "
                "file to this machine."
            )
        path = os.path.relpath(path, folder or os.curdir)
    return {"path": path, "snapshot": snapshot, "digest": digest}


def _said(reader: Reader) -> dict[str, Any]:
    """What was said about foreign files when they were opened."""
    told = reader.opened_as
    return {**told.get("foreign", {}), **{k: v for k, v in told.items() if k == "identity"}}


def _choice(choice: Choice | None) -> dict[str, Any]:
    selections: list[dict[str, Any]] = []
    while isinstance(choice, SelectSpec):
        fields = {k: v for k, v in unbind(choice).items() if k != "within"}
        selections.insert(0, _different(SelectSpec, fields))
        choice = choice.within
    found: dict[str, Any] = {}
    if isinstance(choice, SplitSpec):
        shares = dict(zip(choice.names, choice.shares, strict=True))
        found["split"] = {"shares": shares, "part": choice.part, "by": choice.by}
        found["split"] |= {"seed": choice.seed} if choice.seed else {}
    if selections:
        found["select"] = selections[0] if len(selections) == 1 else selections
    return found


def _different(function: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults of the function that takes them."""
    usual = {name: default for name, (_, default) in signature_of(function).items()}
    kept = {n: one for n, one in fields.items() if n == "seq_len" or one != usual.get(n)}
    return {name: _plain(one) for name, one in kept.items() if one is not None}


def _pack(spec: PackSpec) -> dict[str, Any]:
    fields: dict[str, Any] = unbind(spec)
    for name in ("bos", "eos"):
        if fields[f"{name}_id"] is not None:
            fields[f"add_{name}"] = True
    return fields


def _splice(spec: SpliceSpec) -> dict[str, Any]:
    fields: dict[str, Any] = unbind(spec)
    fields["bos"], fields["eos_before"] = fields.pop("bos_id"), fields.pop("eos_id")
    schedule = fields.pop("content_schedule")
    if schedule:
        fields["content_length"] = dict(schedule)
    for name in ("doc_schedule", "doc_growth"):
        fields[name] = dict(fields[name]) or None
    fields |= dict.fromkeys(_resolved(spec))
    usual = SpliceSpec(seq_len=spec.seq_len)
    for name in ("edge", "fill"):
        if fields[name] == getattr(usual, name):
            fields[name] = None
    return fields


def _resolved(spec: SpliceSpec) -> list[str]:
    """Fields that have the value which follows from the others."""
    names = ("sampler", "balance_measure")
    try:
        usual = replace(spec, sampler=None, balance_measure=None)
    except ConfigError:  # the others do not go with the default
        return []
    return [name for name in names if getattr(spec, name) == getattr(usual, name)]


def _shuffle(shuffle: Shuffle | None) -> Any:
    """A shuffle as a word, a number, or its fields."""
    if shuffle is None:
        return NONE["shuffle"]
    if shuffle == FullShuffle():
        return "full"
    if isinstance(shuffle, EraShuffle) and shuffle == EraShuffle(length=shuffle.length):
        return shuffle.length
    plain = describe_shuffle(shuffle) or {}
    if isinstance(shuffle, BlockShuffle):
        plain = _different(BlockShuffle, {k: v for k, v in plain.items() if k != "kind"})
        return plain or "block"
    return plain


def _mix(rule: MixSpec, shuffle: Shuffle | None) -> dict[str, Any]:
    fields: dict[str, Any] = unbind(rule)
    if all(weight == 1 for weight in rule.weights.values()):
        del fields["weights"]
    for name in ("seed", "take"):
        del fields[name]
    if rule.cost == usual_cost(rule.rule):
        del fields["cost"]
    found = _different(mix, {name: one for name, one in fields.items() if one != {}})
    return found | ({"shuffle": _shuffle(shuffle)} if shuffle is not None else {})


def _edit(edit: Edit, folder: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"at": edit.at}
    for name in ("weights", "add", "remove", "quarantine"):
        one = _plain(unbind(getattr(edit, name)))
        if one:
            found[name] = one
    if edit.append:
        found["append"] = {
            name: _store(one.path, one.snapshot, one.digest, folder)
            for name, one in edit.append.items()
        }
    return found
