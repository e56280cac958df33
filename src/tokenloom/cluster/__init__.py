"""Takes the arguments of a build → gives a part of it, and the store when every part is done.

================  =================================================================================
`build_part`      does part 3 of 64, on any machine, in any order, again after a crash
`finish_build`    publishes the store of all parts, with the bytes of a build on one machine
`verify_store`    reads every byte of a store again, on Ray
`check_store`     the same, with the problems in its report
================  =================================================================================

``tokenloom.build(..., executor="ray")`` builds on a Ray cluster. See docs/on-a-cluster.md.
"""

from tokenloom.cluster.checking import check_store, verify_store
from tokenloom.cluster.sharing import build_part, finish_build

__all__ = ["build_part", "check_store", "finish_build", "verify_store"]
