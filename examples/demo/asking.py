"""Ask the run what was trained where, compare it with another, and audit it."""

from __future__ import annotations

import itertools
import json

import tokenloom as tl
from examples.demo.printing import explain, prove, say
from examples.demo.world import World

__all__ = ["BATCH", "ask_the_run"]

SEQ_LEN, BATCH, STEP, ROW = 64, 8, 34, 5


def ask_the_run(world: World) -> World:
    """The step: at, where, diff and audit of the run that the last step has trained."""
    store = world.stores["code"]
    run = store.pack(SEQ_LEN).shuffle().seed(7)
    path = world.out / "run.yaml"
    tl.save(run, path)
    prove("its file gives the same run", tl.load(path) == run)

    found = run.at(step=STEP, row=ROW, batch_size=BATCH)
    say(f">>> run.at(step={STEP}, row={ROW}, batch_size={BATCH})")
    for line in repr(found).splitlines():
        say(line)
    document = found.spans[0].document
    places = list(run.where(doc=document, batch_size=BATCH))
    pieces = [(one.step, one.row) for one in places[:6]]
    say(f">>> run.where(doc={document})  # {len(places)} places; step and row of the first:")
    say(f"{pieces}")
    prove(
        "every place of that document is found in the example it names, and this row among them",
        all(document in {span.document for span in run.at(one.index).spans} for one in places)
        and (STEP, ROW) in {(one.step, one.row) for one in places},
    )

    other = tl.diff(run, run.seed(8))
    say(">>> tl.diff(run, run.seed(8))")
    for line in repr(other).splitlines():
        say(line)

    certificate = run.audit(0, min(2000, len(run)))
    for line in itertools.islice(certificate.lines(), 3):
        say(line)
    prove("an audit of the first examples finds every law kept", certificate.ok)
    kept = world.out / "certificate.json"
    kept.write_text(json.dumps(certificate.as_json(), indent=1))
    explain(
        f"The certificate is in {kept}: anyone with the file and the store computes it again with "
        f"tokenloom audit {path} --check {kept}. Nothing was logged while the run trained."
    )
    return world
