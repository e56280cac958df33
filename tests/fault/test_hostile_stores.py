"""X1, X4, X5: a hostile store gets an error, soon: no code, no other file, no memory."""

import shutil

import hostile
from kit import read_everything
from test_damage import make

import tokenloom as tl

MEGABYTES = 512
SECONDS = 4
CODE = {name for name in hostile.ATTACKS if name.startswith("tokenizer is") or "pickle" in name}


def meet(names, nursery, scratch):
    """Make these stores and ask them everything; gives what was wrong with how that went."""
    good = scratch / "good"
    make(good)
    paths = {}
    for number, name in enumerate(names):
        paths[name] = str(scratch / f"store-{number:03d}")
        shutil.copytree(good, paths[name])
        hostile.ATTACKS[name](scratch / f"store-{number:03d}")
    child = nursery.start(
        "use_stores",
        good=str(good),
        paths=list(paths.values()),
        megabytes=MEGABYTES,
        seconds=SECONDS,
        endless=[paths[name] for name in hostile.ENDLESS if name in paths],
        watch=["/etc", *(f"{path}.outside" for path in paths.values())],
    )
    reports = child.value(600)
    problems = []
    for name, path in paths.items():
        report = reports[path]
        for step, error in list(report["strangers"].items())[:1]:
            problems.append(f"{name}: {step}: {error}")
        if not report["errors"] and not report["strangers"] and name not in hostile.BENIGN:
            problems.append(f"{name}: nothing was noticed")
        problems += [f"{name}: {event}" for event in report["events"]]
    return problems


def test_x1_a_store_that_carries_code_runs_none_of_it(nursery, scratch, monkeypatch):
    monkeypatch.chdir(scratch)
    problems = meet(sorted(CODE), nursery, scratch)
    assert not problems, "\n".join(problems)
    assert not (scratch / hostile.MARKER).exists()


def test_x4_names_and_links_that_lead_out_of_the_store_are_refused(nursery, scratch):
    names = [name for name in hostile.ATTACKS if name in hostile.OUTSIDE]
    assert len(names) > 40
    problems = meet(names, nursery, scratch)
    assert not problems, "\n".join(problems)


def test_x5_absurd_values_get_an_error_of_ours_in_little_time_and_memory(nursery, scratch):
    names = [name for name in hostile.ATTACKS if name not in hostile.OUTSIDE | CODE]
    assert len(names) > 100
    problems = meet(names, nursery, scratch)
    assert not problems, "\n".join(problems)


def test_x1_a_function_that_a_store_names_as_its_tokenizer_is_never_called(scratch, monkeypatch):
    """Text from a user must not reach a function of the store's choosing."""
    make(scratch / "s")
    hostile.ATTACKS["tokenizer is os:system"](scratch / "s")
    called = []
    monkeypatch.setattr("os.system", lambda command: called.append(command) or 0)
    reading = read_everything(scratch / "s")
    assert called == []
    assert isinstance(reading.errors["encode"], tl.TokenizerError)


def test_x4_nothing_of_a_hostile_store_is_appended_to(scratch):
    """A build on top of a store believes it no more than a reader does."""
    problems = []
    for number, name in enumerate(APPENDED):
        path = scratch / f"s-{number}"
        make(path)
        hostile.ATTACKS[name](path)
        try:
            make(path, count=3, seed=77, append=True)
        except tl.TokenloomError:
            pass
        except Exception as error:  # noqa: BLE001 - that is the question
            problems.append(f"{name}: {type(error).__name__}: {error!s:.100}")
    assert not problems, "\n".join(problems)


APPENDED = [
    "json NaN where anything goes",
    "json 900 deep",
    "json 1000000 deep",
    "json a lone surrogate",
    "inputs: a pickle",
    "inputs: nothing",
    "inputs: no list",
    "inputs: nameless",
    "inputs: deep",
    "manifest shards is a number",
    "manifest parts [1]",
    "manifest a shard named '../../x'",
    "manifest parts with other counts",
    "the manifest is a link out of the store",
    "the manifest is a pipe",
    "the manifest is a directory",
]
