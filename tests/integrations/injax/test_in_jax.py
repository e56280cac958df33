"""JAX: global arrays from the rows of each process, passes, states, padding, pytrees."""

import importlib
import os
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError, StateError

jax = Mesh = PartitionSpec = LEAVES = batches = share_of = None  # set by `imported`


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports JAX when a test runs, not when every worker collects them."""
    jax = importlib.import_module("jax")
    ours = importlib.import_module("tokenloom.integrations.jax")
    rows = importlib.import_module("tokenloom.integrations.jax.global_batches")
    globals().update(
        jax=jax,
        Mesh=jax.sharding.Mesh,
        PartitionSpec=jax.sharding.PartitionSpec,
        LEAVES=ours.LEAVES,
        batches=ours.batches,
        share_of=rows.share_of,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("jax") / "store")


@pytest.fixture(scope="module")
def run(store):
    return toy_run(store, epochs=1)


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()), ("data",))


def wanted_of(run, size):
    """What a plain loader delivers, shifted by hand, cell by cell."""
    found = []
    for batch in tl.Loader(run, size, 0, 1):
        targets = np.zeros_like(batch.tokens)
        for row, cell in zip(*np.nonzero(batch.loss_mask), strict=True):
            targets[row, cell] = batch.tokens[row, cell + 1]
        found.append(
            {
                "inputs": batch.tokens,
                "targets": targets,
                "loss_mask": batch.loss_mask,
                "segment_ids": batch.segment_ids,
                "position_ids": batch.position_ids,
            }
        )
    return found


def assert_same(batch, wanted):
    for name, array in wanted.items():
        assert isinstance(batch[name], jax.Array)
        np.testing.assert_array_equal(np.asarray(batch[name]), array, name)


def test_a_batch_on_one_device_is_that_of_the_loader_with_targets_shifted(run):
    made = list(batches(run, 4))
    assert len(made) == len(batches(run, 4)) == 9
    for batch, wanted in zip(made, wanted_of(run, 4), strict=True):
        assert set(batch) == {*wanted, "examples_after"}
        assert_same(batch, wanted)


def test_rows_are_spread_over_the_devices_of_the_axis_in_order(run, mesh):
    for batch, wanted in zip(batches(run, 8, mesh=mesh), wanted_of(run, 8), strict=True):
        assert_same(batch, wanted)
        assert batch["inputs"].sharding.spec == PartitionSpec("data")
        for shard in batch["inputs"].addressable_shards:
            place = mesh.devices.tolist().index(shard.device)
            rows = slice(2 * place, 2 * place + 2)
            np.testing.assert_array_equal(np.asarray(shard.data), wanted["inputs"][rows])


def test_rows_are_repeated_along_the_other_axes(run, mesh):
    square = Mesh(mesh.devices.reshape(2, 2), ("data", "model"))
    for batch, wanted in zip(batches(run, 6, mesh=square), wanted_of(run, 6), strict=True):
        assert_same(batch, wanted)
        shards = {(one.index[0].start or 0) for one in batch["inputs"].addressable_shards}
        assert shards == {0, 3}
    both = next(iter(batches(run, 8, mesh=square, axis=("data", "model"))))
    assert len({str(one.index) for one in both["inputs"].addressable_shards}) == 4


def test_rows_that_do_not_divide_are_refused_with_the_numbers(run, mesh):
    with pytest.raises(ConfigError, match=r"6 rows.*4"):
        batches(run, 6, mesh=mesh)
    with pytest.raises(ConfigError, match="5 rows"):
        batches(run, [(0, 8), (16, 5)], mesh=mesh)


def test_padded_rows_are_filler_without_loss_and_change_nothing_else(run, mesh):
    loop = batches(run, 6, mesh=mesh, pad=True, fields=("index", "loss_weights", "labels"))
    assert loop.padded == {6: 2}
    assert "filler in a step {6: 2}" in repr(loop)
    for batch, wanted in zip(loop, wanted_of(run, 6), strict=True):
        assert_same({name: one[:6] for name, one in batch.items()}, wanted)
        assert batch["inputs"].shape == (8, 8)
        for name in ("targets", "loss_mask", "loss_weights", "segment_ids"):
            assert not np.asarray(batch[name][6:]).any()
        assert (np.asarray(batch["index"][6:]) == -1).all()
        assert (np.asarray(batch["labels"][6:]) == -100).all()


def test_filler_is_that_of_the_loaders_own_padding(run, mesh):
    names = ("inputs", "targets", "loss_mask", "segment_ids", "position_ids")
    theirs = list(batches(run, 8, end="pad"))[-1]  # 37 rows: 3 of filler
    ours = next(iter(batches(run, 6, mesh=mesh, pad=True)))
    for name in names:
        np.testing.assert_array_equal(np.asarray(theirs[name][-1]), np.asarray(ours[name][-1]))


def test_micro_batches_have_an_axis_in_front(run, mesh):
    batch = next(iter(batches(run, 8, mesh=mesh, accumulate=2)))
    assert batch["inputs"].shape == (2, 4, 8)
    assert batch["inputs"].sharding.spec == PartitionSpec(None, "data")
    (wanted, *_) = wanted_of(run, 8)
    np.testing.assert_array_equal(np.asarray(batch["inputs"]).reshape(8, 8), wanted["inputs"])
    with pytest.raises(ConfigError, match="16"):
        batches(run, 8, mesh=mesh, accumulate=4)


def test_a_state_comes_back_from_arrays_as_checkpoints_of_jax_restore_it(run):
    loop = batches(run, 4)
    next(iter(loop))
    state = loop.state_dict()
    again = batches(run, 4)
    again.load_state_dict(
        {name: np.asarray(v) if isinstance(v, int) else v for name, v in state.items()}
    )
    assert again.state_dict() == state


def test_a_loop_that_a_state_was_loaded_under_says_so(run):
    loop = batches(run, 4)
    stream = iter(loop)
    next(stream)
    loop.load_state_dict(run.state(8))
    with pytest.raises(StateError, match="loop"):
        next(stream)


def test_maxtext_gets_its_names_and_its_mask_is_ours(run):
    ours, theirs = (next(iter(batches(run, 4, contract=name))) for name in ("jax", "maxtext"))
    assert set(theirs) == {
        *("inputs", "inputs_segmentation", "inputs_position"),
        *("targets", "targets_segmentation", "targets_position", "examples_after"),
    }
    assert ((theirs["targets_segmentation"] != 0) == ours["loss_mask"]).all()
    assert (theirs["targets"] == ours["targets"]).all()
    assert (theirs["inputs_position"] == ours["position_ids"]).all()


def test_targets_are_in_range_so_that_a_gather_gives_no_nan(run):
    ours, plain = (next(iter(batches(run, 4, contract=name))) for name in ("jax", "plain"))
    logits = jax.numpy.zeros((*ours["inputs"].shape, 1000))

    def losses(targets):
        return jax.numpy.take_along_axis(logits, targets[..., None], -1, mode="fill")

    assert not bool(jax.numpy.isnan(losses(ours["targets"])).any())
    assert int(plain["targets"].min()) == -100  # what JAX would take for an index
    assert int(ours["targets"].min()) == 0


def test_numbers_that_jax_would_cut_are_never_wrong(run):
    loop = batches(run, 4)
    small, large = np.array([5, 5]), np.array([2**31, 2**31])
    assert loop._narrow("examples_after", small).tolist() == [5, 5]
    with pytest.warns(UserWarning, match="examples_after"):
        assert loop._narrow("examples_after", large).tolist() == [-1, -1]
    with pytest.raises(ConfigError, match="index"):
        loop._narrow("index", large)
    assert int(np.asarray(jax.numpy.asarray(large))[0]) != 2**31  # what JAX does, without a word


def test_arrays_whose_shape_varies_are_refused(run):
    with pytest.raises(ConfigError, match="cu_seqlens"):
        batches(run, 4, fields=("cu_seqlens",))


@pytest.mark.parametrize(
    ("table", "process", "share"),
    [
        ([[0], [0], [1], [1]], 1, (1, 2, 2)),
        ([[1], [1], [0], [0]], 1, (0, 2, 2)),  # the order of the mesh decides, not the number
        ([[0, 1], [0, 1]], 1, (0, 1, 2)),  # model axis over processes: the same rows
        ([[0, 1], [2, 3]], 2, (1, 2, 1)),
    ],
)
def test_a_process_is_the_rank_that_its_devices_say(table, process, share):
    assert share_of(np.array(table), process) == share


@pytest.mark.parametrize("table", [[[0], [1], [0], [1]], [[0], [0], [1]], [[0], [1], [1], [0]]])
def test_meshes_whose_processes_have_no_neighbouring_places_are_refused(table):
    with pytest.raises(ConfigError, match="mesh"):
        share_of(np.array(table), 0)


def test_a_mesh_without_the_axis_or_this_process_is_refused(run, mesh):
    with pytest.raises(ConfigError, match="axis: found 'dp'"):
        batches(run, 4, mesh=mesh, axis="dp")
    with pytest.raises(ConfigError, match="process 2"):
        share_of(np.array([[0], [1]]), 2)


def test_a_batch_is_a_pytree_of_the_arrays_that_a_step_computes_with(run):
    batch = next(tl.Loader(run, 4, 0, 1))
    doubled = jax.tree.map(lambda one: one * 2, batch)
    assert isinstance(doubled, dict)
    assert tuple(doubled) == LEAVES
    assert (doubled["input_ids"] == batch.tokens * 2).all()
    assert int(jax.jit(lambda one: one["input_ids"].sum())(batch)) == batch.tokens.sum()
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(batch)]
    assert paths[0] == "['input_ids']"
    folded = jax.tree.map(lambda one: one.shape, batch.folded(2))
    assert folded["labels"] == (2, 2, 8)


TWO = """
    import sys
    import jax, numpy as np
    port, process, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    import tokenloom as tl
    from jax.sharding import Mesh
    from tokenloom.integrations.jax import batches
    run = tl.open(folder).windows(8).shuffle().seed(7)
    mesh = Mesh(np.array(jax.devices()).reshape(4), ("data",))
    loop = batches(run, 8, mesh=mesh, fields=("index",))
    add = jax.jit(lambda b: (b["inputs"] * (1 + jax.numpy.arange(8)[:, None])).sum())
    for batch in loop:
        rows = [int(i) for s in batch["index"].addressable_shards for i in np.asarray(s.data)]
        print("ROWS", process, *rows, "SUM", int(add(batch)))
"""


@pytest.mark.slow
def test_two_processes_of_two_devices_hold_the_rows_of_one(store, run, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    script = tmp_path / "two.py"
    script.write_text(textwrap.dedent(TWO))
    flags = "--xla_force_host_platform_device_count=2"
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(port), str(one), str(store.path)],
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for one in range(2)
    ]
    outputs = [one.communicate(timeout=300) for one in processes]
    lines = [
        [line.split() for line in out.splitlines() if line.startswith("ROWS")] for out, _ in outputs
    ]
    assert len(lines[0]) == len(lines[1]) == 4, outputs[0][1][-2000:] + outputs[1][1][-2000:]
    for step, (first, second) in enumerate(zip(*lines, strict=True)):
        tokens = tl.Loader(run, 8, 0, 1).seek(step).__next__().tokens
        wanted = int((tokens * (1 + np.arange(8)[:, None])).sum())
        assert [int(i) for i in first[2:6]] == list(range(8 * step, 8 * step + 4))
        assert [int(i) for i in second[2:6]] == list(range(8 * step + 4, 8 * step + 8))
        assert int(first[-1]) == int(second[-1]) == wanted
