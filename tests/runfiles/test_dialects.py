"""Configurations that others print load with a stated difference; what is not used is said.

The files are in tests/golden/configs; each says what was changed in it.
"""

import logging
from pathlib import Path

from refusals import refused

import tokenloom as tl

CONFIGS = Path(__file__).parents[1] / "golden/configs"


def test_every_configuration_says_first_what_was_changed():
    files = [path for path in CONFIGS.iterdir() if path.suffix == ".yaml"]
    assert len(files) == 7
    for path in files:
        assert path.read_text().startswith("# Changed: ")
        assert f"`{path.name}`" in (CONFIGS / "README.md").read_text()


def test_a_component_without_weight_is_left_out_and_named(shelf, caplog):
    caplog.set_level(logging.INFO)
    place = {"cache_dir": str(shelf / "stores/wiki")}
    data = {"configs": {"a": place, "b": place}, "train_weights": {"a": 1, "b": 0}}
    run = tl.from_config({"data": data, "train_seq_len": 64})
    assert run.rule is None
    assert "data.configs.b" in caplog.text


def test_a_tag_that_names_code_is_refused(tmp_path):
    printed = (CONFIGS / "preprocessor.yaml").read_text()
    tag = "!partial:forgather.ml.data_collator:DataCollatorForCausalLM"
    (tmp_path / "tagged.yaml").write_text(printed.replace("datacollator:", f"datacollator: {tag}"))
    refused(lambda: tl.load(tmp_path / "tagged.yaml"), tl.ConfigError, "line 11, column 15: ", tag)
