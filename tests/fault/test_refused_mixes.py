"""What no mix or edit can mean is refused at once, with the key and the value."""

import copy
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from mixtoys import SEQ_LEN, toy
from refusals import refused

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")


class Given:
    """What a case may use: three sources, their mix, one more source, a store."""

    def __init__(self, root):
        self.store = toy(root / "wiki", [SEQ_LEN] * 12)
        sizes = {"code": 6, "books": 9, "web": 4}
        made = {name: toy(root / name, [SEQ_LEN] * n).windows(SEQ_LEN) for name, n in sizes.items()}
        self.web = made.pop("web")
        self.three = {"wiki": self.store.windows(SEQ_LEN).shuffle(), **made}
        self.mixed = tl.mix(self.three).seed(1)
        self.endless = {name: ds.epochs(None) for name, ds in self.three.items()}

    def mix(self, **options):
        return len(tl.mix(self.three, **options))

    def edit(self, **options):
        return self.mixed.edit(**{"at": 5} | options)

    def described(self, *path, value):
        """The edited mix from a description in which one value was changed."""
        run = self.edit(weights={"wiki": 2}, remove=["code"]).edit(at=10, quarantine=[("wiki", 1)])
        plain = json.loads(json.dumps(run.describe()))
        inner = plain["mix"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = copy.deepcopy(value)
        made = tl.from_config(plain)
        return made.batch(range(len(made)))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return Given(tmp_path_factory.mktemp("refused"))


NAN, INF = math.nan, math.inf

MIXES = [  # setting, wrong values, what is named
    ("weights", [{"wiki": w} for w in (0, -1, NAN, INF, False, "2", None, 1e-300)], "weights.wiki"),
    ("weights", [{"wkii": 1}, {"wiki": Fraction(-1, 3)}], "weights.w"),
    ("weights", [{}, [1, 1, 2], "wiki", 3, 0], "weights"),
    ("temperature", [-1, NAN, INF, "1", 1j, True, 1000], "temperature"),
    ("max_epochs", [0, -1, NAN, INF, "2", [1, 1, 1], 1e300], "max_epochs"),
    ("max_epochs", [{"wiki": 0}, {"wiki": 0.001}, {"wiki": True}, {"wkii": 1}], "max_epochs.w"),
    ("initial", [{"wiki": w} for w in (-1, 1.5, "1", None, True, 10**18)], "initial.wiki"),
    ("initial", [{"wkii": 1}, 5], "initial"),
    ("rule", ["weight", None], "rule"),
    ("cost", ["token", 3, False], "cost"),
    ("stop", ["repeat"], "stop"),
    ("stages", ["x", 5, [10], {-1: {"wiki": 2}}, {1.5: {"wiki": 2}}, {"10": {"wiki": 2}}], ""),
    ("stages", [{5: {"wkii": 2}}, {5: {"wiki": 0}}, {5: {"weights": {"wiki": 5}}}], "5"),
    ("stages", [{10**9: {"wiki": 2}}], "1,000,000,000"),
]


@pytest.mark.parametrize(("setting", "values", "named"), MIXES)
def test_a_setting_of_a_mix_is_refused(given, setting, values, named):
    for value in values:
        refused(lambda value=value: given.mix(**{setting: value}), tl.ConfigError, named)


EDITS = [
    ("at", [-1, 1.5, 5.0, "5", True, None, NAN, [5], np.float64(5), 3 * 10**14], "at"),
    ("weights", [{"wiki": w} for w in (0, -1, NAN, INF, False, "2")], "edit.weights.wiki"),
    ("weights", [{"wkii": 1}, {"weights": {"wiki": 5}}, [1, 1], 3], "edit.weights"),
    ("add", [5, {"": None}, {3: None}, {"x": None}], ""),
    ("remove", ["wiki", 5, None, ["cod"]], "edit.remove"),
    ("quarantine", ["wiki", 5, None, ("wiki", 1), ["wiki"], [("wiki",)]], "edit.quarantine"),
    ("quarantine", [[("wiki", d)] for d in ("0", 1.5, True, None, NAN)], "edit.quarantine"),
    ("quarantine", [[("wkii", 0)]], "edit.quarantine.wkii"),
    ("append", [5, {"wkii": None}, {"wiki": None}, {"wiki": 3}], "edit.append"),
]


@pytest.mark.parametrize(("setting", "values", "named"), EDITS)
def test_a_setting_of_an_edit_is_refused(given, setting, values, named):
    for value in values:
        refused(lambda value=value: given.edit(**{setting: value}), tl.ConfigError, named)


CALLS = {  # of other kinds: what is asked, and what is named
    "no source": (lambda g: tl.mix({}), ["mix"]),
    "a store": (lambda g: tl.mix({"a": g.store}), ["mix.a", "Store"]),
    "an empty name": (lambda g: tl.mix({"": g.web}), ["''"]),
    "a name that cannot be written": (lambda g: tl.mix({"\ud800": g.web}), ["name"]),
    "a mix in a mix": (lambda g: tl.mix({"a": g.mixed}), ["mix.a"]),
    "a source that is cut": (lambda g: tl.mix({"a": g.web.take(3)}), ["mix.a", "take(3)"]),
    "rows of another length": (
        lambda g: tl.mix({"a": g.web, "b": g.store.windows(4)}),
        ["seq_len"],
    ),
    "rows with one more cell": (
        lambda g: tl.mix({"a": g.web, "b": g.store.windows(SEQ_LEN, lookahead=True)}),
        ["cells"],
    ),
    "labels of two layouts": (
        lambda g: tl.mix({"a": g.web, "b": g.store.windows(SEQ_LEN, label_layout="shifted")}),
        ["label_layout"],
    ),
    "epochs of a mix": (lambda g: g.mixed.epochs(2), ["epochs"]),
    "weights in turn": (lambda g: g.mix(rule="round_robin", weights={"wiki": 2}), ["round_robin"]),
    "temperature and weights": (
        lambda g: g.mix(temperature=1, weights={"wiki": 1}),
        ["temperature", "weights"],
    ),
    "blocks of nothing": (lambda g: g.mix(rule="rounds", block=0), ["block", 0]),
    "a stage inside a block": (
        lambda g: g.mix(rule="rounds", block=4, stages={10: {"wiki": 2}}),
        [10, 8, 12],
    ),
    "an endless source that never ends": (
        lambda g: len(tl.mix({"a": g.web.epochs(None), "b": g.web}, stop="all_exhausted")),
        ["stop", "'a'"],
    ),
    "an endless source that joins": (
        lambda g: tl.mix(g.three, stop="all_exhausted").edit(at=5, add={"w": g.web.epochs(None)}),
        ["stop", "'w'"],
    ),
    "too far": (lambda g: tl.mix(g.endless).edit(at=10**18), ["at"]),
    "an edit in the past": (lambda g: g.edit(at=10).edit(at=9), ["at=9", 10]),
    "an edit after the end": (lambda g: g.edit(at=len(g.mixed) + 1), ["at="]),
    "an edit after the cut": (lambda g: g.mixed.take(10).edit(at=11), ["at=11", "10 examples"]),
    "an edit of a shuffled mix": (lambda g: g.mixed.shuffle().edit(at=5), ["edit", "shuffled"]),
    "an edit inside a block": (
        lambda g: tl.mix(g.three, rule="rounds", block=6).edit(at=9, remove=["code"]),
        ["at=9", 6, 12],
    ),
    "a name twice": (lambda g: g.edit(add={"wiki": g.web}), ["edit.add.wiki"]),
    "a name that is gone": (
        lambda g: g.edit(remove=["code"]).edit(at=6, add={"code": g.web}),
        ["edit.add.code"],
    ),
    "a weight of a source that is gone": (
        lambda g: g.edit(remove=["code"]).edit(at=6, weights={"code": 1}),
        ["edit.weights.code"],
    ),
    "join and leave at once": (
        lambda g: g.edit(add={"web": g.web}, remove=["web"]),
        ["edit", "remove", "web"],
    ),
    "weigh and remove at once": (
        lambda g: g.edit(weights={"wiki": 2}, remove=["wiki"]),
        ["edit", "wiki"],
    ),
    "rows of another length join": (
        lambda g: g.edit(add={"web": g.store.windows(4)}),
        ["seq_len"],
    ),
    "append what did not grow": (lambda g: g.edit(append={"wiki": g.store}), ["edit.append.wiki"]),
    "a seed after an edit": (lambda g: g.edit().seed(3), ["seed"]),
    "a shuffle after an edit": (lambda g: g.edit().shuffle(), ["shuffle"]),
    "a negative seed": (lambda g: g.mixed.seed(-1), ["seed", -1]),
    "a seed that is too large": (lambda g: g.mixed.seed(1 << 64), ["seed"]),
    "a take of less than nothing": (lambda g: g.mixed.take(-1), ["take", -1]),
    "rows of an unknown source": (lambda g: g.mixed.rows_of("wkii"), ["wkii"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_refused(given, name):
    call, named = CALLS[name]
    refused(lambda: call(given), tl.ConfigError, *named)


DESCRIBED = [
    (("weights", "wiki"), 0),
    (("wieghts",), {}),
    (("take",), "x"),
    (("take",), -5),
    (("max_epochs",), {"wkii": 1}),
    (("initial",), {"wkii": 1}),
    (("edits", 0, "at"), "5"),
    (("edits", 0, "at"), 11),
    (("edits", 0, "weights"), {"wkii": 1}),
    (("edits", 0, "remove"), ["wkii"]),
    (("edits", 1, "quarantine"), [["wkii", 1]]),
    (("edits", 1, "quarantine"), [["wiki", 1.5]]),
    (("edits", 0, "append"), {"wiki": {}}),
    (("shuffle",), {"kind": "full", "perm_type": "feistel"}),  # of an edited mix
]


@pytest.mark.parametrize(("path", "value"), DESCRIBED)
def test_a_description_with_a_wrong_value_is_refused(given, path, value):
    refused(lambda: given.described(*path, value=value), tl.ConfigError)


def test_a_description_with_two_sources_of_one_name_is_refused(given):
    plain = given.mixed.describe()
    plain["sources"][1]["name"] = "wiki"
    refused(lambda: tl.from_config(plain), tl.ConfigError, "wiki")


def test_an_endless_mix_is_not_shuffled(given):
    run = tl.mix(given.endless)
    for shuffled in (
        lambda: run.shuffle(),
        lambda: run.shuffle(10),
        lambda: run.take(20).shuffle(),
    ):
        with pytest.raises((TypeError, tl.ConfigError), match="shuffle"):
            shuffled()


def test_documents_and_examples_that_are_not_there_are_index_errors(given):
    for wrong in (-1, 10**6):
        refused(lambda w=wrong: given.edit(quarantine=[("wiki", w)]), IndexError, wrong, "wiki")
        refused(lambda w=wrong: given.mixed.picked([w]), IndexError, wrong)
        with pytest.raises((IndexError, tl.ConfigError)):
            given.mixed.consumed(wrong)
    refused(lambda: given.mixed.index("wiki", [-1]), IndexError, -1)
    for ask in (given.mixed.picked, given.mixed.locate, given.mixed.batch):
        with pytest.raises(TypeError):
            ask([1.5])
    far = tl.mix({"a": given.web.epochs(None)})
    assert far.picked([10**12])[1].tolist() == [10**12]
