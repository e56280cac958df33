"""Rows of the checklist about mixing, for datasets: worked values, and what must be refused."""

import copy
import json
import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from slowmix import (
    SEQ_LEN,
    Loop,
    begin,
    lengths_of,
    listed,
    picks_of,
    three_stores,
    toy,
    within,
)

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    return {
        **three_stores(root),
        "pairs": toy(root / "pairs", [2] * 60),
        "long": toy(root / "long", [SEQ_LEN] * 80),
        "tiny": toy(root / "tiny", [SEQ_LEN] * 4),
    }


@pytest.fixture(scope="module")
def three(stores):
    """12 equal rows, 6 rows of which one is short, and packed rows that differ."""
    return {
        "wiki": stores["wiki"].windows(SEQ_LEN).shuffle(),
        "code": stores["code"].windows(SEQ_LEN, tail="keep").shuffle(),
        "books": stores["books"].pack(SEQ_LEN).shuffle(),
    }


@pytest.fixture(scope="module")
def mixed(three):
    return tl.mix(three).seed(1)


def many(sources):
    """So many epochs that nothing ends within a test."""
    return {name: ds.epochs(8) for name, ds in sources.items()}


def endless(sources):
    return {name: ds.epochs(None) for name, ds in sources.items()}


def again(dataset):
    """The dataset as it comes back from its description, by way of JSON text."""
    return tl.from_config(json.loads(json.dumps(dataset.describe(), allow_nan=False)))


# -- loss tokens as a cost ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["boundaries", "columns"])
def sources_of_loss(request, three, tmp_path_factory):
    """Sources whose trained tokens follow from boundaries, and such with loss columns."""
    if request.param == "boundaries":
        return three
    root = tmp_path_factory.mktemp("loss")
    mask = {"loss_mask": ("uint8", lambda ids: ids % 3 == 0)}
    weights = {"loss_weights": ("float32", lambda ids: ids % 4 / 2)}
    stores = {
        "wiki": toy(root / "wiki", lengths_of(1, 12 * SEQ_LEN), columns=mask),
        "code": toy(root / "code", lengths_of(2, 5 * SEQ_LEN + 3), columns=weights),
        "books": toy(root / "books", lengths_of(3, 90, most=8), columns=mask | weights),
    }
    return {
        "wiki": stores["wiki"].windows(SEQ_LEN).shuffle(),
        "code": stores["code"].windows(SEQ_LEN, tail="keep").shuffle(),
        "books": stores["books"].pack(SEQ_LEN).shuffle(),
    }


@pytest.mark.parametrize("options", [{}, {"mask_boundary_loss": False}])
@pytest.mark.parametrize("rule", ["least_consumed", "weights"])
def test_a_mix_by_loss_tokens_is_the_loop_over_trained_cells(sources_of_loss, rule, options):
    """The costs of the loop are counted in the batches of each source by itself."""
    three = sources_of_loss
    sources = {name: ds.render(**options) for name, ds in many(three).items()}
    run = tl.mix(sources, rule=rule, cost="loss_tokens", weights={"wiki": 0.5}).seed(2)
    slow = []
    for name, own in zip(run.run.names, run.run.sources, strict=True):
        told = sources[name].describe() | {"name": name, "seed": own.seed, "epochs": None}
        trained = tl.from_config(told).batch(range(120)).trained().sum(1)
        costs = np.maximum(trained, 1).tolist()
        slow.append(begin(name, listed(costs), weight=0.5 if name == "wiki" else 1.0))
    loop = Loop(slow, seed=2, midpoint=rule == "weights")
    assert picks_of(run, 0, 120) == loop.run(120)
    assert again(run).fingerprint == run.fingerprint
    other = tl.mix(sources, rule=rule, cost="tokens", weights={"wiki": 0.5}).seed(2)
    assert picks_of(other, 0, 120) != loop.picks, "the control: tokens are another cost"


# -- descriptions come back --------------------------------------------------------------------

OPTIONS = {
    "temperature 0": {"temperature": 0},
    "temperature": {"temperature": 0.5},
    "a NumPy temperature": {"temperature": np.float32(0.5)},
    "by rows": {"temperature": 1.0, "cost": "rows"},
    "loss tokens": {"cost": "loss_tokens", "temperature": 1.0},
    "weights": {"weights": {"wiki": 3, "code": 1 / 3}},
    "weights of NumPy": {"weights": {"wiki": np.float32(2.5), "code": np.int64(3)}},
    "fractions": {"weights": {"wiki": Fraction(1, 3), "code": Decimal("0.3")}},
    "caps": {"max_epochs": 0.5},
    "a cap": {"max_epochs": {"wiki": np.float64(1.5), "code": None}},
    "initial": {"initial": {"wiki": 7, "books": 1000}},
    "stages": {"stages": {20: {"wiki": 2}, 0: {"code": 3}}},
    "an empty stage": {"stages": {5: {}}},
    "a NumPy stage": {"stages": {np.int64(9): {"wiki": np.float64(0.1)}}},
    "blocks": {"rule": "rounds", "block": np.int64(4)},
    "random blocks": {"rule": "random", "block": 6, "stages": {12: {"wiki": 2}}},
    "turns": {"rule": "round_robin", "stop": "first_exhausted"},
    "all": {"stop": "all_exhausted", "rule": "weights", "initial": {"wiki": 3}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_comes_back_from_the_description(three, options):
    run = tl.mix(three, **options)
    back = again(run)
    assert back.fingerprint == run.fingerprint
    assert back.describe() == json.loads(json.dumps(run.describe()))
    assert len(back) == len(run)
    assert picks_of(back) == picks_of(run)


CHANGES = {
    "take": lambda run, web: run.take(13),
    "shuffle": lambda run, web: run.shuffle(),
    "eras": lambda run, web: run.shuffle(7),
    "blocks": lambda run, web: run.block_shuffle(io_block_size=3, window_blocks=2),
    "render": lambda run, web: run.render(position_scheme="absolute", pad_id=3),
    "weights": lambda run, web: run.edit(at=np.int64(4), weights={"wiki": np.float32(2)}),
    "add": lambda run, web: run.edit(at=4, add={"web": web}, weights={"web": Fraction(1, 3)}),
    "pairs": lambda run, web: run.edit(at=4, add=[("web", web)]),
    "remove": lambda run, web: run.edit(at=4, remove=("code",)),
    "remove all": lambda run, web: run.edit(at=4, remove=["wiki", "code", "books"]),
    "quarantine": lambda run, web: run.edit(at=4, quarantine=[("wiki", np.int64(1)), ["code", 0]]),
    "at the end": lambda run, web: run.edit(at=len(run), weights={"wiki": 5}),
    "nothing": lambda run, web: run.edit(at=0),
    "twice": lambda run, web: run.edit(at=4, remove=["code"]).edit(at=4, add={"web": web}),
    "cut, then edited": lambda run, web: run.take(20).edit(at=20, weights={"wiki": 2}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_comes_back_from_the_description(three, mixed, change):
    run = change(mixed, three["books"].seed(9))
    back = again(run)
    assert back.fingerprint == run.fingerprint
    assert back.describe() == json.loads(json.dumps(run.describe()))
    assert picks_of(back) == picks_of(run)
    if len(run):
        one, other = back.batch(range(len(run))), run.batch(range(len(run)))
        assert np.array_equal(one.tokens, other.tokens)
        assert np.array_equal(one.position_ids, other.position_ids)


# -- what is refused ---------------------------------------------------------------------------

NAN, INF = math.nan, math.inf


class Given:
    """What a case may use: three sources, their mix, their stores."""

    def __init__(self, three, mixed, stores):
        self.three, self.mixed, self.stores = three, mixed, stores
        self.web = stores["tiny"].windows(SEQ_LEN)
        run = self.edit(weights={"wiki": 2}, remove=["code"]).edit(at=10, quarantine=[("wiki", 1)])
        self.description = json.loads(json.dumps(run.describe()))

    def mix(self, **options):
        return tl.mix(self.three, **options)

    def edit(self, **options):
        return self.mixed.edit(**{"at": 5} | options)

    def told(self, *path, value):
        """The edited mix from a description in which something was changed."""
        told = copy.deepcopy(self.description)
        inner = told["mix"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = copy.deepcopy(value)
        made = tl.from_config(told)
        return made.batch(range(len(made)))


@pytest.fixture(scope="module")
def given(three, mixed, stores):
    return Given(three, mixed, stores)


OTHERS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    Warning,
)


def held_to(given, act, said):
    """It is refused with this message, and at once; said in one line if not, without a trace."""
    try:
        with within(1):
            found = f"taken: {type(act(given)).__name__}"
    except (tl.ConfigError, IndexError) as error:
        found = None if re.search(said, str(error), re.DOTALL) else f"said: {error}"
    except OTHERS as error:
        found = f"{type(error).__name__}: {error}"
    if found is not None:
        pytest.fail(f"should be a ConfigError {said!r}, but {found}", pytrace=False)


def cases(table):
    return pytest.mark.parametrize(("act", "said"), table.values(), ids=table)


REFUSED = {
    # sources
    "no source": (lambda g: tl.mix({}), r"^mix: found no source"),
    "None": (lambda g: tl.mix(None), r"^mix: found no source"),
    "a store": (lambda g: tl.mix({"a": g.stores["wiki"]}), r"^mix.a: found Store, allowed: a dat"),
    "a path": (lambda g: tl.mix({"a": "stores/wiki"}), r"^mix.a: found str, allowed: a dataset"),
    "nothing": (lambda g: tl.mix({"a": None}), r"^mix.a: found NoneType, allowed: a dataset"),
    "an empty name": (lambda g: tl.mix({"": g.web}), r"^mix: found the name '', allowed: a non"),
    "a number as name": (lambda g: tl.mix({3: g.web}), r"^mix: found the name 3, allowed"),
    # weights
    **{
        f"a weight of {wrong}": (
            lambda g, wrong=wrong: g.mix(weights={"wiki": wrong}),
            r"^weights\.wiki: found .*, allowed: (more than 0|a number|1e-12 to 1e\+12)",
        )
        for wrong in (0, -1, NAN, INF, np.float64(NAN), np.int64(0), Fraction(-1, 3), False)
    },
    **{
        f"a new weight of {wrong}": (
            lambda g, wrong=wrong: g.edit(weights={"wiki": wrong}),
            r"^edit\.weights\.wiki: found .*, allowed: (more than 0|a number|1e-12 to 1e\+12)",
        )
        for wrong in (0, -1, NAN, INF, False)
    },
    "no weight": (lambda g: g.mix(weights={}), r"^weights: found none"),
    "an unknown weight": (
        lambda g: g.mix(weights={"wkii": 1}),
        r"^weights\.wkii: no source .*Sources: wiki, code, books\. Did you mean 'wiki'",
    ),
    "an unknown new weight": (
        lambda g: g.edit(weights={"wkii": 1}),
        r"^edit\.weights\.wkii: no source .*Sources: wiki, code, books\. Did you mean 'wiki'",
    ),
    "a weight of a source that is gone": (
        lambda g: g.edit(remove=["code"]).edit(at=6, weights={"code": 1}),
        r"^edit\.weights\.code: no source named 'code'\. Sources: wiki, books",
    ),
    "weights in turn": (
        lambda g: g.mix(rule="round_robin", weights={"wiki": 2}),
        r"^rule: found 'round_robin' with weights.*Use rule='weights'",
    ),
    # temperature
    **{
        f"a temperature of {wrong}": (
            lambda g, wrong=wrong: g.mix(temperature=wrong),
            rf"^temperature: found {wrong}, allowed: 0 or more",
        )
        for wrong in (-1, -0.5, NAN, INF)
    },
    "both": (lambda g: g.mix(temperature=1, weights={"wiki": 1}), r"^temperature: found toget"),
    # max_epochs
    **{
        f"a cap of {wrong}": (
            lambda g, wrong=wrong: g.mix(max_epochs=wrong),
            r"^max_epochs: found (0\.0|-1\.0|nan|inf), allowed: (more than 0|at most 1,000,000)",
        )
        for wrong in (0, -1, NAN, INF)
    },
    "an unknown cap": (
        lambda g: g.mix(max_epochs={"boks": 1}),
        r"^max_epochs\.boks: no source .*Did you mean 'books'",
    ),
    # initial
    **{
        f"initial {wrong!r}": (
            lambda g, wrong=wrong: g.mix(initial={"wiki": wrong}),
            r"^initial\.wiki: found .*, allowed: (an integer|0 or more)",
        )
        for wrong in (-1, 1.5, 2.0, "1", None, True, NAN)
    },
    "an unknown initial": (
        lambda g: g.mix(initial={"cod": 1}),
        r"^initial\.cod: no source .*Did you mean 'code'",
    ),
    # words and blocks
    "a rule": (lambda g: g.mix(rule="weight"), r"^rule: found 'weight', allowed.*mean 'weights'"),
    "no rule": (lambda g: g.mix(rule=None), r"^rule: found None"),
    "a cost": (lambda g: g.mix(cost="token"), r"^cost: found 'token', allowed.*mean 'tokens'"),
    "a cost that is no word": (lambda g: g.mix(cost=3), r"^cost: found 3"),
    "a stop": (lambda g: g.mix(stop="repeat"), r"^stop: found 'repeat', allowed: first_exhausted"),
    **{
        f"blocks of {wrong!r}": (
            lambda g, wrong=wrong: g.mix(rule="rounds", block=wrong),
            r"^block: found .*, allowed: (1 or more|an integer)",
        )
        for wrong in (0, -1, 1.5, "3", True, None, NAN)
    },
    # ends
    "an infinite source": (
        lambda g: len(tl.mix({"a": g.web.epochs(None), "b": g.web}, stop="all_exhausted")),
        r"^stop: found 'all_exhausted', but source 'a' is endless.*Give it epochs",
    ),
    "an infinite source that joins": (
        lambda g: g.mix(stop="all_exhausted").edit(at=5, add={"a": g.web.epochs(None)}),
        r"^stop: found 'all_exhausted', but source 'a' is endless",
    ),
    "epochs of a mix": (lambda g: g.mixed.epochs(2), r"^epochs: not of a mix, which has those"),
    # stages
    "a stage in the past": (lambda g: g.mix(stages={-1: {"wiki": 2}}), r"at: found -1, allowed:"),
    "a stage after the end": (
        lambda g: g.mix(stages={10**9: {"wiki": 2}}),
        r"at=1,000,000,000 is after the end of the run, which has \d+ examples",
    ),
    "a stage for nobody": (
        lambda g: g.mix(stages={5: {"wkii": 2}}),
        r"weights\.wkii: no source .*Did you mean 'wiki'",
    ),
    "a stage inside a block": (
        lambda g: g.mix(rule="rounds", block=4, stages={10: {"wiki": 2}}),
        r"at=10 is inside a block of 4 .*Allowed: its edges, 8 or 12\.",
    ),
    **{
        f"a stage at {wrong!r}": (
            lambda g, wrong=wrong: g.mix(stages={wrong: {"wiki": 2}}),
            r"at: found .*, allowed: an integer",
        )
        for wrong in ("10", 1.5, 10.0, True, None, NAN)
    },
    # at
    **{
        f"at {wrong!r}": (
            lambda g, wrong=wrong: g.edit(at=wrong, weights={"wiki": 2}),
            r"at: found .*, allowed: (an integer|0 or more)",
        )
        for wrong in (-1, 1.5, 5.0, "5", True, False, None, NAN, INF, [5], np.float64(5))
    },
    "in the past": (
        lambda g: g.edit(at=10).edit(at=9),
        r"^edit: at=9 is before the last edit, at 10.*Allowed: 10 or more",
    ),
    "after the end": (lambda g: g.edit(at=len(g.mixed) + 1), r"^edit: at=\d+ is after the end"),
    "after the cut": (
        lambda g: g.mixed.take(10).edit(at=11),
        r"^edit: at=11 is after the end of the run, which has 10 examples",
    ),
    "of a shuffled mix": (
        lambda g: g.mixed.shuffle().edit(at=5),
        r"^edit: found a mix that is shuffled",
    ),
    # add, remove, quarantine, append
    "add a store": (lambda g: g.edit(add={"x": g.stores["wiki"]}), r"x: found Store, allowed: a"),
    "add nothing": (lambda g: g.edit(add={"x": None}), r"x: found NoneType, allowed: a dataset"),
    "add a mix": (lambda g: g.edit(add={"x": g.mixed}), r"x: it is already a mix"),
    "add what is cut": (lambda g: g.edit(add={"x": g.web.take(1)}), r"x: it was cut by take\(1\)"),
    "add a name twice": (
        lambda g: g.edit(add={"wiki": g.web}),
        r"^edit\.add\.wiki: a source of that name already exists",
    ),
    "add a name that is gone": (
        lambda g: g.edit(remove=["code"]).edit(at=6, add={"code": g.web}),
        r"^edit\.add\.code: a source of that name already exists",
    ),
    "add a number as name": (lambda g: g.edit(add={3: g.web}), r"add.*found 3"),
    "remove a word": (
        lambda g: g.edit(remove="wiki"),
        r"^edit\.remove: found 'wiki' .*allowed: a list of names",
    ),
    "remove nobody": (lambda g: g.edit(remove=["cod"]), r"^edit\.remove\.cod: .*mean 'code'"),
    "remove what joins": (lambda g: g.edit(add={"x": g.web}, remove=["x"]), r"^edit\.remove\.x"),
    "quarantine nobody": (
        lambda g: g.edit(quarantine=[("wkii", 0)]),
        r"^edit\.quarantine\.wkii: no source .*Did you mean 'wiki'",
    ),
    "append what did not grow": (
        lambda g: g.edit(append={"wiki": g.stores["wiki"]}),
        r"^edit\.append\.wiki: found a store of \d+ documents, which is not the one",
    ),
    "append to nobody": (
        lambda g: g.edit(append={"wkii": g.stores["wiki"]}),
        r"^edit\.append\.wkii: no source .*Did you mean 'wiki'",
    ),
    # seeds
    "a negative seed": (lambda g: g.mixed.seed(-1), r"^seed: found -1, allowed: an integer from"),
    "a seed that is text": (lambda g: g.mixed.seed("a"), r"^seed: found 'a', allowed"),
    "a seed after an edit": (lambda g: g.edit().seed(3), r"^seed: this run was edited"),
    # descriptions
    "a description with a weight of 0": (
        lambda g: g.told("weights", "wiki", value=0),
        r"^\$\.mix: weights\.wiki: found 0\.0, allowed: more than 0",
    ),
    "a description with an unknown key": (
        lambda g: g.told("wieghts", value={}),
        r"^\$\.mix\.wieghts: unknown key.*Did you mean 'weights'",
    ),
    "a description with an edit at text": (
        lambda g: g.told("edits", 0, "at", value="5"),
        r"^\$\.mix\.edits\[0\]\.at: found '5'.*allowed: an integer",
    ),
    "a description with an edit in the past": (
        lambda g: g.told("edits", 0, "at", value=11),
        r"at=10 is before the last edit, at 11",
    ),
}


@cases(REFUSED)
def test_what_cannot_be_meant_is_refused_with_path_value_and_what_is_allowed(given, act, said):
    held_to(given, act, said)


def test_documents_that_are_not_there_and_indices_out_of_a_run_are_index_errors(given):
    for wrong in (-1, 10**6):
        with pytest.raises(
            IndexError, match=rf"^edit\.quarantine: found document {wrong} of wiki, allowed: 0 to 8"
        ):
            given.edit(quarantine=[("wiki", wrong)])
    for act in (given.mixed.picked, given.mixed.locate, given.mixed.batch):
        for wrong in (-1, len(given.mixed)):
            with pytest.raises(IndexError, match=rf"^index {wrong}: out of range"):
                act([wrong])
        with pytest.raises(TypeError, match="allowed: integers"):
            act([1.5])


def test_a_shuffle_of_an_endless_mix_is_refused(given):
    """At once, in whatever order it is said; and when a description says so."""
    run = tl.mix(endless(given.three))
    ways = {
        "full": lambda ds: ds.shuffle(),
        "era": lambda ds: ds.shuffle(10),
        "block": lambda ds: ds.block_shuffle(io_block_size=4),
        "cut": lambda ds: ds.take(20).shuffle(),
    }
    for act in ways.values():
        with pytest.raises((TypeError, tl.ConfigError), match=r"^shuffle: this mix is endless"):
            act(run)
    told = run.describe()
    told["mix"]["shuffle"] = tl.mix(given.three).shuffle().describe()["mix"]["shuffle"]
    with pytest.raises(tl.ConfigError, match="shuffle: this mix is endless"):
        tl.from_config(told)


# -- what is no number, no name, no pair ---------------------------------------------------------


def numbers_wrong(where, path, act, values):
    return {
        f"{where} {value!r:.20}": (
            lambda g, v=value: act(g, v),
            rf"^{path}: found .*allowed(:| is)",
        )
        for value in values
    }


NO_NUMBER = ("a", None, [1], np.array([2.0]), 1j, 10**400)  # raise something else
TAKEN = (True, np.bool_(True))  # are taken for 1
WRONG = {
    **numbers_wrong(
        "weights",
        r"weights\.wiki",
        lambda g, v: g.mix(weights={"wiki": v}),
        (*NO_NUMBER, *TAKEN, "2"),
    ),
    **numbers_wrong(
        "new weights",
        r"edit\.weights\.wiki",
        lambda g, v: g.edit(weights={"wiki": v}),
        (*NO_NUMBER, *TAKEN, "2"),
    ),
    **numbers_wrong(
        "caps",
        r"max_epochs\.wiki",
        lambda g, v: g.mix(max_epochs={"wiki": v}),
        ("a", [1], 1j, 10**400, "2", *TAKEN),
    ),
    **numbers_wrong(
        "temperature",
        "temperature",
        lambda g, v: g.mix(temperature=v),
        ("1", [1], 1j, True),
    ),
    **numbers_wrong(
        "weights as",
        "weights",
        lambda g, v: g.mix(weights=v),
        ([1, 1, 2], "wiki", 3, 0, np.array([1, 1, 1])),
    ),
    **numbers_wrong(
        "new weights as",
        r"edit\.weights",
        lambda g, v: g.edit(weights=v),
        ([1, 1, 2], "wiki", 3, 0, np.array([1, 1, 1])),
    ),
    **numbers_wrong("caps as", "max_epochs", lambda g, v: g.mix(max_epochs=v), ([1, 1, 1], "2")),
    **numbers_wrong("initial as", "initial", lambda g, v: g.mix(initial=v), (5, [1, 2, 3], "wiki")),
    **numbers_wrong("cost", "cost", lambda g, v: g.mix(cost=v), ("", 0, False)),
    **numbers_wrong(
        "stages", "stages", lambda g, v: g.mix(stages=v), ("x", 5, [10], [(5, {"wiki": 2}, 7)])
    ),
    **numbers_wrong(
        "a stage", r"stages.*5.*", lambda g, v: g.mix(stages={5: v}), ([1, 1, 1], 3, {"wiki": "a"})
    ),
    "a cap of less than a row": (
        lambda g: len(g.mix(max_epochs={"wiki": 0.001})),
        r"^max_epochs\.wiki: found 0\.001",
    ),
    "stages of mixed kinds": (
        lambda g: g.mix(stages={10: {"wiki": 2}, "20": {"wiki": 3}}),
        r"^stages.*found '20'.*allowed: an integer",
    ),
    "a stage is not named": (
        lambda g: g.mix(stages={1.5: {"wiki": 2}}),
        r"^stages.*1\.5.*allowed: an integer",
    ),
    "a temperature that is too large is told as a weight": (
        lambda g: g.mix(temperature=1000),
        r"^temperature: found 1000",
    ),
    "at is not named as that of an edit": (
        lambda g: g.edit(at=1.5),
        r"^edit\.at: found 1\.5.*allowed: an integer",
    ),
    "at text, of a cut mix": (
        lambda g: g.mixed.take(10).edit(at="5"),
        r"at: found '5'.*allowed: an integer",
    ),
    "at None, of a cut mix": (
        lambda g: g.mixed.take(10).edit(at=None),
        r"at: found None.*allowed: an integer",
    ),
    "at 10^18 of an endless mix": (
        lambda g: tl.mix(endless(g.three)).edit(at=10**18),
        r"at.*found|at=1,000,000",
    ),
    **{
        f"sources as {type(wrong).__name__}": (
            lambda g, wrong=wrong: tl.mix(wrong),
            r"^(mix|sources): found (int|str|Dataset|'wiki'|5).*allowed:",
        )
        for wrong in (5, "wiki")
    },
    "a name that cannot be written": (
        lambda g: tl.mix({"\ud800": g.web}),
        r"^mix: found the name .*allowed: a non-empty string",
    ),
    **numbers_wrong("add", r"edit\.add", lambda g, v: g.edit(add=v), (5, "web")),
    "add a dataset without a name": (lambda g: g.edit(add=g.web), r"^edit\.add: found"),
    "add an empty name": (lambda g: g.edit(add={"": g.web}), r"found the name ''"),
    **numbers_wrong("remove", r"edit\.remove", lambda g, v: g.edit(remove=v), (5, None)),
    "weigh and remove at once": (
        lambda g: g.edit(weights={"wiki": 2}, remove=["wiki"]),
        r"^edit\..*wiki",
    ),
    **numbers_wrong(
        "quarantine",
        r"edit\.quarantine",
        lambda g, v: g.edit(quarantine=v),
        (
            "wiki",
            5,
            None,
            ("wiki", 1),
            {"wiki": 0},
            ["wiki"],
            ["ab"],
            [None],
            [("wiki",)],
            [("wiki", 0, 1)],
            [("wiki", None)],
            [("wiki", [1])],
            [("wiki", NAN)],
            [("wiki", "0")],  # taken for document 0
            [("wiki", 1.5)],  # taken for document 1
            [("wiki", True)],  # taken for document 1
        ),
    ),
    **numbers_wrong(
        "append",
        r"edit\.append\.wiki",
        lambda g, v: g.edit(append={"wiki": v}),
        (None, 3, "stores/wiki"),
    ),
    **numbers_wrong("append as", r"edit\.append", lambda g, v: g.edit(append=v), (5,)),
    **numbers_wrong("take", "take", lambda g, v: g.mixed.take(v), (-1, 1.5, True)),
    "the rows of nobody": (lambda g: g.mixed.rows_of("wkii"), "no source .*Did you mean 'wiki'"),
    # descriptions are not held to what edit() asks for
    **{
        f"told: {'.'.join(map(str, path))} {value!r:.30}": (
            lambda g, path=path, value=value: g.told(*path, value=value),
            r"^\$\.mix.*(found|missing)|no source|allowed: 0 to 8|was edited",
        )
        for path, values in {
            ("take",): ["x", -5, True, 1.5, [3]],
            ("max_epochs",): [{"wkii": 1}],
            ("initial",): [{"wkii": 1}],
            ("edits", 0, "weights"): [{"wkii": 1}, {"wiki": 0}, {"wiki": -1}, {"wiki": NAN}],
            ("edits", 0, "remove"): [["wkii"]],
            ("edits", 1, "quarantine"): [
                [["wkii", 1]],
                [["wiki", -1]],
                [["wiki", 10**6]],
                [["wiki"]],
                [["wiki", 1, 2]],
                [["wiki", "1"]],
                [["wiki", 1.5]],
                [["wiki", True]],
                [[1, 2]],
            ],
            ("edits", 0, "append"): [{"wiki": {}}, {"wkii": {"path": "x"}}],
            ("shuffle",): [{"kind": "full", "perm_type": "feistel"}],  # of an edited mix
        }.items()
        for value in values
    },
}


@cases(WRONG)
def test_what_is_no_number_no_name_or_no_pair_is_refused(given, act, said):
    held_to(given, act, said)


def test_a_mix_with_stages_may_be_seeded(three):
    """The seed is given after tl.mix(...); there is no other way to give it to a staged mix."""
    run = tl.mix(three, stages={6: {"wiki": 2}}).seed(7)
    assert run.describe()["mix"]["seed"] == 7
    assert picks_of(run) == picks_of(tl.mix(three).seed(7).edit(at=6, weights={"wiki": 2}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"remove": ["wiki", "code"]}, {"remove": ["code", "wiki"]}),
        ({"remove": ["wiki"]}, {"remove": ["wiki", "wiki"]}),
        ({"quarantine": [("wiki", 0), ("code", 0)]}, {"quarantine": [("code", 0), ("wiki", 0)]}),
        ({"quarantine": [("wiki", 0)]}, {"quarantine": [("wiki", 0), ("wiki", 0)]}),
    ],
)
def test_the_order_in_which_names_are_listed_is_no_part_of_the_identity(mixed, one, other):
    """Ruling 18: else a set of names has another fingerprint in every process (PYTHONHASHSEED)."""
    first, second = mixed.edit(at=5, **one), mixed.edit(at=5, **other)
    assert picks_of(first) == picks_of(second)
    assert first.fingerprint == second.fingerprint


def test_initial_counts_may_be_those_of_numpy(three):
    """The message is: found np.int64(4) (int64), allowed: an integer."""
    run = tl.mix(three, initial={"wiki": np.int64(40)})
    assert run.fingerprint == tl.mix(three, initial={"wiki": 40}).fingerprint


@pytest.mark.parametrize("half", [Fraction(1, 2), Decimal("0.5")], ids=repr)
def test_a_temperature_may_be_any_number_as_weights_may(three, half):
    run = tl.mix(three, temperature=half)
    assert run.fingerprint == tl.mix(three, temperature=0.5).fingerprint


@pytest.mark.parametrize("wrong", [-1, -(10**9)])
def test_counts_of_less_than_nothing_are_refused(mixed, wrong):
    with within(1), pytest.raises((IndexError, tl.ConfigError), match=str(wrong)):
        mixed.consumed(wrong)


@pytest.mark.parametrize("wrong", [10**6, 1.5, "1", None, True])
@pytest.mark.parametrize("kind", ["plain", "cut"])
def test_counts_behind_the_end_or_of_no_number_are_refused(mixed, kind, wrong):
    run = mixed if kind == "plain" else mixed.take(5)
    with pytest.raises((IndexError, tl.ConfigError), match=r"examples.*found|out of range"):
        run.consumed(wrong)


def test_items_before_the_first_are_refused_as_such(mixed):
    """Ruling 9: negative indices raise IndexError, and say which."""
    with pytest.raises(IndexError, match=r"^item -1: out of range"):
        mixed.index("wiki", [-1])
    with pytest.raises(TypeError, match="allowed: integers"):
        mixed.index("wiki", [1.5])


@pytest.mark.parametrize(
    "options",
    [
        {"initial": {"wiki": 10**18}},
        {"initial": {"wiki": 10**400}},
        {"weights": {"wiki": 1e-300}},
        {"weights": {"wiki": 1e308}},
        {"max_epochs": 1e300},
    ],
    ids=["initial", "a longer initial", "a tiny weight", "a huge weight", "a huge cap"],
)
def test_numbers_that_cannot_be_counted_with_are_refused(three, options):
    name = next(iter(options))
    with within(2), pytest.raises(tl.ConfigError, match=rf"^{name}(\.wiki)?: found"):
        len(tl.mix(three, **options))


# -- sources that grow -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """(documents 0 to 11 as they were, the store with 12 to 19 after them)."""
    folder = tmp_path_factory.mktemp("grown") / "w"
    rows = [{"text": chr(65 + i) * 16, "id": str(i)} for i in range(20)]
    options = {"tokenizer": "bytes", "id_key": "id", "progress": False}
    old = tl.build(rows[:12], folder, **options)
    windows = old.windows(16)
    return windows, tl.build(rows[12:], folder, append=True, **options)


def test_an_append_comes_back_from_the_description(grown):
    old, new = grown
    run = tl.mix({"w": old}, max_epochs=2).edit(at=4, append={"w": new}, weights={"w": 3})
    assert len(run) == len(old) + 8
    back = again(run)
    assert back.fingerprint == run.fingerprint
    assert np.array_equal(back.batch(range(20)).tokens, run.batch(range(20)).tokens)


@pytest.mark.parametrize(
    ("cap", "rows"),
    [
        (1, 20),
        (2, 40),
        (1.5, 30),
        (0.5, 10),
    ],
)
def test_a_cap_in_parts_of_epochs_holds_for_a_source_that_grew(grown, cap, rows):
    """12 rows and then 20 of each epoch; at=4 is in the first."""
    old, new = grown
    run = tl.mix({"w": old.epochs(None)}, max_epochs={"w": cap}).edit(at=4, append={"w": new})
    assert len(run) == rows


@pytest.mark.parametrize("together", [False, True])
def test_a_document_that_was_appended_may_be_put_in_quarantine(grown, together):
    old, new = grown
    run = tl.mix({"w": old.epochs(2)})
    if together:
        run = run.edit(at=4, append={"w": new}, quarantine=[("w", 15)])
    else:
        run = run.edit(at=4, append={"w": new}).edit(at=4, quarantine=[("w", 15)])
    batch = run.batch(range(len(run)))
    shown = {
        int(tokens[0])
        for tokens, real in zip(batch.tokens, batch.attention_mask, strict=True)
        if real.any()
    }
    assert shown == {65 + i for i in range(20) if i != 15}
