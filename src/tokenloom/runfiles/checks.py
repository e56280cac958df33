"""What is wrong with the settings of a section, known before a store is opened.

One idea: the records that settings become (`PackSpec`, `RenderSpec`, `MixSpec` …) check themselves,
so a section is checked by making its records from it, with stand-ins for what only a store knows
(its special tokens).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tokenloom.api.documents import Documents
from tokenloom.api.mix import mix
from tokenloom.api.source import usual_render
from tokenloom.api.specials import check_used, named_token, special
from tokenloom.api.splice import splice_settings
from tokenloom.arguments import check_names, field_names
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import BindError
from tokenloom.documents.spec import SelectSpec, SplitSpec
from tokenloom.errors import ConfigError, choices
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.windows import WindowsSpec
from tokenloom.mixture.spec import Edit, MixSpec, usual_cost
from tokenloom.order.shuffle import Shuffle, rebuild_shuffle
from tokenloom.order.spec import LayoutSpec
from tokenloom.random.keys import check_seed
from tokenloom.runfiles.building import UnbuiltStore
from tokenloom.runfiles.reading import Mistake, asked, is_known
from tokenloom.runfiles.schema import LAYOUTS, SHUFFLES, int_keyed, signature_of
from tokenloom.runfiles.text import below

WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")


Given = Mapping[str, Any]


def check_source(path: str, given: Given, seq_len: int | None, problems: list[Mistake]) -> None:
    """What is wrong with a source, as far as its store need not be known."""
    if "store" not in given and not is_known(below(path, "store"), problems):
        problems.append(Mistake(below(path, "store"), "missing. Give the path of a store."))
    kind, layout = layout_of(path, given, seq_len, problems)
    if kind:
        asked(below(path, kind), CHECKS[kind], layout, problems)
    asked(below(path, "render"), _render, given.get("render", {}), problems)
    if "split" in given:
        asked(below(path, "split"), split_of, given["split"], problems)
    chosen = given.get("select", ())
    for number, one in enumerate([chosen] if isinstance(chosen, Mapping) else chosen):
        where = below(path, "select")
        where = where if isinstance(chosen, Mapping) else below(where, number)
        asked(where, lambda fields: SelectSpec(**fields), one, problems)
    asked(path, _order, {k: v for k, v in given.items() if k in ("shuffle", "seed")}, problems)
    if isinstance(given.get("epochs"), int) and given["epochs"] < 0:
        words = f"found {given['epochs']}, allowed: 0 or more, or endless."
        problems.append(Mistake(below(path, "epochs"), words))


def layout_of(
    path: str, given: Given, seq_len: int | None, problems: list[Mistake]
) -> tuple[str, dict[str, Any]]:
    """The layout of a source and its arguments; an empty name if there is not exactly one."""
    found = [name for name in LAYOUTS if name in given]
    if len(found) != 1:
        refused = [name for name in LAYOUTS if is_known(below(path, name), problems)]
        if len(found) > 1:
            words = f"found {' and '.join(found)}; a source has one layout. Give one of them."
            problems.append(Mistake(path, words))
        elif path.startswith("evaluate.") and not refused:
            words = (
                "it has no layout, so its rows hold one document each, of seq_len tokens, but the "
                "file has no seq_len at the top. Give it there, as in seq_len: 2048, or a layout "
                "here."
            )
            problems += [Mistake(path, words)] * (not is_known("seq_len", problems))
        elif not refused:
            allowed = ", ".join(LAYOUTS)
            words = f"it has no layout, allowed: one of {allowed}, such as pack: 2048."
            problems.append(Mistake(path, words))
        return "", {}
    (kind,) = found
    whole = given[kind]
    fields = {"seq_len": whole} if isinstance(whole, int) else dict(whole)
    here = below(path, kind)
    fields = int_keys(here, fields, getattr(Documents, kind), problems)
    if "seq_len" not in fields:
        if seq_len is None:
            if not (is_known(below(here, "seq_len"), problems) or is_known("seq_len", problems)):
                words = "missing; the tokens of a frame. Give it here, or once as seq_len."
                problems.append(Mistake(below(here, "seq_len"), words))
            return "", {}
        fields["seq_len"] = seq_len
    return kind, fields


def int_keys(
    path: str, fields: Given, function: Callable[..., Any], problems: list[Mistake]
) -> dict[str, Any]:
    """Settings in which the keys of schedules are integers; JSON and TOML have text keys only."""
    found = dict(fields)
    for name in int_keyed(function) & found.keys():
        if not isinstance(found[name], Mapping):
            continue
        table = {}
        for key, one in found[name].items():
            if WHOLE.fullmatch(str(key)):
                table[int(key)] = one
            else:
                where = below(below(path, name), str(key))
                words = f"found the key {key!r}, allowed: an integer, 0 or more."
                if re.fullmatch("0[0-9]+", str(key)):
                    same = str(key).lstrip("0") or "0"
                    also = f" beside {same!r}" if same in found[name] else ""
                    words = f"found the key {key!r}{also}. Write it without leading zeros."
                problems.append(Mistake(where, words))
        found[name] = table
    return found


# -- the records of each section -----------------------------------------------------------------
def _usual(function: Callable[..., Any], given: Given) -> dict[str, Any]:
    """All arguments of a function: those given, else their defaults."""
    return {name: default for name, (_, default) in signature_of(function).items()} | dict(given)


def _render(given: Given, spec: LayoutSpec | None = None, store: UnbuiltStore | None = None) -> Any:
    """Given fields of a rendering, raise if they are wrong; without a store, it has every token."""
    fields = {name: one for name, one in given.items() if one is not None}
    if spec is None or store is None:
        return RenderSpec(**({"eos_id": 0} | fields))
    return RenderSpec(**usual_render(spec, cast(Any, store), fields))


def _of(spec: type, given: Given) -> dict[str, Any]:
    return {name: given[name] for name in field_names(spec) if name in given}


Checked = tuple[LayoutSpec, RenderSpec]


def _windows(given: Given, store: UnbuiltStore | None = None, path: str = "") -> Checked:
    fields = _of(WindowsSpec, given)
    fields.setdefault("overlap", int(given.get("lookahead", False)))
    spec = WindowsSpec(**fields | {"align": int(given.get("align", 0))})
    return spec, _render(_of(RenderSpec, given), spec, store)


def _pack(given: Given, store: UnbuiltStore | None = None, path: str = "") -> Checked:
    every = _usual(Documents.pack, given)
    specials = {}
    for name in ("bos", "eos"):
        number = every[f"{name}_id"]
        if number is None and every[f"add_{name}"]:
            strict = every["strict_special_tokens"]
            number = 0 if store is None else special(cast(Any, store), path, name, strict=strict)
        specials[f"{name}_id"] = number if every[f"add_{name}"] else None
    spec = PackSpec(**_of(PackSpec, given) | specials)
    render = _of(RenderSpec, given)
    names = ("add_bos", "bos_id", "add_eos", "eos_id")
    check_used(render, *(every[name] for name in names))
    return spec, _render(render, spec, store)


def _splice(given: Given, store: UnbuiltStore | None = None, path: str = "") -> Checked:
    every = _usual(Documents.splice, given)
    eos: int | None = 0
    for name in ("bos", "eos_before"):
        wanted = every[name]
        every[name] = None if store is None else named_token(cast(Any, store), path, name, wanted)
    if store is not None:
        eos = store.manifest.tokenizer and store.manifest.tokenizer.eos
    seq_len = every.pop("seq_len")
    spec, render = splice_settings(seq_len, eos=eos, **every)
    return spec, _render(render, spec, store)


CHECKS: dict[str, Callable[..., Checked]] = {"windows": _windows, "pack": _pack, "splice": _splice}


def split_of(given: Given) -> SplitSpec:
    """The part of a split: shares by name, and which of them."""
    for name in ("shares", "part"):
        if name not in given:
            raise ConfigError(
                f"{name}: missing. Write it as in shares: {{train: 0.9, held: 0.1}}, part: …"
            )
    shares, part = given["shares"], given["part"]
    if part not in shares:
        raise ConfigError(f"part: found {part!r}, allowed: {choices(part, shares)}")
    return SplitSpec.all_of(shares, given.get("by", "id"), given.get("seed", 0))[part]


def shuffle_of(given: Any, path: str = "shuffle") -> Shuffle | None:
    """The shuffle of a word, a number, true or false, or fields.

    >>> shuffle_of("full"), shuffle_of("none"), shuffle_of(1024).length
    (FullShuffle(perm_type='feistel'), None, 1024)
    """
    if isinstance(given, str):
        if given not in SHUFFLES:
            raise ConfigError(
                f"{path}: found {given!r}, allowed: the rows of an era, fields such as "
                f"{{window_blocks: 8}}, {choices(given, SHUFFLES)}"
            )
        given = None if given == "none" else {"kind": given}
    try:
        return rebuild_shuffle(given, path=path)
    except BindError as error:  # a record names its fields after itself, or by themselves
        text = str(error).replace(": block_shuffle.", ".").replace(": perm_type:", ".perm_type:")
        raise ConfigError(text) from None


def _order(given: Given) -> None:
    if "shuffle" in given:
        shuffle_of(given["shuffle"])
    if "seed" in given:
        check_seed(given["seed"])


def check_mix(settings: Given, sources: Iterable[str], problems: list[Mistake]) -> None:
    """What is wrong with the rule, the stages, the edits and the seed of a run."""
    names, given = list(sources), int_keys("mix", settings.get("mix", {}), mix, problems)
    asked("mix", lambda fields: _mix(fields, names), given, problems)
    if given.get("stop") == "all_exhausted" and not given.get("max_epochs"):
        for name, one in settings.get("sources", {}).items():
            if one.get("epochs", 1) is None:
                words = f"found all_exhausted, but source {name!r} is endless. Give it epochs."
                problems.append(Mistake("mix.stop", words))
    top = {name: settings[name] for name in ("seed", "take") if name in settings}
    asked("", _top, top, problems)
    for number, one in enumerate(settings.get("edits", ())):
        plain = {name: value for name, value in one.items() if name not in ("append",)}
        asked(below("edits", number), _edit, plain, problems)
        for key in ("weights", "add", "remove", "append"):
            where = below(below("edits", number), key)
            check = functools.partial(_named, one.get(key, ()), names)
            asked(where, check, {}, problems)


def _top(given: Given) -> None:
    if "seed" in given:
        check_seed(given["seed"])
    take = given.get("take")
    if isinstance(take, Mapping) and len(take) != 1:
        raise ConfigError(f"take: found {dict(take)}, allowed: examples or tokens, one of them.")
    found = take if isinstance(take, int) else next(iter((take or {"examples": 0}).values()))
    if found < 0:
        raise ConfigError(f"take: found {found}, allowed: 0 or more.")


def _named(found: Any, names: list[str], _: Given) -> None:
    for name in found:
        if name not in names:
            raise ConfigError(f"no source named {name!r}. Sources: {choices(name, names)}")


def _edit(given: Given) -> None:
    fields = {name: one for name, one in given.items() if name != "different_tokenizers"}
    if "at" not in fields:
        raise ConfigError("at: missing. Give the first example that may change.")
    Edit(**fields)


def _mix(given: Given, names: list[str]) -> None:
    if "shuffle" in given:
        shuffle_of(given["shuffle"])
    for key in ("weights", "initial", "max_epochs"):
        if isinstance(given.get(key), Mapping):
            check_names(key, given[key], names)
    for at, weights in given.get("stages", {}).items():
        try:
            check_names(f"stages.{at}", weights, names)
            Edit(at=at, weights=weights)
        except ConfigError as error:
            text = str(error)
            raise ConfigError(
                text if text.startswith("stages") else f"stages.{at}.{text}"
            ) from None
    fields = _of(MixSpec, given)
    fields.setdefault("cost", usual_cost(given.get("rule")))
    MixSpec(**{"weights": dict.fromkeys(names, 1.0) if names else {"main": 1.0}} | fields)
