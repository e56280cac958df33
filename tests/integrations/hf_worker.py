"""A training in a process of its own, which may be killed: `python hf_worker.py SETTINGS_JSON`."""

import json
import os
import signal
import sys
from pathlib import Path

from hftrainers import VOCAB, arguments, tiny
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Trainer, TrainerCallback

import tokenloom as tl
from tokenloom.integrations.hf import attach, placeholder


def sft_trainer(model, folder, eval_dataset=None, **options):
    from trl import SFTConfig, SFTTrainer

    ids = {str(n): n for n in range(VOCAB)}
    words = Tokenizer(models.WordLevel(ids, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="0", pad_token="0")
    args = arguments(folder, SFTConfig, bf16=False, **options)
    given = {"train_dataset": placeholder(), "eval_dataset": eval_dataset}
    return SFTTrainer(model, args, processing_class=tokenizer, **given)


class Watch(TrainerCallback):
    """Writes every loss down, and kills the process at an event of a step."""

    def __init__(self, path, kill):
        self.path, self.kill = path, kill

    def on_log(self, args, state, control, logs=None, **rest):
        if state.is_world_process_zero and "loss" in logs:
            with self.path.open("a") as out:
                out.write(json.dumps([state.global_step, logs["loss"]]) + "\n")

    def at(self, event, state):
        if self.kill == [event, state.global_step]:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_step_begin(self, args, state, control, **rest):
        self.at("begin", state)

    def on_pre_optimizer_step(self, args, state, control, **rest):
        self.at("before", state)

    def on_save(self, args, state, control, **rest):
        self.at("saved", state)


def main():
    told = json.loads(sys.argv[1])
    folder, kill = Path(told["folder"]), told.get("kill")
    run = tl.from_config(json.loads(Path(told["run"]).read_text()))
    make = {"trainer": lambda model, out, **more: Trainer(model, arguments(out, **more))}
    make["sft"] = sft_trainer
    trainer = make[told["kind"]](tiny(dropout=told.get("dropout", 0.1)), folder, **told["options"])
    trainer.add_callback(Watch(folder / "losses.jsonl", kill))
    if kill and kill[0] == "saving":  # the model is written, the rest is not

        def half(*args, **rest):
            if trainer.state.global_step == kill[1]:
                os.kill(os.getpid(), signal.SIGKILL)
            type(trainer)._save_optimizer_and_scheduler(trainer, *args, **rest)

        trainer._save_optimizer_and_scheduler = half
    evals = run.take(7) if told.get("evaluate") else None
    attach(trainer, run, eval_runs=evals)
    trainer.train(resume_from_checkpoint="auto")
    if evals is not None:
        loss = trainer.evaluate()["eval_loss"]
        rows = trainer.predict(run.take(7)).label_ids.tolist()
        if trainer.is_world_process_zero():
            (folder / "eval.json").write_text(json.dumps([loss, rows]))


if __name__ == "__main__":
    main()
