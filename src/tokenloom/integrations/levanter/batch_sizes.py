"""Steps of Levanter in examples: batch sizes that change at a step, and weights that do.

One idea: Levanter counts steps and a run here counts examples, so a step is converted once, by the
sizes of all batches before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import integer, wrong_type
from tokenloom.errors import ConfigError

__all__ = ["BatchSizes", "stages_of"]


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Examples of every step.

    Attributes:
        segments: (first step, first example, size), ascending.
    """

    segments: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, given: Any) -> BatchSizes:
        """A number, or a list of {start, value}.

        >>> BatchSizes.of([{"start": 0, "value": 8}, {"start": 10, "value": 16}]).for_loader
        [(0, 8), (80, 16)]
        """
        if not isinstance(given, (list, tuple)):
            return cls(((0, 0, integer("batch_size", given, least=1)),))
        found: list[tuple[int, int, int]] = []
        for number, one in enumerate(given):
            where = f"batch_size[{number}]"
            pair = (one.get("start"), one.get("value")) if isinstance(one, Mapping) else one
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise wrong_type(where, one, "{start, value}")
            start, size = integer(where, pair[0]), integer(where, pair[1], least=1)
            first, examples, before = found[-1] if found else (0, 0, 0)
            if (start <= first) if found else start:
                raise ConfigError(
                    f"{where}: found start {start}, allowed: 0 first, then ascending."
                )
            found.append((start, examples + (start - first) * before, size))
        if not found:
            raise ConfigError(
                "batch_size: found an empty list, allowed: at least one {start, value}."
            )
        return cls(tuple(found))

    def examples_before(self, step: int) -> int:
        """Examples of all steps before one."""
        first, examples, size = [one for one in self.segments if one[0] <= step][-1]
        return examples + (step - first) * size

    @property
    def for_loader(self) -> int | list[tuple[int, int]]:
        """The same, as `Loader` takes it."""
        if len(self.segments) == 1:
            return self.segments[0][2]
        return [(examples, size) for _, examples, size in self.segments]


def stages_of(
    data: Mapping[str, Any], path: str, sizes: BatchSizes
) -> list[tuple[int, Mapping[str, Any]]]:
    """(first example, weights), ascending; Levanter writes them by step."""
    where, given = f"{path}.train_weights", data.get("train_weights")
    if given is None:
        named = data.get("components", data.get("configs", {}))
        return [(0, dict.fromkeys(named, 1.0))]
    if isinstance(given, Mapping):
        return [(0, given)]
    if not isinstance(given, (list, tuple)) or not given:
        raise wrong_type(where, given, "{component: weight} or a list of [step, weights]")
    found = []
    for number, one in enumerate(given):
        pair = one if isinstance(one, (list, tuple)) and len(one) == 2 else (None, None)
        if not isinstance(pair[1], Mapping):
            raise wrong_type(f"{where}[{number}]", one, "[step, {component: weight}]")
        found.append((sizes.examples_before(integer(f"{where}[{number}]", pair[0])), pair[1]))
    firsts = [at for at, _ in found]
    if firsts[0] or any(a >= b for a, b in itertools.pairwise(firsts)):
        raise ConfigError(
            f"{where}: found steps {[one[0] for one in given]}, allowed: 0, ascending."
        )
    return found
