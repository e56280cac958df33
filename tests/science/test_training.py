"""The loop learns, is exact to the bit, and resumes."""

import numpy as np
import pytest
import torch
from science.training import CHECKPOINT, Recipe, batch_loss, resume_training, train

import tokenloom as tl
from tokenloom.evaluate import pz

RECIPE = Recipe(steps=100, batch_size=4, rate=1e-2)


def spliced(store, **options):
    usual = {"content_length": 16, "position_scheme": "relative"}
    return store.splice(48, **usual | options).shuffle().epochs(None).seed(3)


def test_tr_01_three_documents_are_learned_and_prompts_continue_their_own_document(small, trio):
    model = small()
    losses = train(model, spliced(trio), RECIPE)
    assert losses[-1] < 0.5 * losses[0]
    found = pz(model, trio, prefix=8, suffix=8, stride=4, progress=False).windows
    assert set(found.document.tolist()) == {0, 1, 2}
    assert found.greedy.mean() > 0.9


def test_tr_02_perplexity_is_below_2_at_starts_after_the_first(small, trio):
    model = small()
    train(model, spliced(trio), RECIPE)
    found = pz(model, trio, prefix=8, suffix=8, stride=1, progress=False).windows
    perplexity = np.exp(-found.log_pz / 8)
    assert perplexity[found.start == 1].max() < 2  # of each document
    assert np.exp(-found.log_pz[found.start > 1].mean() / 8) < 2


def test_tr_02_without_later_starts_it_is_not(small, trio):
    """Control: trained from t = 0 alone, for the same frames."""
    model = small()
    run = spliced(
        trio, position_scheme="absolute", content_start_mode="anchor_start", offset_stride=48
    )
    train(model, run, RECIPE)
    found = pz(model, trio, prefix=8, suffix=8, stride=1, progress=False).windows
    assert -found.log_pz[found.start >= 20].mean() / 8 > 0.693


def test_tr_03_packed_training_runs_and_its_loss_falls(small, trio):
    run = trio.pack(64).epochs(None).seed(1).shuffle()
    losses = train(small(), run, Recipe(steps=30, batch_size=2, rate=1e-2, warm_up=5))
    assert all(0 < loss < 20 for loss in losses)
    assert losses[-1] < 0.8 * losses[0]


def test_tr_04_masked_boundaries_leave_the_denominator_of_the_loss(small, trio):
    model = small()
    masked, whole = (trio.pack(128, mask_boundary_loss=mask).batch([0]) for mask in (True, False))
    assert whole.loss_tokens - masked.loss_tokens == 2  # boundaries between three documents
    with torch.no_grad():
        sums = [batch_loss(model, one) * one.loss_tokens for one in (masked, whole)]
    assert sums[0] < sums[1]


def test_the_same_training_twice_has_the_same_bits(small, trio):
    recipe = Recipe(steps=12, batch_size=4)
    curves = [train(small(seed=5), spliced(trio), recipe) for _ in range(2)]
    assert curves[0] == curves[1]
    assert train(small(seed=6), spliced(trio), recipe) != curves[0]


@pytest.mark.parametrize("killed_in", [0, 5, 7])
def test_tr_08_a_training_that_stops_anywhere_ends_with_the_same_curve(
    small, trio, tmp_path, killed_in
):
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
