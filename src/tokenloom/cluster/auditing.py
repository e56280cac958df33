"""A run is audited by many machines: an audit is a sum over pieces.

One idea: which rows are a piece follows from what is audited (`tokenloom.inspect.audit`), so who
looks at them does not matter: the certificate is the one that a single process makes. A task opens
the run, looks at one piece, and answers with counts, a few examples, sums by epoch and digests. A
certificate of others is computed again in the same way.
Whole epochs are judged here, from these sums and the lengths of documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.bind import bind, unbind
from tokenloom.cluster.preparing import kept_names
from tokenloom.cluster.sending import OnRay, described_run, sent_run
from tokenloom.ingest.cluster.ray_tasks import check_executor
from tokenloom.ingest.crew.wire import pack_error
from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.inspect.audit.recheck import CheckReport, checked_in_full
from tokenloom.inspect.audit.run_audit import Audit, certified
from tokenloom.inspect.audit.scope import Scope, scope_of

__all__ = ["audit_run", "check_certificate"]


def audit_run(
    run: Dataset,
    first: int | None = None,
    last: int | None = None,
    *,
    arrays: bool | str = True,
    sample: int | None = None,
    seed: int = 0,
    executor: str = "ray",
    workers: int | None = None,
    progress: bool | None = None,
) -> Certificate:
    """Whether a run shows what it promises, looked at by many machines; as `Dataset.audit`.

    Args:
        run: the run, over stores that every node sees.
        first: the first row to look at. This and the following are as in `Dataset.audit`.
        last: the row after the last one.
        arrays: True renders every row, "sample" a keyed 64th, False none.
        sample: look at this many rows only.
        seed: names the samples.
        executor: "ray" (extra `ray`) or with an address, as in `tokenloom.build`, or "local".
        workers: how many tasks run at once, at most; default: what the cluster has room for.
        progress: show a bar; default: if standard error is a terminal.

    Returns:
        The certificate of `Dataset.audit`, whoever looked at what.

    Raises:
        ConfigError: there are no such rows, or the run cannot be sent.
        WorkerError: a task was lost again and again.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(4).shuffle()
    ...     audit_run(run, executor="local") == run.audit()
    True
    """
    check_executor(executor, workers)
    scope = scope_of(dataset_of("audit_run", run), first, last, arrays, sample, seed)
    return _certified(run, scope, executor, workers, progress)


def check_certificate(
    certificate: Certificate | str | bytes | dict[str, Any],
    run: Dataset,
    *,
    executor: str = "ray",
    workers: int | None = None,
    progress: bool | None = None,
) -> CheckReport:
    """Whether a certificate is right about a run: all of it, computed again by many machines.

    A keyed hundredth of it is soon computed by one process: `tokenloom.inspect.check_certificate`.

    Args:
        certificate: as `audit_run` gave it, or as JSON.
        run: the run, over stores that every node sees.
        executor: "ray" (extra `ray`) or with an address, as in `tokenloom.build`, or "local".
        workers: how many tasks run at once, at most; default: what the cluster has room for.
        progress: show a bar; default: if standard error is a terminal.

    Returns:
        The report of `tokenloom.inspect.check_certificate` with ``full=True``, whoever looked.

    Raises:
        ConfigError: it is no certificate, or the run cannot be sent.
        WorkerError: a task was lost again and again.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(4).shuffle()
    ...     print(check_certificate(run.audit(), run, executor="local"))
    the same: 4 of 4 digests computed again
    """
    check_executor(executor, workers)
    return checked_in_full(
        certificate, run, lambda scope: _certified(run, scope, executor, workers, progress)
    )


EPOCHS = 8  # of each source, whose sums are sent along if they are kept


def _certified(
    run: Dataset, scope: Scope, executor: str, workers: int | None, progress: bool | None
) -> Certificate:
    remote, workers = check_executor(executor, workers)
    if not remote:
        return certified(run, scope, progress=progress)
    message = {"run": described_run(run, executor), "scope": unbind(scope)}
    with OnRay(executor, workers, progress) as ray:
        share = ray.share(_piece, message, kept_names(run, EPOCHS))
        return certified(run, scope, share, progress)


def _piece(message: Mapping[str, Any], piece: dict[str, int]) -> dict[str, Any]:
    """What Ray runs: looks at some rows."""
    try:
        scope = bind(Scope, message["scope"])
        return Audit(sent_run(message), scope, **piece).looked(lambda _: None)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pack_error(error)
