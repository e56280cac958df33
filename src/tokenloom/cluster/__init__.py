"""Takes a build, a store or a run → gives what one machine would make of it, made by many.

=====================  ============================================================================
`build_part`           does part 3 of 64, on any machine, in any order, again after a crash
`finish_build`         publishes the store of all parts, with the bytes of a build on one machine
`verify_store`         reads every byte of a store again, on Ray
`check_store`          the same, with the problems in its report
`prepare_run`          makes the packing plans and sums of a run, and keeps them here
`audit_run`            judges a run, with the certificate of `Dataset.audit`
`check_certificate`    computes a certificate again, all of it
=====================  ============================================================================

``tokenloom.build(..., executor="ray")`` builds on a Ray cluster. See docs/on-a-cluster.md.
"""

from tokenloom.cluster.auditing import audit_run, check_certificate
from tokenloom.cluster.checking import check_store, verify_store
from tokenloom.cluster.preparing import Prepared, prepare_run
from tokenloom.cluster.sharing import finish_build
from tokenloom.ingest.cluster.part import build_part

__all__ = [
    "Prepared",
    "audit_run",
    "build_part",
    "check_certificate",
    "check_store",
    "finish_build",
    "prepare_run",
    "verify_store",
]
