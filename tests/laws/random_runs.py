"""Random small runs of every kind: layouts x orders x mixes x edits x appends x ends.

A `Recipe` is plain data, so that a slow oracle can read it and a failure can print it. `make_run`
turns it into a dataset; `draw_recipe` draws one from anything that is used like `random.Random`.
"""

from __future__ import annotations

import random
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any

from hypothesis import currently_in_test_context, note
from known_stores import drawn_documents

import tokenloom as tl

SEQ_LEN = 8
HELD = [token for seed in (5, 6, 7) for ids in drawn_documents(seed, 11) for token in ids]
"""Tokens that the known stores hold."""
BOS, EOS, PAD = 998, 999, 997
STRATEGIES = ("sequential", "greedy", "first_fit", "best_fit", "first_fit_decreasing")
STRATEGIES += ("best_fit_decreasing", "one_doc")

SPLICES: tuple[dict[str, Any], ...] = (
    {},
    {"content_stride": 2},
    {"include_tail": True, "content_stride": 5},
    {"edge": "clip"},
    {"position_scheme": "relative", "content_length": 4},
    {"fill": "pack", "content_length": 3},
    {"edge": "clip", "fill": "pack", "content_length": 4},
    {"content_start_mode": "slide_within", "offset_stride": 3, "content_stride": 2},
    {"content_start_mode": "slide_within", "placement": "truncate", "offset_stride": 2},
    {"content_start_mode": "cyclic_roll", "offset_stride": 4, "content_stride": 3},
    {"content_start_mode": "cyclic_roll", "roll_loss": True, "offset_stride": 4},
    {"content_start_mode": "anchor_start"},
    {"mode": "slide", "content_length": None},
)
SHARES: tuple[dict[str, Any], ...] = (
    {},
    {"sampler": "quota", "balance_tau": 0},
    {"sampler": "quota", "balance_mode": "by_coverage"},
    {"balance_mode": "by_document"},
    {"sampler": "quota", "epoch_length": 5, "balance_tau": 1},
    {"sampler": "stream", "balance_tau": 1, "epoch_length": 9},
    {"sampler": "enumerate"},
)
RARE_SPLICES: tuple[dict[str, Any], ...] = (
    {"offset_jitter": 2, "content_stride": 2, "content_length": 4},
    {"offset_jitter": 2, "jitter_mode": "low_discrepancy", "content_length": 4},
    {"content_start_mode": "slide_within", "shuffle_content": True, "shuffle_offsets": True},
    {"sampler": "enumerate", "shuffle_content": 3, "shuffle_per_epoch": False},
    {"content_start_mode": "cyclic_roll", "shuffle_offsets": 2, "offset_seed": 5},
    {"grid": (2, 2)},
    {"grid": (3, 4), "content_length": 4},
    {"content_length": {0: 3, 10: 5}},
    {"doc_growth": {0: 3, 2: 6}},
    {"doc_schedule": {0: 2, 12: 5}},
    {"alpha": 0.5, "content_length": 4},
    {"alpha": 1.5, "content_length": 5, "content_stride": 2},
    {"alpha": 1.0, "content_length": 4, "edge_mode": "duplicate"},
    {"sampler": "stream"},
    {"sampler": "quota", "balance_tau": 0.5},
    {"max_epochs": 1.5},
    {"min_copy_len": 4, "adaptive_k": False},
    {"balance_measure": "starts", "sampler": "quota"},
)
OF_DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"doc_weights": [1, 0, 2.5], "sampler": "quota"},
    {"doc_strides": [1, 3]},
    {"doc_groups": [0, 0, 1, 2], "sampler": "quota", "balance_tau": 0.5},
    {"doc_alphas": [0.0, 1.0, 0.3], "content_length": 4},
)


@dataclass(frozen=True)
class Source:
    """One source: which store, which of its documents, how they are cut, and in which order."""

    store: str
    layout: str
    options: dict[str, Any] = field(default_factory=dict)
    choice: str = "all"
    order: str = "stored"
    epochs: int | None = 1
    seed: int | None = None
    render: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    sources: dict[str, Source]
    seed: int = 0
    mix: dict[str, Any] | None = None
    edits: tuple[dict[str, Any], ...] = ()  # {"at": …, and one kind of change}
    shuffled: bool = False  # the whole mix
    take: int | None = None


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON, without what is as usual."""
    plain: dict[str, Any] = _without_defaults(recipe)
    return plain


def _without_defaults(one: Any) -> Any:
    if not is_dataclass(one):
        return one
    found = {}
    for item in fields(one):
        value = getattr(one, item.name)
        usual = item.default if item.default_factory is MISSING else item.default_factory()
        if value != usual:
            found[item.name] = value
    if "sources" in found:
        found["sources"] = {n: _without_defaults(v) for n, v in found["sources"].items()}
    if "edits" in found:
        found["edits"] = [
            edit | {"add": {n: _without_defaults(v) for n, v in edit["add"].items()}}
            if "add" in edit
            else edit
            for edit in found["edits"]
        ]
    return found


def recipe_from_json(plain: dict[str, Any]) -> Recipe:
    sources = {name: _source_from_json(one) for name, one in plain["sources"].items()}
    edits = []
    for edit in plain.get("edits", ()):
        change = dict(edit)
        if "add" in edit:
            change["add"] = {n: _source_from_json(one) for n, one in edit["add"].items()}
        if "quarantine" in edit:
            change["quarantine"] = [tuple(pair) for pair in edit["quarantine"]]
        edits.append(change)
    mix = plain.get("mix")
    if mix and "stages" in mix:
        mix = {**mix, "stages": {int(at): one for at, one in mix["stages"].items()}}
    return Recipe(**{**plain, "sources": sources, "mix": mix, "edits": tuple(edits)})


def _source_from_json(plain: dict[str, Any]) -> Source:
    options = {
        name: {int(k): v for k, v in value.items()} if isinstance(value, dict) else value
        for name, value in plain.get("options", {}).items()
    }  # schedules have numbers as keys, which JSON has not
    plain = {name: value for name, value in plain.items() if name != "is_drawn"}  # of old ones
    return Source(**{**plain, "options": options})


# -- making --------------------------------------------------------------------------------

CHOICES = {
    "all": lambda store: store,
    "split": lambda store: store.split({"x": 0.7, "y": 0.3})["x"],
    "random": lambda store: store.select(num_docs=7, doc_select_mode="random", seed=3),
    "longest": lambda store: store.select(num_docs=5, doc_select_mode="longest"),
}

ORDERS = {
    "stored": lambda ds: ds.shuffle(False),
    "full": lambda ds: ds.shuffle(),
    "linear": lambda ds: ds.shuffle(perm_type="linear"),
    "era": lambda ds: ds.era_shuffle(5),
    "block": lambda ds: ds.block_shuffle(window_blocks=3),
    "cut block": lambda ds: ds.block_shuffle(io_block_size=2, window_blocks=3),
    "merged block": lambda ds: ds.block_shuffle(window_blocks=2, shuffle_block_size=5),
    "lanes": lambda ds: ds.block_shuffle(io_block_size=2, window_blocks=2, lanes=3),
    "linear era": lambda ds: ds.era_shuffle(4, perm_type="linear"),
    "linear block": lambda ds: ds.block_shuffle(window_blocks=3, perm_type="linear"),
    "linear lanes": lambda ds: ds.block_shuffle(
        io_block_size=2, window_blocks=2, lanes=3, perm_type="linear"
    ),
}


def documents_of(source: Source, known):
    """What the layout cuts: a store, or a selection of its documents."""
    return CHOICES[source.choice](known[source.store].store)


def make_source(source: Source, known) -> tl.Dataset:
    documents = documents_of(source, known)
    options = expanded(source.options, len(documents.lengths))
    run = getattr(documents, source.layout)(SEQ_LEN, **options, **source.render)
    run = ORDERS[source.order](run).epochs(source.epochs)
    return run if source.seed is None else run.seed(source.seed)


def expanded(options: dict[str, Any], documents: int) -> dict[str, Any]:
    """The options of a layout; lists with a value for each document are repeated as needed."""
    return {
        name: [value[i % len(value)] for i in range(documents)]
        if name.startswith("doc_") and isinstance(value, list)
        else value
        for name, value in options.items()
    }


def make_run(recipe: Recipe, known, *, blank: bool = True) -> tl.Dataset:
    """The run of a recipe; without `blank` nothing is quarantined, so that all spans show."""
    made = {name: make_source(one, known) for name, one in recipe.sources.items()}
    run = made["main"] if recipe.mix is None else tl.mix(made, **recipe.mix)
    run = run.seed(recipe.seed)
    if recipe.shuffled:
        run = run.shuffle()
    for edit in recipe.edits:
        run = apply_edit(run, edit, known, blank=blank)
    return run if recipe.take is None else run.take(recipe.take)


def apply_edit(run: tl.Dataset, edit: dict[str, Any], known, *, blank: bool = True) -> tl.Dataset:
    change = dict(edit)
    if "add" in change:
        change["add"] = {name: make_source(one, known) for name, one in change["add"].items()}
    if "append" in change:
        change["append"] = {n: known[store].store for n, store in change["append"].items()}
    if "quarantine" in change and not blank:
        del change["quarantine"]
    return run.edit(**change)


# -- drawing -------------------------------------------------------------------------------


def draw_run(draw: random.Random, known) -> tuple[Recipe, tl.Dataset]:
    """A recipe whose settings go together, and its run."""
    while True:
        recipe = draw_recipe(draw)
        try:
            if recipe.shuffled and not make_run(replace(recipe, shuffled=False), known).is_finite:
                continue
            run = make_run(recipe, known)
            run.spans([])  # plans are made on first use
        except tl.ConfigError:  # settings that do not go together
            continue
        if currently_in_test_context():
            note(repr(recipe))
        return recipe, run


def draw_recipe(draw: random.Random) -> Recipe:
    recipe = _draw_sources(draw, lookahead=draw.random() < 0.3)
    labels = draw.choice([None, None, "aligned", "shifted"])  # one layout for all sources
    return recipe if labels is None else _with_labels(recipe, labels)


def _with_labels(recipe: Recipe, labels: str) -> Recipe:
    def labelled(sources):
        more = {"label_layout": labels}
        return {name: replace(one, render=one.render | more) for name, one in sources.items()}

    edits = [e | ({"add": labelled(e["add"])} if "add" in e else {}) for e in recipe.edits]
    return replace(recipe, sources=labelled(recipe.sources), edits=tuple(edits))


def _draw_sources(draw: random.Random, *, lookahead: bool) -> Recipe:
    seed = draw.randrange(9)
    if draw.random() < 0.45:
        main = draw_source(draw, ("first", "first", "weighted"), lookahead)
        edits = _draw_edits(draw, {"main": main}, None, lookahead) if draw.random() < 0.5 else ()
        take = draw.randrange(1, 60) if not edits and draw.random() < 0.2 else None
        return Recipe({"main": main}, seed, edits=edits, take=take)
    sources = {
        "a": draw_source(draw, ("first",), lookahead),
        "b": draw_source(draw, ("other", "other", "weighted"), lookahead),
    }
    if draw.random() < 0.3:
        sources["d"] = draw_source(draw, ("weighted", "other"), lookahead)
    mix = _draw_mix(draw, list(sources))
    if draw.random() < 0.1:
        return Recipe(sources, seed, mix, shuffled=True)
    edits = _draw_edits(draw, sources, mix, lookahead) if draw.random() < 0.6 else ()
    last = edits[-1]["at"] if edits else max(mix.get("stages", [0]))
    take = last + draw.randrange(1, 60) if draw.random() < 0.3 else None
    return Recipe(sources, seed, mix, edits=edits, take=take)


def draw_source(draw: random.Random, stores, lookahead: bool) -> Source:
    layout = draw.choice(["windows", "pack", "pack", "splice"])
    if layout == "splice" and lookahead:
        layout = "windows"
    source = Source(
        store=draw.choice(stores),
        layout=layout,
        choice=draw.choice(["all", "all", "all", "split", "random", "longest"]),
        order=draw.choice(list(ORDERS)),
        epochs=draw.choice([None, 1, 2, 3]),
        seed=draw.choice([None, None, 4]),
    )
    options: dict[str, Any]
    if layout == "windows":
        options = {"tail": draw.choice(["drop", "keep"]), "lookahead": lookahead}
        options["overlap"] = draw.randrange(2) if lookahead else 0
        options["align"] = draw.choice([False, False, 20])
    elif layout == "pack":
        options = _draw_pack(draw, lookahead)
    else:
        options = _draw_splice(draw)
    render = _draw_render(draw, layout, options)
    return replace(source, options=options, render=render)


def _draw_pack(draw: random.Random, lookahead: bool) -> dict[str, Any]:
    strategy = draw.choice(STRATEGIES)
    options: dict[str, Any] = {"strategy": strategy, "lookahead": lookahead}
    options["min_len"] = draw.choice([1, 1, 4])
    options["max_len"] = draw.choice([None, None, 25])
    options["max_doc_tokens"] = draw.choice([None, None, 11])
    options["min_row_len"] = draw.choice([1, 1, 5])
    options["shuffle_output"] = draw.random() < 0.3
    options["group_docs"] = draw.choice([3, 5, 10_000])
    if draw.random() < 0.3:
        options["group_tokens"] = draw.choice([1, 20, 60])
    if strategy == "sequential":
        options["overlap"] = draw.randrange(2) if lookahead else 0
    else:
        options["overflow"] = draw.choice(["split", "split", "truncate", "drop"])
        options["max_docs_per_bin"] = draw.choice([None, None, 2])
        if options["overflow"] == "split":
            options["stride"] = draw.choice([0, 0, 2])
            options["mask_overlap"] = draw.random() < 0.8
    if draw.random() < 0.5:
        options |= {"add_eos": True, "eos_id": EOS}
    if draw.random() < 0.4:
        options |= {"add_bos": True, "bos_id": BOS}
    return options


def _draw_splice(draw: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"content_length": draw.choice([None, 3, 4, 6])}
    options |= draw.choice(SPLICES) | draw.choice(SHARES)
    if draw.random() < 0.3:
        options |= draw.choice(RARE_SPLICES)
    if draw.random() < 0.2:
        options |= draw.choice(OF_DOCUMENTS)
    if draw.random() < 0.3:
        options["bos"] = BOS
    if draw.random() < 0.1:
        options["eos_before"] = EOS
    return options


def _draw_render(draw: random.Random, layout: str, options: dict[str, Any]) -> dict[str, Any]:
    """Every setting that changes arrays but no row."""
    render: dict[str, Any] = {"pad_id": draw.choice([0, PAD])}
    if draw.random() < 0.5:
        return render
    if draw.random() < 0.3:
        render["mask_boundary_loss"] = False
    if draw.random() < 0.3:
        render["ignore_id"] = draw.choice(HELD)
    if options.get("add_eos") and draw.random() < 0.6:
        render["train_on_eos"] = False
        render["eos_mask"] = draw.choice(["all", "inserted"])
    if layout == "windows" and draw.random() < 0.4:
        render |= {"segments": "eos", "eos_id": draw.choice(HELD)}
    if "position_scheme" not in options and draw.random() < 0.3:
        render["position_scheme"] = "absolute"
    if draw.random() < 0.2:
        render["position_offset"] = 3
    if layout == "splice" and draw.random() < 0.4:
        render |= {"trailing": "doc", "attend_prefix": draw.random() < 0.5}
    return render


def _draw_mix(draw: random.Random, names: list[str]) -> dict[str, Any]:
    rule = draw.choice(["least_consumed", "weights", "rounds", "random", "round_robin"])
    options: dict[str, Any] = {"rule": rule}
    if rule in ("rounds", "random"):
        options["block"] = 6
    if rule != "round_robin":
        options["cost"] = draw.choice(["rows", "tokens", "loss_tokens"])
        if draw.random() < 0.2:
            options["temperature"] = draw.choice([0, 0.5, 1])
        else:
            options["weights"] = {"a": draw.choice([1, 2.5]), **dict.fromkeys(names[1:], 1)}
        if draw.random() < 0.2:
            places = (0, 12, 30) if draw.random() < 0.5 else (18,)
            options["stages"] = {at: {names[-1]: draw.choice([0.5, 3])} for at in places}
    options["stop"] = draw.choice(["restart", "first_exhausted", "all_exhausted"])
    if draw.random() < 0.25:
        options["max_epochs"] = draw.choice([1.5, {"a": 0.5, "b": 2}])
    if draw.random() < 0.25:
        options["initial"] = {"a": draw.choice([7, 100])}
    return options


def _draw_edits(draw: random.Random, sources, mix, lookahead) -> tuple[dict[str, Any], ...]:
    """Up to three edits, each of one kind; only those that a single source or a mix can have."""
    names, edits, grown = list(sources), [], 0
    at = max((mix or {}).get("stages", {0: {}}))
    block = 6 if mix and mix["rule"] in ("rounds", "random") else 1
    for _ in range(draw.choice([1, 1, 2, 3])):
        at = -(-(at + draw.choice([0, 1, 3, 6, 12, 30])) // block) * block
        kind = draw.choice(["quarantine", "quarantine", "append", "weights", "add", "remove"])
        edit: dict[str, Any] = {"at": at}
        if kind == "append" and grown < 2 and sources[next(iter(sources))].store == "first":
            edit["append"] = {names[0]: ("second", "third")[grown]}
            grown += 1
        elif kind == "weights" and mix and mix["rule"] != "round_robin":
            edit["weights"] = {names[0]: draw.choice([0.5, 3])}
        elif kind == "add" and mix and "c" not in names:
            edit["add"] = {"c": draw_source(draw, ("other",), lookahead)}
            names.append("c")
        elif kind == "remove" and mix and len(names) > 2 and draw.random() < 0.7:
            edit["remove"] = [names.pop(1)]
        else:
            edit["quarantine"] = [(draw.choice(names), draw.randrange(11)) for _ in range(2)]
        edits.append(edit)
    return tuple(edits)


def sources_of(recipe: Recipe) -> dict[str, Source]:
    """Every source that the run ever has."""
    found = dict(recipe.sources)
    for edit in recipe.edits:
        found |= edit.get("add", {})
    return found


def store_names(recipe: Recipe) -> dict[str, str]:
    """Every source that the run ever has, and its last store."""
    names = {name: one.store for name, one in sources_of(recipe).items()}
    for edit in recipe.edits:
        names |= edit.get("append", {})
    return names


def length_of(run: tl.Dataset, most: int = 70) -> int:
    """How many examples of a run to look at."""
    return min(len(run), most) if run.is_finite else most


def stored_in_frame(spans, row):
    """Tokens of documents at the cells of the frame, look-ahead and inserted ones aside."""
    total = 0
    for k in range(int(spans.frame[row]), int(spans.frame[row + 1])):
        first = int(spans.at[k]) + (int(spans.flags[k]) & 1)
        total += max(0, min(first + int(spans.length[k]), SEQ_LEN) - first)
    return total


def order_depends_on_labels(recipe):
    """Whether a mix counts predictions, so that rendering decides what comes when."""
    return recipe.mix is not None and recipe.mix.get("cost") == "loss_tokens"
