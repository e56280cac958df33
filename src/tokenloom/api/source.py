"""`Source`: a store inside a run, with everything that decides its rows; as JSON and as words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenloom.api.describe import FORMAT
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import unbind
from tokenloom.documents.line import Line
from tokenloom.documents.resolve import describe_choice
from tokenloom.errors import ConfigError, plural
from tokenloom.layout.kinds import kind_of
from tokenloom.layout.layout import Layout
from tokenloom.mixture.spec import Edit, MixSpec
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.shuffle import Shuffle, describe_shuffle
from tokenloom.order.spec import SourceConfig
from tokenloom.store.format import Manifest
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["Source", "check_alike", "check_tokenizers", "described", "tree", "with_known_eos"]


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

    def with_config(self, **fields: Any) -> Source:
        """A copy with other settings."""
        return replace(self, config=replace(self.config, **fields))

    def with_render(self, **fields: Any) -> Source:
        """A copy, rendered differently; the tokenizer's EOS is used if one is needed."""
        wanted = with_known_eos(unbind(self.render) | fields, self.reader)
        return replace(self, render=RenderSpec(**wanted))

    def describe(self, run: SourceRun) -> dict[str, Any]:
        """The source as plain JSON, with the numbers resolved by its run."""
        manifest, config = self.reader.manifest, self.config
        return {
            "name": run.name,
            "store": {
                "path": self.path,
                "snapshot": manifest.number,
                "digest": manifest.digest,
                "documents": manifest.documents,
                "tokens": manifest.tokens,
            },
            "choice": describe_choice(config.choice),
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
    pairs = zip(sources.values(), run.sources, strict=True)
    told = [source.describe(one) for source, one in pairs]
    changed = [unbind(edit) for edit in edits]
    if rule is None:
        return head | told[0] | ({"edits": changed} if changed else {})
    settings = {"edits": changed, "seed": rule.seed or 0, "shuffle": describe_shuffle(shuffle)}
    return head | {"mix": unbind(rule) | settings, "sources": told}


def tree(
    sources: Mapping[str, Source],
    rule: MixSpec | None,
    edits: Sequence[Edit],
    run: Run,
    cache_bytes: Sequence[int],
) -> list[str]:
    """A dataset as a tree of words: how it is mixed, what was changed, then each source."""
    lines = []
    if rule is not None:
        seed = f"seed {rule.seed or 0}"
        lines.append(f"├─ mix     {rule.rule} by {rule.cost}, stop={rule.stop}, {seed}")
    for edit in edits:
        told = {key: value for key, value in unbind(edit).items() if value and key != "at"}
        lines.append(f"├─ edit    at {edit.at:,}: {told}")
    for place, (name, source) in enumerate(sources.items()):
        inner = source.lines(run.sources[place], cache_bytes[place])
        if rule is None:
            return lines + inner
        last, weight, share = place == len(sources) - 1, rule.weights.get(name), "joins later"
        if weight is not None:
            share = f"weight {weight:g} ({weight / sum(rule.weights.values()):.1%})"
        rows = plural(run.sources[place].rows, "row")
        lines.append(f"{'└─' if last else '├─'} {name}: {share}, {rows} an epoch")
        lines += [f"{' ' if last else '│'}  {line}" for line in inner]
    return lines


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
            f"{_differing(stores[pair[0]], stores[pair[1]])}. An id may mean another "
            "token in each. Build both with one tokenizer, or pass different_tokenizers=True."
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


def with_known_eos(render: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """The fields of a rendering, with the tokenizer's EOS if one is needed and none is given."""
    if render.get("train_on_eos", True) or render.get("eos_id") is not None:
        return render
    tokenizer = reader.manifest.tokenizer
    return render | {"eos_id": tokenizer.eos if tokenizer else None}
