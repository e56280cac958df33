"""The loop learns, is exact to the bit, and resumes."""

import pytest
from science.training import CHECKPOINT, Recipe, resume_training, train

import tokenloom as tl


def spliced(store, **options):
    usual = {"content_length": 16, "position_scheme": "relative"}
    return store.splice(48, **usual | options).shuffle().epochs(None).seed(3)


def test_the_same_training_twice_has_the_same_bits(small, trio):
    recipe = Recipe(steps=12, batch_size=4)
    curves = [train(small(seed=5), spliced(trio), recipe) for _ in range(2)]
    assert curves[0] == curves[1]
    assert curves[0][-1] < curves[0][0]
    assert train(small(seed=6), spliced(trio), recipe) != curves[0]


@pytest.mark.parametrize("killed_in", [0, 5, 7])
def test_a_training_that_stops_anywhere_ends_with_the_same_curve(small, trio, tmp_path, killed_in):
    recipe = Recipe(steps=12, batch_size=4)
    whole = train(small(), spliced(trio), recipe)
    told = {}

    def tell(step, loss):
        told[step] = loss
        if step == killed_in and len(told) == killed_in + 1 and not stopped:
            stopped.append(step)
            raise KeyboardInterrupt

    stopped = []
    with pytest.raises(KeyboardInterrupt):
        resume_training(small(), spliced(trio), recipe, tmp_path, every=3, tell=tell)
    assert (tmp_path / CHECKPOINT).exists() == (killed_in >= 3)
    # other weights than the first ones: all that counts is in the checkpoint
    seed = 9 if killed_in >= 3 else 0
    resume_training(small(seed=seed), spliced(trio), recipe, tmp_path, every=3, tell=tell)
    assert [told[step] for step in range(12)] == whole


def test_the_rate_rises_and_falls_as_the_recipe_says():
    recipe = Recipe(steps=200, warm_up=20)
    factors = [recipe.factor(step) for step in range(201)]
    assert factors[0] == pytest.approx(0.05, rel=0.01)
    assert max(factors) > 0.97
    assert factors.index(max(factors)) == 19
    assert factors[-1] == pytest.approx(0.05)


def test_batch_size_comes_from_the_run_file_if_the_recipe_has_none(small, trio, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        f"sources: {{text: {{store: {trio.path}, pack: 64}}}}\nloader: {{batch_size: 2}}\n"
    )
    run = tl.load(path)
    assert len(train(small(), run.epochs(None), Recipe(steps=2, batch_size=2))) == 2
    assert len(train(small(), run, Recipe(steps=1))) == 1
