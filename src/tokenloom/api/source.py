"""`Source`: a store inside a run, with everything that decides its rows; as JSON and as words.

What the sources of a mix must have in common: width, look-ahead, and the meaning of an id.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenloom.api.describe import FORMAT
from tokenloom.api.specials import filler_token
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.trained import trained_count
from tokenloom.bind import unbind
from tokenloom.documents.line import Line
from tokenloom.documents.spec import SharedSplits, describe_choice
from tokenloom.errors import ConfigError, plural
from tokenloom.layout.layout import Layout
from tokenloom.mixture.assemble import MixSource
from tokenloom.mixture.spec import Edit, MixSpec
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.shuffle import Shuffle, describe_shuffle
from tokenloom.order.spec import LayoutSpec, SourceConfig, kind_of
from tokenloom.store.format import Manifest
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A source of a run.

    Attributes:
        reader: reads its store.
        path: path of the store, as the user wrote it.
        config: which rows it shows, in which order.
        layout: its rows.
        render: how its rows become arrays.
    """

    reader: Reader
    path: str
    config: SourceConfig
    layout: Layout
    render: RenderSpec = field(default_factory=RenderSpec)

    @property
    def line(self) -> Line:
        """Its documents, end to end."""
        return self.layout.line

    @property
    def special_ids(self) -> dict[str, int]:
        """Ids that its rows may hold beside those of its store, by the names of their settings."""
        found = {name: getattr(self.config.layout, name, None) for name in ("bos_id", "eos_id")}
        found["pad_id"] = self.render.pad_id
        return {name: one for name, one in found.items() if one is not None}

    def with_config(self, **fields: Any) -> Source:
        """A copy with other settings."""
        return replace(self, config=replace(self.config, **fields))

    def with_render(self, **fields: Any) -> Source:
        """A copy, rendered differently; the tokenizer's EOS is used if one is needed."""
        wanted = _with_known_eos(unbind(self.render) | fields, self.reader)
        return replace(self, render=RenderSpec(**wanted))

    def taken(self, name: str, counts: bool) -> MixSource:
        """What a mix needs of it; `counts` is whether it pays by trained tokens."""
        count = trained_count(name, self.render) if counts else None
        return MixSource(self.config, self.layout, count)

    def describe(self, run: SourceRun, shared: SharedSplits | None = None) -> dict[str, Any]:
        """The source as plain JSON, with the numbers resolved by its run.

        Args:
            run: its run.
            shared: takes splits of many parts, which several sources may name.
        """
        manifest, config = self.reader.manifest, self.config
        return {
            "name": run.name,
            "store": {
                "path": self.path,
                "snapshot": manifest.number,
                "digest": manifest.digest,
                "documents": manifest.documents,
                "tokens": manifest.tokens,
                **self.reader.opened_as,
            },
            "choice": describe_choice(config.choice, shared),
            "layout": {"kind": kind_of(config.layout), **unbind(config.layout)},
            "shuffle": describe_shuffle(run.shuffle),
            "epochs": config.epochs,
            "seed": run.seed,
            "take": config.take,
            "render": unbind(self.render),
        }

    def lines(self, run: SourceRun, cache_bytes: int) -> list[str]:
        """The source as a tree of words, a line each."""
        manifest, config, spec = self.reader.manifest, self.config, self.config.layout
        lines = [
            f"├─ store   {self.path}  {manifest.tokens:,} tokens, digest {manifest.digest[:12]}"
        ]
        if config.choice is not None:
            lines.append(f"├─ choice  {config.choice.words}, {self.line.tokens:,} tokens")
        usual = unbind(type(spec)(seq_len=spec.seq_len))
        special = {k: v for k, v in unbind(spec).items() if v != usual[k]}
        layout = ", ".join([str(spec.seq_len), *(f"{k}={v}" for k, v in special.items())])
        rows = plural(run.rows, "row")
        lines.append(f"├─ layout  {kind_of(spec)}({layout}): {rows} an epoch")
        order = describe_shuffle(run.shuffle) or {}
        fields = ", ".join(f"{k}={v}" for k, v in order.items() if k != "kind" and v is not None)
        shuffled = f"{order['kind']}({fields})" if order else "as stored"
        often = "endless" if config.epochs is None else plural(config.epochs, "epoch")
        lines.append(f"├─ order   {shuffled}, {often}, seed {run.seed}")
        needed, cached = run.working.bytes / 2**20, cache_bytes / 2**20
        lines.append(f"└─ memory  {needed:,.1f} MiB at once, {cached:,.0f} MiB cache")
        return lines


def described(
    sources: Mapping[str, Source],
    rule: MixSpec | None,
    shuffle: Shuffle | None,
    edits: Sequence[Edit],
    run: Run,
) -> dict[str, Any]:
    """A dataset as plain JSON: flat for a single source, rule and sources for a mix."""
    head = {"format": FORMAT, "order_version": ORDER_VERSION}
    shared = None if rule is None else SharedSplits()
    pairs = zip(sources.values(), run.sources, strict=True)
    told = [source.describe(one, shared) for source, one in pairs]
    changed = [unbind(edit) for edit in edits]
    if rule is None:
        return head | told[0] | ({"edits": changed} if changed else {})
    settings = {"edits": changed, "seed": rule.seed or 0, "shuffle": describe_shuffle(shuffle)}
    splits = {"splits": shared.plain} if shared is not None and shared.plain else {}
    return head | {"mix": unbind(rule) | settings, **splits, "sources": told}


def count_words(examples: int | None, seq_len: int) -> str:
    """The size of a dataset in words; None is endless."""
    if examples is None:
        return f"endless examples of {seq_len:,} tokens"
    return f"{examples:,} examples of {seq_len:,} tokens, {examples * seq_len:,} in all"


def tree(
    sources: Mapping[str, Source],
    rule: MixSpec | None,
    edits: Sequence[Edit],
    examples: Sequence[int | None],
    run: Run,
    cache_bytes: Sequence[int],
) -> list[str]:
    """A dataset as a tree of words: how it is mixed, what was changed, then each source.

    `examples` is their number without edits, then after each edit; None is endless.
    """
    lines = []
    if rule is not None:
        seed = f"seed {rule.seed or 0}"
        lines.append(f"├─ mix     {rule.rule} by {rule.cost}, stop={rule.stop}, {seed}")
    for edit, (before, after) in zip(edits, itertools.pairwise(examples), strict=True):
        changes = {key: value for key, value in unbind(edit).items() if value and key != "at"}
        length = "" if before == after else f", {_count(before)} → {_count(after)} examples"
        lines.append(f"├─ edit    at {edit.at:,}: {changes}{length}")
    shares = {} if rule is None else _shares(rule, edits)
    for place, (name, source) in enumerate(sources.items()):
        inner = source.lines(run.sources[place], cache_bytes[place])
        if rule is None:
            return lines + inner
        last, rows = place == len(sources) - 1, plural(run.sources[place].rows, "row")
        lines.append(f"{'└─' if last else '├─'} {name}: {shares[name]}, {rows} an epoch")
        lines += [f"{' ' if last else '│'}  {line}" for line in inner]
    return lines


def _count(examples: int | None) -> str:
    return "endless" if examples is None else f"{examples:,}"


def _shares(rule: MixSpec, edits: Sequence[Edit]) -> dict[str, str]:
    """The weight and share of each source after the last edit, in words."""
    weights, since, ended = dict(rule.weights), 0, {}
    for edit in edits:
        if rule.rule == "levanter":  # a stage names all that is drawn from
            weights = dict.fromkeys(weights, 0.0)
        weights |= edit.weights
        for name in edit.remove:
            weights.pop(name)
            ended[name] = f"removed at {edit.at:,}"
        since = edit.at if edit.weights or edit.remove else since
    whole, when = sum(weights.values()), f" from {since:,} on" if since else ""
    live = {name: f"weight {one:g} ({one / whole:.1%}){when}" for name, one in weights.items()}
    return ended | live


def usual_render(spec: LayoutSpec, reader: Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a rendering: those given, and defaults that depend on store and layout."""
    usual = {
        "pad_id": filler_token(reader),
        "label_layout": "shifted" if spec.lookahead else "aligned",
    }
    return _with_known_eos(usual | dict(given), reader)


def _with_known_eos(render: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """The fields of a rendering, with the tokenizer's EOS if one is needed and none is given."""
    if render.get("train_on_eos", True) or render.get("eos_id") is not None:
        return render
    tokenizer = reader.manifest.tokenizer
    return render | {"eos_id": tokenizer.eos if tokenizer else None}


def check_alike(sources: Mapping[str, Source]) -> None:
    """Refuse sources whose rows do not fit into one batch."""
    for what, found in (
        ("seq_len", {name: one.layout.seq_len for name, one in sources.items()}),
        ("cells of a row", {name: one.layout.width for name, one in sources.items()}),
        ("label_layout", {name: one.render.label_layout for name, one in sources.items()}),
    ):
        if len(set(found.values())) > 1:
            raise ConfigError(f"mix: sources differ in {what}: {found}. Give all of them the same.")


def check_tokenizers(where: str, sources: Mapping[str, Source]) -> None:
    """Refuse sources in which an id means different tokens.

    Stores compare the identities of their tokenizers; one without an identity (ready-made ids, a
    function) can only be compared by its vocabulary size.
    """
    stores = {name: source.reader.manifest for name, source in sources.items()}
    first: dict[str, str] = {}  # identity → the first source that has it
    for name, one in stores.items():
        first.setdefault(one.tokenizer.identity if one.tokenizer else "", name)
    unnamed = first.pop("", None)
    pair = list(first.values())[:2]
    if len(pair) < 2 and unnamed is not None:
        size = stores[unnamed].vocab_size
        others = [name for name, one in stores.items() if one.vocab_size != size]
        pair = [unnamed, *others[:1]]
    if len(pair) == 2:
        raise ConfigError(
            f"{where}: sources {pair[0]!r} and {pair[1]!r} have different tokenizers: "
            f"{_differing(stores[pair[0]], stores[pair[1]])}. The same id may "
            "stand for different tokens. Build both with one tokenizer, or pass "
            "different_tokenizers=True."
        )


def _differing(one: Manifest, other: Manifest) -> str:
    """How two tokenizers differ, in words."""
    told = [_tokenizer(manifest) for manifest in (one, other)]
    a, b = one.tokenizer, other.tokenizer
    if told[0] == told[1] and a is not None and b is not None:
        pairs = {role: (getattr(a, role), getattr(b, role)) for role in ("bos", "eos", "pad")}
        apart = [f"{role} {x} and {y}" for role, (x, y) in pairs.items() if x != y]
        return f"both are {told[0]}, with {', '.join(apart) or 'other tokens for some ids'}"
    return " and ".join(told)


def _tokenizer(manifest: Manifest) -> str:
    record = manifest.tokenizer
    name = "no tokenizer" if record is None else f"{record.name} ({record.kind})"
    return f"{name} with {manifest.vocab_size:,} ids"
