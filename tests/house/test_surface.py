"""What users rely on is pinned: exported names, command line options, signatures."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
import surface
from tree import ROOT

import tokenloom as tl
from tokenloom.cli import parser


def test_exported_names_are_sorted_and_pinned():
    assert tl.__all__ == sorted(tl.__all__)
    assert tl.__all__ == [
        "Batch",
        "BlockShuffle",
        "ConfigError",
        "Dataset",
        "InputError",
        "Loader",
        "LoaderExhausted",
        "MissingExtra",
        "NoTrainedTokens",
        "StateError",
        "Store",
        "StoreBusy",
        "StoreCorrupt",
        "StoreError",
        "StoreExists",
        "StoreNotFound",
        "TokenizerError",
        "TokenloomError",
        "WorkerError",
        "__version__",
        "audit",
        "blame",
        "build",
        "check_batch",
        "diff",
        "from_config",
        "load",
        "mix",
        "open",
        "plan_packing",
        "save",
    ]
    assert len(tl.__all__) - 1 <= 30  # beside the version
    assert all(getattr(tl, name) is not None for name in tl.__all__)


def test_names_signatures_and_commands_are_those_of_the_golden_file():
    """Renew it with `python tests/house/surface.py > tests/golden/surface.txt`, knowingly."""
    golden = (ROOT / "tests/golden/surface.txt").read_text().splitlines()
    found = surface.surface().splitlines()
    assert [line for line in golden if line not in found] == [], "gone or changed"
    assert [line for line in found if line not in golden] == [], "new"
    assert found == golden


def test_a_signature_shows_what_would_break_a_caller():
    def one(a: int, *, b: str = "x") -> None: ...
    def two(a: int, *, b: str = "y") -> None: ...
    def three(a: int, b: str = "x") -> None: ...
    def four(a: int, *more: int, b: str = "x", **rest: int) -> None: ...

    assert surface.signature(one) == "(a: int, *, b: str = 'x') -> None"
    assert surface.signature(four) == "(a: int, *more: int, b: str = 'x', **rest: int) -> None"
    assert len({surface.signature(each) for each in (one, two, three, four)}) == 4


def test_members_of_a_class_are_told_whether_they_are_methods_properties_or_attributes():
    lines = set(surface.class_lines("Store", tl.Store))
    assert {"class Store", "Store.path: an attribute", "Store.digest -> str"} <= lines
    assert "Store.__len__(self) -> int" in lines
    assert any(line.startswith("Store.pack(self, seq_len: int, *, strategy: str") for line in lines)
    assert not any("._" in line and "__" not in line for line in lines)


@pytest.mark.parametrize("room", surface.ROOMS)
def test_a_public_room_says_what_it_exports_and_all_of_it_is_there(room):
    module = importlib.import_module(f"tokenloom.{room}")
    assert sorted(module.__all__) == sorted(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_promised_parameters_of_build_are_there_with_their_defaults():
    parameters = inspect.signature(tl.build).parameters
    promised = {
        "text_key": "text",
        "id_key": None,
        "workers": None,
        "executor": "local",
        "add_bos": None,
        "add_eos": None,
        "on_error": "raise",
        "progress": None,
        "vocab_size": None,
    }
    assert {name: parameters[name].default for name in promised} == promised
    assert parameters["tokenizer"].default is inspect.Parameter.empty
    assert list(parameters)[:2] == ["inputs", "out"]


@pytest.mark.parametrize(
    "name",
    [
        "num_documents",
        "num_tokens",
        "lengths",
        "document",
        "tokens",
        "metadata",
        "digest",
        "vocab_size",
        "tokenizer",
        "reads",
        "verify",
    ],
)
def test_a_store_has_what_was_promised(name):
    assert hasattr(tl.Store, name)


def test_commands_and_their_options_are_pinned():
    commands = parser()._subparsers._group_actions[0].choices
    assert sorted(commands) == [
        "at",
        "audit",
        "bench",
        "blame",
        "build",
        "check",
        "completion",
        "convert",
        "dataset",
        "diff",
        "digest",
        "edit",
        "evaluate",
        "explore",
        "export",
        "find",
        "gc",
        "info",
        "init",
        "next",
        "pack-plan",
        "plan",
        "report",
        "seal",
        "show",
        "simulate",
        "splice",
        "state",
        "verify",
        "where",
    ]
    common = {"--help", "-h", "--json", "--debug", "--quiet"}
    options = {
        name: sorted({o for a in sub._actions for o in a.option_strings} - common)
        for name, sub in commands.items()
    }
    foreign = {"--bos", "--dtype", "--eos", "--format", "--missing", "--vocab-size"}
    assert options["info"] == sorted({"--snapshot", "--svg", "--seal"} | foreign)
    assert options["seal"] == sorted({"--to"} | foreign)
    assert {"--doc", "--limit", "--snapshot", "--start", "--text"} < set(options["show"])
    assert {"--examples", "--tokenized", "--first", "--row"} < set(options["show"])
    assert options["show"] == options["dataset"]
    assert options["verify"] == sorted({"--executor", "--seal"} | foreign)
    assert options["check"] == ["--schema", "--set"]
    assert options["init"] == ["--batch-size", "--out", "--seq-len", "-o"]
    pinned = ["--old-snapshots", "--pin", "--pin-for", "--unfinished"]
    assert options["gc"] == ["--dry-run", "--idle-hours", *pinned]
    assert {"--out", "--tokenizer", "--workers", "--append", "--engine", "--verify-all"} <= set(
        options["build"]
    )


def test_benchmarks_and_their_options_are_pinned():
    bench = parser()._subparsers._group_actions[0].choices["bench"]
    benches = bench._subparsers._group_actions[0].choices
    assert sorted(benches) == ["data-loading", "permutation"]
    loading = {o for a in benches["data-loading"]._actions for o in a.option_strings}
    assert {"--steps", "--batch-size", "--prefetch-batches", "--num-examples"} <= loading
    assert {"--seq-len", "--strategies", "--era-length", "--compare"} <= loading
    options = {o for a in benches["permutation"]._actions for o in a.option_strings}
    assert options == {
        "-h",
        "--help",
        "--json",
        "--debug",
        "--quiet",
        "--n",
        "--repeats",
        "--seed",
        "--seq-len",
        "--strategies",
        "--era-length",
        "--window-blocks",
        "--lanes",
        "--batch-size",
        "--io-block-size",
        "--perm-type",
        "--compare",
        "--tolerance",
    }


def test_every_exception_is_the_builtin_one_would_guess():
    assert issubclass(tl.StoreNotFound, FileNotFoundError)
    assert issubclass(tl.StoreExists, FileExistsError)
    assert issubclass(tl.StoreError, OSError)
    assert issubclass(tl.ConfigError, ValueError)
    assert issubclass(tl.MissingExtra, ImportError)
    assert all(
        issubclass(getattr(tl, name), tl.TokenloomError)
        for name in tl.__all__
        if name.startswith(("Store", "Input", "Missing", "Token", "Worker", "Config"))
        and name != "Store"
    )


def modules():
    for info in pkgutil.walk_packages(tl.__path__, "tokenloom."):
        # those of JAX run in a process of their own, see tests/integrations/test_jax.py
        if not info.name.endswith(("__main__", "models.in_jax")) and (
            "integrations.jax" not in info.name
        ):
            yield info.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_public_name_exists_and_has_a_docstring(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        value = getattr(module, public)
        if callable(value) and getattr(value, "__module__", "").startswith("tokenloom"):
            assert inspect.getdoc(value), f"{name}.{public}"
