"""What the sources of a mix must have in common: width, look-ahead, and the meaning of an id."""

from __future__ import annotations

from collections.abc import Mapping

from tokenloom.api.source import Source
from tokenloom.errors import ConfigError
from tokenloom.store.format import Manifest

__all__ = ["check_alike", "check_tokenizers"]


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
