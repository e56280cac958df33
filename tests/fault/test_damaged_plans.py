"""Plans and sums kept in files: other processes find them, and damaged ones are not believed."""

import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl

SIZES = [[3, 9, 1, 5, 30], [7] * 12, [2, 40, 8]]


@pytest.fixture
def folder(tmp_path):
    with keep_plans(tmp_path / "cache", cost_stride_items=4) as made:
        yield made


def files(folder, kind):
    return sorted(folder.glob(f"{kind}-*.parts"))


def test_a_mix_in_another_process_finds_its_sums(folder):
    """The same names, the same runs: nothing is added up twice."""
    with ToyStore(numbered(SIZES)) as toy:

        def mixed(seed=0):
            sources = {"a": toy.store.pack(16), "b": toy.store.windows(16)}
            return tl.mix({n: ds.shuffle().epochs(None) for n, ds in sources.items()}).seed(seed)

        mixed().picked(range(40))  # the first items need only their own prices
        assert not files(folder, "sums")
        far = range(10**6, 10**6 + 8)
        first = mixed().picked(far)
        before = files(folder, "sums")
        assert before
        again = mixed().picked(far)
        assert (again[0], again[1].tolist()) == (first[0], first[1].tolist())
        assert files(folder, "sums") == before
        mixed(seed=1).picked(far)  # control: another order has sums of its own
        assert len(files(folder, "sums")) > len(before)


def mixed(toy):
    sources = {"a": toy.store.pack(16).shuffle(), "b": toy.store.windows(16).shuffle()}
    return tl.mix({n: ds.epochs(None) for n, ds in sources.items()}, cost="loss_tokens").seed(1)


def names(folder):
    return {path.name.split("-")[0] for path in folder.iterdir()}


@pytest.mark.parametrize("damage", ["nothing", "cut", "a flipped bit"])
def test_a_damaged_file_is_worked_out_again(folder, damage):
    """The numbers of rows, their tokens, what is trained of them, and sums of these."""
    with ToyStore(numbered(SIZES)) as toy:

        def found():
            run = mixed(toy)
            rows = run.spans(range(40)).document.tolist()
            return run.picked(range(400, 440))[0], run.consumed(10**6), run.tokens_in(777), rows

        right = found()
        kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        assert names(folder) >= {"sums", "trained", "pack", "packed"}
        for path, raw in kept.items():
            wrong = {"nothing": b"", "cut": raw[:-3], "a flipped bit": None}[damage]
            path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]) if wrong is None else wrong)
            assert found() == right, path.name
            assert path.read_bytes() == raw, path.name


def test_where_nothing_can_be_kept_it_is_in_memory(folder):
    folder.write_text("in the way")
    with ToyStore(numbered(SIZES)) as toy:
        run = toy.store.pack(16).shuffle()
        assert run.tokens_in(len(run)) == sum(map(sum, SIZES))
        assert mixed(toy).consumed(10**6)
    assert folder.read_text() == "in the way"
