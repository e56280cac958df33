"""`check_packing`: passes where documents stay apart, fails on every set-up known to leak."""

import pytest
import torch
from hftrainers import VOCAB, arguments, packed_run, tiny, trained
from torch.utils.data import DataLoader
from transformers import LlamaForCausalLM, Trainer

from tokenloom.batch.attention import dense_mask
from tokenloom.errors import ConfigError
from tokenloom.integrations.hf import attach, check_packing
from tokenloom.integrations.hf.packing import choose_contract


def altered(attention="sdpa", **changes):
    """A tiny Llama that gets other arguments than it is called with."""

    class Altered(LlamaForCausalLM):
        def forward(self, input_ids=None, **given):
            for name, change in changes.items():
                given[name] = change(given)
            return super().forward(input_ids=input_ids, **given)

    return Altered(tiny(attention).config)


def segments(given):
    """Which document each cell is in, from positions: 1, 1, 2, 2, …"""
    return (given["position_ids"] == 0).cumsum(1)


LEAKS = {
    "attention_mask=ones": {"attention_mask": lambda given: torch.ones_like(given["position_ids"])},
    "use_cache left at its default": {"use_cache": lambda given: None},
    "segments as a mask of two dimensions": {"attention_mask": segments},
    "positions that go on": {
        "position_ids": lambda given: torch.arange(given["position_ids"].shape[1])[None]
    },
}
LEAKS["no position_ids"] = {"position_ids": lambda given: None}
BOOL = {"attention_mask": lambda given: dense_mask(segments(given))[:, None]}


@pytest.mark.parametrize("contract", ["hf", "sdpa", "flash"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_documents_stay_apart_under_every_contract(attention, contract):
    report = check_packing(tiny(attention), contract=contract)
    assert (report.changed.ok, report.alone.ok, report.verdict) == (True, True, "apart")
    assert f"LlamaForCausalLM (attention {attention!r}, contract {contract!r}" in str(report)


def test_documents_stay_apart_in_the_batches_of_a_plain_data_loader(tmp_path):
    """Without `use_cache=False`, a model of transformers let them see each other."""
    run, model = packed_run(tmp_path), tiny(dropout=0.0).eval()
    batch = next(iter(DataLoader(run, batch_size=8)))
    wanted = model(**run.batch(range(8)).torch()).loss
    assert model(**batch).loss == wanted
    assert model(**{**batch, "use_cache": None}).loss != wanted  # it can fail


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_tolerance_goes_with_the_dtype(dtype):
    assert check_packing(tiny(dtype=dtype))[0].ok
    with pytest.raises(ConfigError, match="check_packing"):
        check_packing(altered(**LEAKS["use_cache left at its default"]).to(dtype))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", LEAKS)
def test_a_set_up_that_leaks_is_refused(attention, name):
    with pytest.raises(ConfigError, match="sdpa"):
        check_packing(altered(attention, **LEAKS[name]))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_edges_of_documents_without_positions_leak_and_are_refused(attention):
    """Only FlashAttention reads `cu_seq_lens`; other attentions go by positions alone."""
    with pytest.raises(ConfigError, match="check_packing"):
        check_packing(altered(attention, **LEAKS["no position_ids"]), contract="flash")


def test_a_mask_of_booleans_leaks_in_eager_attention_only():
    assert check_packing(altered("sdpa", **BOOL))[0].ok
    with pytest.raises(ConfigError, match="check_packing"):
        check_packing(altered("eager", **BOOL))


def test_a_mask_of_another_dtype_than_the_model_can_leak_and_is_found():
    """torch's attention on the CPU reads a float32 mask wrongly beside float64."""
    with pytest.raises(ConfigError, match="check_packing"):
        check_packing(tiny(dtype=torch.float64), contract="sdpa")
    assert check_packing(tiny(dtype=torch.float64))[0].ok


def test_auto_takes_the_first_contract_that_does_not_leak():
    assert choose_contract(tiny()) == "hf"
    old = altered(
        use_cache=lambda given: True
    )  # as before transformers 4.53: positions say nothing
    assert choose_contract(old) == "sdpa"
    with pytest.raises(ConfigError, match="check_packing"):
        choose_contract(altered(attention_mask=lambda given: None, use_cache=lambda given: True))


def test_a_dense_mask_is_never_given_to_flex_attention():
    model = tiny()
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ConfigError, match="contract='hf'"):
        check_packing(model, contract="sdpa")


def test_a_wrapped_model_is_refused_with_the_one_inside():
    with pytest.raises(ConfigError, match="DataParallel"):
        check_packing(torch.nn.DataParallel(tiny()))


def test_a_probe_that_proves_nothing_is_told():
    model = tiny()
    torch.nn.init.zeros_(model.lm_head.weight)
    with pytest.warns(UserWarning, match="LlamaForCausalLM"):
        report = check_packing(model)
    assert (report.ok, report.verdict) == (False, "proves little")
    assert "do not depend on its own tokens" in str(report)


def test_a_probe_leaves_no_trace():
    model = tiny(dropout=0.5)
    model.train()
    model.model.layers[0].eval()
    were = [part.training for part in model.modules()]
    before = torch.get_rng_state()
    check_packing(model)
    assert [part.training for part in model.modules()] == were
    assert torch.equal(torch.get_rng_state(), before)
    assert all(one.grad is None for one in model.parameters())


def test_attach_refuses_a_model_that_leaks_or_chooses_what_does_not(tmp_path):
    run = packed_run(tmp_path / "store")
    leaks = altered(use_cache=lambda given: True)
    with pytest.raises(ConfigError, match="check_packing"):
        attach(Trainer(leaks, arguments(tmp_path)), run)
    trainer = trained(
        run, tmp_path, model=leaks, max_steps=1, mine={"contract": "auto", "check": True}
    )
    assert trainer.fed[0]["attention_mask"].shape[1] == 1


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("attention", "contract"),
    [
        ("eager", "hf"),
        ("sdpa", "sdpa"),
        pytest.param("flex_attention", "hf", marks=pytest.mark.slow),
    ],
)
def test_packed_documents_have_the_losses_that_they_have_alone(tmp_path, attention, contract):
    """FlexAttention has no backward on the CPU, so only what it computes is compared."""
    run, model = packed_run(tmp_path), tiny(attention).eval()
    assert check_packing(model, contract=contract)[0].ok
    batch = run.batch(range(6))
    given = batch.torch(contract=contract)
    given.pop("examples_after", None)
    cross = torch.nn.CrossEntropyLoss(reduction="none", ignore_index=-100)
    with torch.no_grad():
        logits = model(**given).logits[:, :-1]
        packed = cross(logits.reshape(-1, VOCAB), given["labels"][:, 1:].reshape(-1))
        packed, seen = packed.reshape(6, -1), 0
        for row in range(6):
            for number in range(1, int(batch.segment_ids[row].max()) + 1):
                cells = batch.segment_ids[row] == number
                alone = given["input_ids"][row, cells][None]
                wanted = model(input_ids=alone).logits[:, :-1].reshape(-1, VOCAB)
                of = torch.as_tensor(cells[1:] & cells[:-1])
                losses = cross(wanted, alone[0, 1:])
                assert torch.allclose(packed[row, of], losses, atol=1e-5)
                seen += len(losses)
        assert seen == int((given["labels"][:, 1:] != -100).sum())
