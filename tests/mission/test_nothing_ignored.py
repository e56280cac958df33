"""Settings that could have no effect are refused."""

import pytest
from refusals import refused

import tokenloom as tl


@pytest.mark.parametrize(("name", "value"), [("bos", 1), ("eos", "<eos>"), ("pad", 0)])
def test_special_tokens_of_no_tokenizer_are_refused(tmp_path, name, value):
    rows, none = [{"input_ids": [1, 2]}], {"tokenizer": None, "vocab_size": 5}
    refused(lambda: tl.build(rows, tmp_path / "s", **none, **{name: value}), tl.ConfigError, name)
    assert not (tmp_path / "s").exists()
    tl.build(rows, tmp_path / "s", **none, **{name: None})


@pytest.mark.parametrize("ask", ["digest", "plan_digest"])
def test_a_digest_of_examples_that_are_not_there_is_refused(store_of, ask):
    run = store_of([[1, 2, 3, 4]]).windows(2)
    digest = getattr(run, ask)
    for first, last, name in [(0, 3, "last"), (3, 3, "first"), (-1, 1, "first"), (1, 0, "last")]:
        refused(lambda a=first, b=last: digest(a, b), tl.ConfigError, name)
    assert digest(2, 2) == digest(0, 0) != digest(0, 2)
    endless = run.epochs(None)
    refused(lambda: getattr(endless, ask)(5, 4), tl.ConfigError, "last", "4")
    assert getattr(endless, ask)(10**12, 10**12 + 1)
