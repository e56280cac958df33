"""The one number of an answer that stands above its sentence, and the words beside it.

One idea: a reader looks at five numbers before reading five sentences. Each comes from the numbers
of its answer, never from elsewhere, so it cannot say anything that the sentence does not; an answer
without a telling number has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokenloom.page.numbers import amount, binary_size, exact, plural, share

__all__ = ["headline_of"]

Headline = tuple[str, str]

OF_TOKENS = "of the tokens are in no row"

OF_SELECTED = "of the selected tokens are in no row"


def headline_of(name: str, numbers: Mapping[str, float]) -> Headline | None:
    """The number of an answer and what it counts; None if it has none.

    Args:
        name: name of the answer.
        numbers: its numbers.

    >>> headline_of("trained", {"tokens": 1_234_567.0, "steps": 3})
    ('1.23 million', 'tokens')
    >>> headline_of("lost", {"lost": 5, "tokens": 100, "filler": 0.5}), headline_of("other", {})
    (('5.0 %', 'of the tokens are in no row'), None)
    """
    made = HEADLINES.get(name)
    try:
        return made(numbers) if made is not None else None
    except KeyError:  # an answer about nothing has fewer numbers
        return None


def _trained(n: Mapping[str, float]) -> Headline | None:
    unit = "token" if n["tokens"] == 1 else "tokens"
    if not n.get("endless"):
        return amount(n["tokens"]), unit
    if not n["steps"]:
        return None
    return amount(n["tokens"]), f"{unit} in {'the first epoch' if n['first_epoch'] else _every(n)}"


def _repeated(n: Mapping[str, float]) -> Headline:
    many = n.get("sources", 1) > 1
    if n.get("endless") and not many:
        return "Endless", "epoch after epoch"
    said = amount(n["epochs"])
    unit = "epoch" if said == "1" else "epochs"
    where = f", in {_every(n)}" if n.get("endless") else ""
    most = "is repeated most" if n["most"] > 1 else "gets furthest"
    return said, f"{unit} of the source that {most}{where}" if many else unit


def _lost(n: Mapping[str, float]) -> Headline | None:
    if n.get("uncounted") or not n["tokens"]:
        return (share(n["filler"]), "of the cells are filler") if n["tokens"] else None
    said = OF_SELECTED if n.get("unselected_tokens") else OF_TOKENS
    return share(n["lost"], n["tokens"]), said


def _shuffled(n: Mapping[str, float]) -> Headline:
    if n["fair_batch_blocks"] > 1:
        fair = f"{amount(n['fair_batch_blocks'])} in a fair shuffle"
        said = amount(n["batch_blocks"])
        unit = "block" if said == "1" else "blocks"
        return said, f"{unit} in {n['batch']:,.0f} rows; {fair}"
    return share(n["moved"]), f"of an epoch: the mean move of a row; {share(n['fair_moved'])} fair"


def _fed(n: Mapping[str, float]) -> Headline:
    if n.get("seconds"):
        later, rest = n["waited"] - n["first_wait"], n["seconds"] - n["first_wait"]
        return share(later, rest), "of the time after its first step training waits"
    if n["bytes"] and n["step_bytes"] < 1:
        return binary_size(round(n["bytes"])), f"read for {_every(n)} together"
    return binary_size(round(n["step_bytes"])), "read for a step"


def _every(n: Mapping[str, float]) -> str:
    steps = plural(int(n.get("steps", 0)), "step").removeprefix("1 ")
    return f"the first {steps}" if n.get("endless") else "all steps"


def _predicted(n: Mapping[str, float]) -> Headline | None:
    found = next((one for one in n.items() if one[0].endswith(".perplexity")), None)
    if found is None:
        return None
    return exact(found[1]), f"perplexity of {found[0].removesuffix('.perplexity')}"


def _sealed(n: Mapping[str, float]) -> Headline:
    return ("Sealed", "and checked when read") if n["sealed"] else ("No seal", "nothing guards it")


def _counted(key: str, unit: str) -> Callable[[Mapping[str, float]], Headline]:
    """A count and its unit, which has an s for several."""

    def made(n: Mapping[str, float]) -> Headline:
        value = n[key]
        return amount(value), unit if value == 1 else f"{unit}s"

    return made


HEADLINES: dict[str, Callable[[Mapping[str, float]], Headline | None]] = {
    # of a run
    "trained": _trained,
    "repeated": _repeated,
    "lost": _lost,
    "shuffled": _shuffled,
    "fed": _fed,
    # of a store
    "contents": _counted("tokens", "token"),
    "lengths": lambda n: (amount(n["median"]), "tokens in the median document"),
    "duplicates": lambda n: (
        amount(n["copies"]),
        "document is a copy" if n["copies"] == 1 else "documents are copies",
    ),
    "guarded": _sealed,
    "rows": lambda n: (share(n["fill"]), "of the cells filled by packing"),
    # of an audit
    "looked": _counted("rows", "row"),
    "holds": _counted("broken", "violation"),
    "left_out": _counted("not_looked_at", "thing"),
    # of evaluations
    "predicted": _predicted,
    "given_back": lambda n: (share(n["greedy"]), "of the windows, decoded greedily"),
    "learned": lambda n: (share(n["learned"], n["documents"]), "of the documents"),
}
