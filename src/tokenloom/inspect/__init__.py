"""Takes a run → gives what it shows: lists, counts, pictures and verdicts.

- `tokenloom.inspect.splices` lists what spliced examples show, and finds the examples of a start.
- `tokenloom.inspect.simulate` tells what steps will show, read and wait for, before they run.
- `tokenloom.inspect.coverage` counts how often each token is context and target, and draws it.
- `tokenloom.diff` says how two runs differ, and because of which settings.
- `tokenloom.inspect.audit` judges a run, or anybody's batches, and makes a certificate.
"""

from tokenloom.inspect.audit.batch_audit import BatchAudit
from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.inspect.audit.recheck import CheckReport, check_certificate
from tokenloom.inspect.audit.run_audit import audit_run
from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.diff import KeyChange, RunDiff
from tokenloom.inspect.simulate.result import Simulation
from tokenloom.inspect.simulate.simulation import simulate_run
from tokenloom.inspect.splices import Listing, places, triples

__all__ = [
    "BatchAudit",
    "Certificate",
    "CheckReport",
    "Coverage",
    "KeyChange",
    "Listing",
    "RunDiff",
    "Simulation",
    "audit_run",
    "check_certificate",
    "coverage",
    "places",
    "simulate_run",
    "triples",
]
