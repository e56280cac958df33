"""How the package refuses: every `raise`, its class and its message, read without running anything.

One idea: an error is of one tree (`tokenloom.errors`), or keeps a contract of Python that a caller
relies on (`len`, indices, `next`), or never leaves the package. Its message names the place, the
value found, and what is allowed or what to do. Each rule is a function: a tree of sources → what
breaks it, as sentences, like those of `rules`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree import Tree

ROOT = "TokenloomError"

# exceptions of Python that a caller relies on → functions that may raise them; empty: all
CONTRACTS = {
    "IndexError": (),  # an index outside of its range, and container.pop() of nothing
    "StopIteration": ("__next__",),
    "AttributeError": ("__getattr__",),
    "KeyError": ("__getitem__", "_column"),
    "TypeError": (
        *("__len__", "__getitem__", "__reduce_ex__", "_length"),
        *("_wanted", "_index", "_indices", "_all_integers", "triples"),  # of what is no index
        *("_refuse_endless", "_shuffled"),  # of what has no length, as len() does
    ),
    "MemoryError": ("__init__",),
}

# classes that carry a reason inside the package → who makes an error of the tree of it
CARRIERS = {
    "BindError": "api.rebuild, runfiles.problems and streams.state: all problems of a mapping",
    "BadRecord": "ingest.shards: with the file and the record, or on_error='skip'",
    "BadChat": "ingest.encode: as BadRecord",
    "TemplateFailed": "tokenizer.chat.conversation: as BadChat",
    "_TooLong": "ingest.records: a finding of one record",
    "_Fatal": "ingest.encode: a finding of one block",
    "_Disagreement": "ingest.shards: encode again with the reference",
    "argparse.ArgumentTypeError": "argparse: with the name of the option",
    "yaml.constructor.ConstructorError": "runfiles.text: with the name of the file",
    "jinja2.exceptions.SecurityError": "tokenizer.chat.sandbox: as TemplateFailed",
    "jinja2.exceptions.TemplateError": "tokenizer.chat.sandbox: as TemplateFailed",
    "zstandard.ZstdError": "store.shard: as StoreCorrupt",
}

# bare exceptions that never leave the package: (module, function) → who catches them
CAUGHT = {
    ("arguments", "mapping"): "itself: as ConfigError",
    ("arguments", "import_reference"): "its callers: as ConfigError with the option",
    ("cli.judging.verdicts", "_indices_in"): "read_indices: as InputError with the path",
    ("documents.select", "choose"): "nobody: a mistake of ours, not of a caller",
    ("ingest.encode", "_plain"): "_metadata_line: as BadRecord",
    ("ingest.records", "_parse_float"): "json: as a finding of the record",
    ("ingest.records", "_refuse_constant"): "json: as a finding of the record",
    ("ingest.skips", "read_skips"): "itself: as StoreCorrupt",
    ("ingest.spool", "_plain"): "spool: as InputError with the record",
    ("ingest.spool", "record_of"): "itself: it reads in another way",
    ("loader.loss_files", "_integer"): "its callers: as InputError with the line",
    ("order.schedule", "_integer"): "_entries: as ConfigError",
    ("random.permute", "hash_sorted"): "nobody: permutation() chooses another for larger n",
    ("remote.backends", "_info"): "Client: as StoreNotFound with the URL, or as no object",
    ("remote.backends", "_within"): "Client: asked again, then as StoreError with the URL",
    ("remote.backends", "put"): "Client: as StoreError with the URL",
    ("remote.disk_cache", "put"): "itself: the piece is not kept",
    ("remote.disk_cache", "_has_lock"): "put and _claim: the piece is not kept, or not claimed",
    ("remote.client", "create"): "Client: asked again, then as StoreError with the URL",
    ("remote.client", "ask"): "Client: asked again, then as StoreError with the URL",
    ("runfiles.text", "_bytes_of"): "tokenloom.load documents it, as for a file that is missing",
    ("store.format", "_require"): "read_manifest and read_shard: as StoreCorrupt",
    ("store.format", "read_json"): "read_manifest and read_shard: as StoreCorrupt",
    ("store.format", "_refuse_constant"): "json: as StoreCorrupt",
    ("store.metadata", "__init__"): "_guarded: as StoreCorrupt",
    ("store.metadata", "_read"): "_guarded: as StoreCorrupt",
    ("store.metadata", "_decompress"): "_guarded: as StoreCorrupt",
    ("store.plan_cache", "read"): "itself: the plan is worked out again",
    ("store.plan_cache", "_opened"): "its callers: the plan is worked out again",
    ("streams.samples", "to_plain"): "json: as StateError",
    ("streams.samples", "revived"): "its callers: as StateError",
    ("streams.samples", "_array"): "revived: as StateError",
    ("testing.faulty", "read"): "nobody: a fault on purpose, for tests",
}

# messages that are completed by who catches them, or that mirror those of the compiled loops
PARTS = {
    "batch.cells": "internal checks, the same as those of the compiled loop",
    "tokenizer.fast": "reasons for the reference encoder; choose_engine puts them into a sentence",
    "tokenizer.guard": "the same",
    "runfiles.checks._named": "runfiles.problems puts the place before it",
    "tokenizer.find": "reasons of one way to find a tokenizer; find lists them all",
}


@dataclass(frozen=True)
class Refusal:
    """One `raise`.

    Attributes:
        module, function: where it is.
        line: its line.
        kind: name of the class or function that makes the exception; "" if it is raised again.
        is_made: whether it is made there, by a call.
    """

    module: str
    function: str
    line: int
    kind: str
    is_made: bool

    @property
    def where(self) -> str:
        return f"{self.module}:{self.line}"


@dataclass(frozen=True)
class Read:
    """What one module says about errors; read once, since most modules are in every tree.

    Attributes:
        raised: every `raise`.
        bases: classes and what they derive from.
        returned: functions and what they say they return.
        calls: (function it is in, line, what is called, its first argument as text).
    """

    raised: tuple[Refusal, ...]
    bases: dict[str, list[str]]
    returned: dict[str, set[str]]
    calls: tuple[tuple[str, int, str, str], ...]


@functools.cache
def _read(module: str, source: str) -> Read:
    raised, bases, calls = [], {}, []
    returned: dict[str, set[str]] = {}
    for function, node in _inside(ast.parse(source), ""):
        if isinstance(node, ast.Raise):
            call = node.exc if isinstance(node.exc, ast.Call) else None
            made = call.func if call else node.exc
            name = "" if made is None else ast.unparse(made)
            raised.append(Refusal(module, function, node.lineno, name, call is not None))
        elif isinstance(node, ast.ClassDef):
            bases[node.name] = [ast.unparse(base) for base in node.bases]
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            returned.setdefault(node.name, set()).add(ast.unparse(node.returns))
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func)[0].isupper():
            name = ast.unparse(node.func)
            words = node.args[-1] if name == "Mistake" else node.args[0]
            calls.append((function, node.lineno, name, text_of(words)))
    return Read(tuple(raised), bases, returned, tuple(calls))


def _inside(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """(function it is in, node) of everything."""
    for child in ast.iter_child_nodes(node):
        here = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield here, child
        yield from _inside(child, here)


def _all(tree: Tree) -> list[Read]:
    return [_read(module, source) for module, source in tree.sources.items()]


def refusals(tree: Tree) -> list[Refusal]:
    """Every `raise` of the package."""
    return [one for module in _all(tree) for one in module.raised]


def tree_of_errors(tree: Tree) -> dict[str, list[str]]:
    """Classes of the package that are of the tree → their bases."""
    bases = {name: above for module in _all(tree) for name, above in module.bases.items()}
    known = {ROOT}
    while more := {name for name, above in bases.items() if known & set(above)} - known:
        known |= more
    return {name: bases[name] for name in known if name in bases}


def makers(tree: Tree) -> dict[str, set[str]]:
    """Functions of the package by name → what they say they return."""
    found: dict[str, set[str]] = {}
    for module in _all(tree):
        for name, kinds in module.returned.items():
            found.setdefault(name, set()).update(kinds)
    return found


def wrong_classes(tree: Tree) -> list[str]:
    """14. A `raise` is of the tree, keeps a contract of Python, or never leaves the package."""
    errors, made = tree_of_errors(tree), makers(tree)
    right = {*errors, *CARRIERS, "SystemExit"}
    wrong = []
    for one in refusals(tree):
        name = one.kind.split(".")[-1]
        if not one.is_made and not one.kind[:1].isupper():
            continue  # raised again
        if one.kind in right or name in right or made.get(name, set()) & right:
            continue
        contract = CONTRACTS.get(one.kind)
        if contract == () or (contract and one.function in contract):
            continue
        if (one.module, one.function) in CAUGHT or one.module.startswith("testing."):
            continue
        if one.kind in RAISED_AGAIN:
            continue
        wrong.append(f"{one.where} ({one.function}) raises {one.kind}: it is not of the tree")
    return wrong


# exceptions whose class is known only when they are made again
RAISED_AGAIN = {"type(error)", "getattr(errors, header['error'])"}


def stale_exceptions(tree: Tree) -> list[str]:
    """14. What is listed here as an exception from the rule is still there."""
    found = refusals(tree)
    places = {(one.module, one.function) for one in found}
    kinds = {one.kind for one in found} | {one.kind.split(".")[-1] for one in found}
    kinds |= {kind for returned in makers(tree).values() for kind in returned}
    wrong = [f"{module}.{function} raises nothing" for module, function in CAUGHT.keys() - places]
    wrong += [f"{kind} is never raised" for kind in CARRIERS.keys() - kinds]
    known = {*tree.sources, *(f"{module}.{function}" for module, function in places)}
    return wrong + [f"{name}: it is not there" for name in PARTS.keys() - known]


# -- messages --------------------------------------------------------------------------------------

PLACE = re.compile(r"\{|(?:(?!\. )[^:{}]|\{[^{}]*\}){1,120}?: ")  # before the first sentence ends

VALUE = re.compile(
    r"\{|\b(missing|found|no|none|nothing|without|not|neither|endless|empty|another|beside)\b", re.I
)

VERBS = (
    "add allow ask attach build call change check choose clean close compare convert copy cut|"
    "delete download drop evaluate fetch fix free give import increase install iterate keep leave|"
    "list load log look lower make mend mix move name open pass point put raise read reduce relax|"
    "remove rename report request resize restore resume run save say see select set shorten|"
    "shuffle split start stop take train try turn unpack update use wait write"
).replace(" ", "|")

WAY_OUT = re.compile(
    r"(?<!not )\ballowed\b|\bdid you mean\b|choices\(|\bmust be\b|`tokenloom"
    rf"|(?:[.;:,)}}] |\n|\b(?:or|and|then|first) )(?:{VERBS})\b"
    # a part that says it: what is put there is a sentence of that kind
    r"|\{(?:\w+\.)*_?(?:advice|hint|remedy|what_to_do|todo|why|allowed|instead|way_out|has)\b",
    re.I,
)

INNER = "error|message|text|listed|bad|problem|told|line|short|self|words|wrong|unknown|no_dataset"
PASSED_ON = re.compile(
    r"\A(?:the first record|(?:found )?(?:[\w.]|\{[^{}]*\})*)(?:: |\n| )?"
    rf"\{{[^{{}}]*(?:{INNER})[^{{}}]*\}}\.?\Z"
)


def text_of(node: ast.AST) -> str:
    """A message as it is written, with expressions in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{" + re.sub(r"[{}]", "", ast.unparse(node.value)) + "}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return "{" + re.sub(r"[{}]", "", ast.unparse(node)) + "}"


@functools.cache
def lacks(message: str) -> list[str]:
    """What a message lacks: a place, the value, or the way out.

    >>> lacks("end: found {end}, allowed: drop, pad."), lacks("invalid config")
    ([], ['place', 'value', 'way out'])
    >>> lacks("seq_len: found {n}."), lacks("{path}: it is damaged. Restore it from a copy.")
    (['way out'], [])
    """
    if PASSED_ON.match(message):  # another message, with a place before it
        return []
    found = {"place": PLACE.match(message), "value": VALUE.search(message)}
    found["way out"] = WAY_OUT.search(message)
    return [name for name, match in found.items() if match is None]


def messages(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """(place, class, message) of every exception of the tree that is made, raised there or not."""
    known = {*tree_of_errors(tree), "IndexError", "KeyError", "TypeError", *RECORDS}
    known.remove("MissingExtra")  # which has the form in itself
    for module, source in tree.sources.items():
        for function, line, name, text in _read(module, source).calls:
            if name not in known or (module, function) in CAUGHT:
                continue
            if module not in PARTS and f"{module}.{function}" not in PARTS:
                yield f"{module}:{line}", name, text


# who catches them knows the file and the record, or the key and the line
RECORDS = ("BadRecord", "BadChat", "Mistake")


def wrong_messages(tree: Tree) -> list[str]:
    """15. A message names its place, the value found, and what is allowed or what to do."""
    wrong = []
    for where, name, text in messages(tree):
        missing = [one for one in lacks(text) if not (one == "place" and name in RECORDS)]
        if missing:
            wrong.append(f"{where}: {name}({text!r}) has no {', no '.join(missing)}")
    return wrong


def wrong_drawing(tree: Tree) -> list[str]:
    """14. The tree in the docstring of `tokenloom.errors` is the tree."""
    told = ast.get_docstring(tree.parsed("errors")) or ""
    drawn = dict(re.findall(r"[├└]─ (\w+)\((\w+)\)", told))
    public = {node.name for node in tree.parsed("errors").body if isinstance(node, ast.ClassDef)}
    real = {name: bases for name, bases in tree_of_errors(tree).items() if name in public - {ROOT}}
    wrong = [f"{name} is not drawn" for name in real.keys() - drawn.keys()]
    wrong += [f"{name} is drawn, but is not there" for name in drawn.keys() - real.keys()]
    return wrong + [
        f"{name} is drawn below {drawn[name]}, but has the bases {', '.join(bases)}"
        for name, bases in real.items()
        if name in drawn and drawn[name] not in bases
    ]
