"""`prepare(accelerator, run, batch_size)`: a run in a loop of your own with Accelerate.

One idea: `Accelerator.prepare` shards a DataLoader by its sampler and skips batches to resume. A
step of a run is shared already, and a state enters it anywhere, so the loader tells Accelerate that
it is prepared. What Accelerate does besides is done here: batches on the device, the end of a pass
known to `accumulate` and `gather_for_metrics`, the place in the run in `save_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accelerate.state import GradientState

from tokenloom.api.dataset import Dataset
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses, wrong_type
from tokenloom.batch.views.named import fields_for
from tokenloom.errors import ConfigError
from tokenloom.integrations.fit import check_embedding
from tokenloom.integrations.torch.data_loader import OF_TORCH, StepDataLoader, StepDataset
from tokenloom.loader.passes import LoopPlace, Passes, StepReader, Turn


class PreparedLoader(StepDataLoader):
    """A `StepDataLoader` that tells Accelerate where it is; made by `prepare`."""

    end_of_dataloader = False  # Accelerate asks both of the loader that is being read
    remainder = 0
    accelerator: Any = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._check_models()  # also those that were prepared after it
        return super().__iter__()

    def _check_models(self) -> None:
        """Refuse a model without an embedding for some of the ids."""
        for model in getattr(self.accelerator, "_models", ()):
            whole = getattr(model, "module", model)
            check_embedding("prepare", {"run": self.place.passes.dataset}, whole)

    def _delivered(
        self, turn: Turn, batches: Iterator[dict[str, Any]], loop: int
    ) -> Iterator[dict[str, Any]]:
        passes, accelerate = self.place.passes, GradientState()
        count = passes.count(turn)
        rows = _real_rows_at_the_end(passes, turn)
        accelerate._add_dataloader(self)
        try:
            for number, batch in enumerate(super()._delivered(turn, batches, loop), start=1):
                self.end_of_dataloader = number == count
                self.remainder = rows
                if "examples_after" not in self.dataset.fields:
                    del batch["examples_after"]  # no argument of a model
                yield batch
        finally:
            self.end_of_dataloader = False
            accelerate._remove_dataloader(self)


def _real_rows_at_the_end(passes: Passes, turn: Turn) -> int:
    """Rows of the last step of a pass that no filler fills up; 0 if the step is full."""
    count = passes.count(turn)
    if turn.stop is None or not count:
        return 0
    steps, last = passes.steps(turn), turn.step + count - 1
    real = turn.stop - steps.begin(last)
    return real if real < steps.size(last) else 0


@settings_of_file("prepare", run="run", own=["fields"])
@near_misses("prepare", *OF_TORCH)
def prepare(
    accelerator: Any,
    run: Dataset,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    *,
    contract: str = "hf",
    num_workers: int = 0,
    fields: Sequence[str] = (),
    end: str = "drop",
    untrained: str = "raise",
    repeat: bool = False,
    group: Any = None,
    **options: Any,
) -> PreparedLoader:
    """A run as a loader for a loop with Accelerate; nothing else is needed for the data.

    A loop over it is a pass in the order of `tokenloom.Loader`, whatever `dispatch_batches`,
    `split_batches` and `even_batches` say. ``accelerator.save_state`` and ``load_state`` keep the
    place in the run: after a `load_state` the next loop goes on with the next example, also with
    another batch size or number of processes. Do not use `skip_first_batches`.

    A model that was prepared without an embedding for some ids of the run is refused before the
    first batch.

    Args:
        accelerator: the Accelerator.
        run: what to train on.
        batch_size: rows of a step over all processes (of a micro-batch, with `accumulate`); or a
            schedule, pairs (examples, batch size). This and other arguments default to the `loader`
            section of the run's file.
        contract: what the model gets, see `tokenloom.batch.views.contracts`.
        num_workers: worker processes.
        fields: further arrays by name, such as "examples_after".
        end: what becomes of the short last step of a pass: "drop", "pad" or "wrap".
        untrained: "raise" or "zero", for a step in which no token is trained.
        repeat: every loop is the first pass again: for evaluation, with ``end="pad"``.
        group: processes whose rows differ, where others share theirs (tensor parallelism).
        options: of torch's DataLoader.

    >>> import tempfile, tokenloom as tl
    >>> from accelerate import Accelerator
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = prepare(Accelerator(cpu=True), store.windows(2), batch_size=2)
    ...     [batch["input_ids"].shape for batch in loader]
    [torch.Size([2, 2]), torch.Size([2, 2])]
    """
    if not hasattr(accelerator, "prepare_data_loader"):
        raise wrong_type("accelerator", accelerator, "an Accelerator, before the run")
    mesh = getattr(accelerator, "parallelism_config", None)
    shared = any(getattr(mesh, f"{kind}_size", 1) > 1 for kind in ("tp", "cp", "sp"))
    if shared and group is None:
        raise ConfigError(
            "group: missing; several processes share their rows (tensor, context or sequence "
            'parallelism). Name those that do not: prepare(…, group=mesh["dp"]).'
        )
    ranks = (None, None) if shared else (accelerator.process_index, accelerator.num_processes)
    reader = StepReader(
        run,
        batch_size,
        *ranks,
        group=group if shared else None,
        end=end,
        untrained=untrained,
        fields=fields_for(contract, fields),
        dtype="int64",
    )
    loader = PreparedLoader(
        StepDataset(reader, contract, fields),
        LoopPlace(reader.passes, repeat=repeat),
        accelerator.device if accelerator.device_placement else None,
        num_workers=num_workers,
        **options,
    )
    loader.accelerator = accelerator
    loader._check_models()
    prepared: PreparedLoader = accelerator.prepare_data_loader(loader)
    return prepared
