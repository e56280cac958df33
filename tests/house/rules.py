"""The rules of the house, each a function: a tree of sources → what breaks the rule, as sentences.

docs/architecture.md has the plan behind them. A rule takes the tree as an argument, so that a test
can show it a tree that breaks it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter

from tree import Tree, names_in

ROOT_MODULES = [
    "__init__",
    "__main__",
    "arguments",
    "arrays",
    "bind",
    "config",
    "errors",
    "native",
    "progress",
    "version",
]
FLOW = [
    "random",
    "store",
    "remote",
    "foreign",
    "tokenizer",
    "ingest",
    "documents",
    "layout",
    "order",
    "mixture",
    "trace",
    "page",  # no step, but what steps show in a notebook
    "batch",
    "api",
    "loader",
]
ANNEXES = [
    *("streams", "quality", "inspect", "evaluate", "cluster"),
    *("exchange", "runfiles", "report", "explore", "integrations", "testing", "cli"),
]
# one room a floor; an import goes to a lower floor or stays in its room
FLOORS = [
    "version",
    "_native",
    "native",
    "errors",
    "progress",
    "arguments",
    "arrays",
    "bind",
    *FLOW,
    "streams",
    "quality",
    "inspect",
    "evaluate",
    "cluster",
    "exchange",
    "runfiles",
    "report",
    "integrations",
    "config",
    "explore",
    "testing",
    "cli",
    "__init__",
    "__main__",
]
# a stem may be used in several rooms if it is the word for a role
ROLES = {
    "spec",
    "plan",
    "rows",
    "run",
    "state",
    "laws",
    "shuffle",
    "pack",
    "splice",
    "build",
    "source",
    "files",
}
SHORT = {
    "__init__",
    "__main__",
    "config",
    "native",
    "version",
    "layout.kinds",
}  # modules below 40 lines
LINES = 40, 500
ROOM = 18  # modules
# rooms that open files or start threads; runfiles reads and writes one file, which is its purpose
EFFECTS = {
    "store",
    "remote",
    "foreign",
    "ingest",
    "loader",
    "streams",
    "exchange",
    "runfiles",
    "explore",
    "testing",
    "cli",
}


def room_of(module: str) -> str:
    return module.split(".")[0]


def wrong_root(tree: Tree) -> list[str]:
    """1. The root holds exactly ten modules."""
    found = sorted(name for name in tree.sources if "." not in name)
    return [f"root: {name}" for name in set(found) ^ set(ROOT_MODULES)]


def wrong_imports(tree: Tree) -> list[str]:
    """2. An import goes to a lower floor or stays in its room; never inside a function."""
    wrong = []
    for module in tree.sources:
        here = room_of(module)
        if here not in FLOORS:
            wrong.append(f"{module} is on no floor")
            continue
        for target, lazy in tree.imports(module):
            there = room_of(target)
            if is_call_time(module, target, lazy):
                continue
            if lazy:
                wrong.append(f"{module} imports {target} inside a function")
            if there != here and FLOORS.index(there) > FLOORS.index(here):
                wrong.append(f"{module} imports {target}, which is above it")
    return wrong


# the one module that may import at call time, and the rooms: questions that an annex answers
CALL_TIME = "batch.views.annexes"
CALLED = {"inspect", "report"}


def is_call_time(module: str, target: str, lazy: bool) -> bool:
    """Whether an import is the one that runs when it is called, not when a module is loaded."""
    return lazy and module == CALL_TIME and room_of(target) in CALLED


def call_time_imports(tree: Tree) -> list[str]:
    """2. One module imports at call time, each annex once; five import by a name."""
    found, wrong = [], []
    for module in tree.sources:
        found += [
            f"{module} imports {room_of(target)}"
            for target, lazy in tree.imports(module)
            if is_call_time(module, target, lazy)
        ]
        if module in BY_NAME:
            continue
        for name, call in tree.calls(module):
            by_name = name.split(".")[-1] in ("import_module", "__import__")
            if by_name and re.search("tokenloom|__name__", ast.unparse(call)):
                wrong.append(f"{module} imports {ast.unparse(call)} by its name")
    again = [one for one, times in Counter(found).items() if times > 1]
    return wrong + [f"{one} at call time once more" for one in again]


def cycles(tree: Tree) -> list[str]:
    """2. No cycle, also not inside a room."""
    graph = defaultdict(set)
    for module in tree.sources:
        for target, lazy in tree.imports(module):
            known = target if target in tree.sources else f"{target}.__init__"
            if not is_call_time(module, target, lazy):
                graph[module].add(known)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [" → ".join(error.args[1])]
    return []


def wrong_annexes(tree: Tree) -> list[str]:
    """3. The flow never imports an annex; only config reaches integrations.levanter."""
    wrong = []
    for module in tree.sources:
        for target, lazy in tree.imports(module):
            annex = room_of(module) in FLOW and room_of(target) in ANNEXES
            if annex and not is_call_time(module, target, lazy):
                wrong.append(f"{module} imports {target}")
            outside = room_of(module) not in {"integrations", "config"}
            if outside and target.startswith("integrations.levanter"):
                wrong.append(f"{module} imports {target}")
    return wrong


def stem(word: str) -> str:
    """
    >>> stem("packed"), stem("packers"), stem("mixture"), stem("stores")
    ('pack', 'pack', 'mix', 'stor')
    """
    word = re.sub(r"(ing|ed|ers?|ures?|s)$", "", word)
    return re.sub(r"(.)\1$", r"\1", word.removesuffix("e"))


def twins(tree: Tree) -> list[str]:
    """4. No folder holds two names of one stem, no room shares one with the root or api."""
    wrong, folders = [], defaultdict(set)
    for module in tree.sources:
        parts = module.split(".")
        for depth in range(len(parts)):
            name = parts[depth]
            if name != "__init__":
                folders[".".join(parts[:depth])].add(name)
    for folder, names in folders.items():
        by_stem = defaultdict(list)
        for name in sorted(names):
            by_stem[stem(name)].append(name)
        wrong += [
            f"{folder or 'root'}: {', '.join(same)}" for same in by_stem.values() if len(same) > 1
        ]
    rooms = {stem(room): room for room in FLOW + ANNEXES}
    for name in folders["api"]:
        if stem(name) in rooms and (rooms[stem(name)], name) not in FACADES:
            wrong.append(f"api.{name} has the stem of the room {rooms[stem(name)]}")
    return wrong


FACADES = {("store", "store"), ("documents", "documents")}  # what users hold of a room


def repeated_stems(tree: Tree) -> list[str]:
    """4. A file name used in several rooms is the word for a role."""
    rooms = defaultdict(set)
    for module in tree.sources:
        *room, name = module.split(".")
        if room and room[0] != "cli" and name != "__init__":  # a command has the name of its work
            rooms[name].add(".".join(room))
    return [
        f"{name}: {', '.join(sorted(where))}"
        for name, where in rooms.items()
        if len(where) > 1 and name not in ROLES | SHARED_STEMS
    ]


SHARED_STEMS = {"levanter"}  # of random: its generator; of integrations: its settings


def repeated_classes(tree: Tree) -> list[str]:
    """5. A public class has its name for itself."""
    where = defaultdict(list)
    for module in tree.sources:
        for node in tree.parsed(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module)
    return [f"{name}: {', '.join(found)}" for name, found in where.items() if len(found) > 1]


def wrong_sizes(tree: Tree) -> list[str]:
    """6. A module has 40 to 500 lines, a room at most 18 modules."""
    low, high = LINES
    wrong, rooms = [], Counter()
    for module, source in tree.sources.items():
        lines = source.count("\n")
        if lines > high or (
            lines < low and module not in SHORT and not module.endswith("__init__")
        ):
            wrong.append(f"{module}: {lines} lines")
    seen = set()
    for module in tree.sources:
        parts = module.split(".")
        for depth in range(1, len(parts)):
            child = ".".join(parts[: depth + 1])
            if parts[depth] != "__init__" and child not in seen:
                seen.add(child)
                rooms[".".join(parts[:depth])] += 1
    return wrong + [f"{room}: {count} modules" for room, count in rooms.items() if count > ROOM]


def wrong_docstrings(tree: Tree) -> list[str]:
    """7. Every module says what it is, every room what it takes and gives."""
    wrong = []
    for module in tree.sources:
        told = ast.get_docstring(tree.parsed(module)) or ""
        if not told:
            wrong.append(f"{module}: no docstring")
        if "." in module and module.endswith(".__init__"):
            first = told.split("\n")[0]
            if not (first.startswith("Takes ") and " → gives " in first):
                wrong.append(f"{module}: {first!r} does not say Takes … → gives …")
    return wrong


def wrong_effects(tree: Tree) -> list[str]:
    """9. Only some rooms open files, start threads or processes."""
    wrong = []
    for module in tree.sources:
        if room_of(module) in EFFECTS or module in READERS:
            continue
        for name, _ in tree.calls(module):
            last = name.split(".")[-1]
            if name in OPENS or last in TOUCHES or name.startswith(PROCESSES):
                wrong.append(f"{module} calls {name}")
    return wrong


OPENS = {"open", "io.open", "os.open"}
TOUCHES = {"read_text", "read_bytes", "write_text", "write_bytes", "Thread", "ThreadPoolExecutor"}
TOUCHES |= {"start_new_thread"}
PROCESSES = ("subprocess.", "multiprocessing.")
# files of a tokenizer, and the style of a page: it is their job
READERS = {"tokenizer.beside", "tokenizer.chat.lookup", "tokenizer.find", "page.sheet"}


def wrong_locks(tree: Tree) -> list[str]:
    """11. Every lock comes from store.handles, which renews it in the child of a fork."""
    wrong = []
    for module in tree.sources:
        if module == HANDLES:
            continue
        for name in names_in(tree.sources[module]):
            last = name.split(".")[-1]
            made = name in {f"threading.{last}", f"_thread.{last}", f"queue.{last}"}
            if last == "cached_property":  # in Python 3.11 it has one lock for all instances
                wrong.append(f"{module} uses {name}: take store.handles.lazy")
            lock = (made and last in LOCKS) or (last == "Lock" and not made)
            if lock and (module, last) not in OF_ONE_CALL:
                wrong.append(f"{module} makes a {name}: take store.handles.lock_of")
    return sorted(set(wrong))


HANDLES = "store.handles"
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
LOCKS |= {"allocate_lock", "Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"}
OF_ONE_CALL = {  # locks of one call and its threads: a child has neither of them
    ("store.cache", "Lock"),
    ("ingest.identity", "Lock"),
    ("ingest.identity", "Event"),
    ("ingest.crew.executors", "SimpleQueue"),
}


def half_copies(tree: Tree) -> list[str]:
    """12. What owns a lock, or frees something when it goes, says what a copy of it is."""
    wrong = []
    for module in tree.sources:
        for node in tree.nodes(module):
            if not isinstance(node, ast.ClassDef) or (module, node.name) == (HANDLES, "Single"):
                continue
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            says = "__reduce__" in methods or any("Single" in ast.unparse(b) for b in node.bases)
            locks = any(_locks_itself(one) for one in ast.walk(node))
            if (locks or "__del__" in methods) and not says:
                wrong.append(f"{module}.{node.name} has neither __reduce__ nor Single")
            if locks and "_forked" not in methods:
                wrong.append(f"{module}.{node.name} has no _forked")
    return wrong


def wrong_digits(tree: Tree) -> list[str]:
    """14. A report writes its numbers by page.numbers: `.3g` makes 1.98e+03 of 1,977 blocks."""
    wrong = []
    for module in tree.sources:
        for node in tree.nodes(module) if module.startswith("report.") else ():
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                spec = ast.unparse(node.format_spec).strip("f'\"")
                if re.fullmatch(r"[,.0-9]+[gGeE]", spec):
                    wrong.append(f"{module}: {spec} in line {node.lineno}: take page.numbers")
    return wrong


def _locks_itself(node: ast.AST) -> bool:
    """Whether it is the call `lock_of(self)`."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return named and node.func.id == "lock_of" and ast.unparse(node) == "lock_of(self)"


BY_NAME = {
    "native",  # compiled or not
    "__init__",  # names on demand
    "integrations.hf.__init__",  # names on demand
    "foreign.formats.__init__",  # formats, when files are looked at
    "cli.__init__",  # the work of a command, when it runs
}


def odd_words(text: str) -> list[str]:
    """13. Prose uses the common word: start, after, is, endless, invalid, given, n, resume.

    >>> odd_words("It goes on for ever.\nThe begin is there.")
    ['1: for ever', '2: the begin']
    """
    return [
        f"{number}: {found[0].lower()}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in ODD.finditer(line)
    ]


ODD = re.compile(
    r"\b(for ever|cannot be meant|the begin|so many|gone on with|nothing is said|"
    r"issue \d+)\b",
    re.IGNORECASE,
)


def unreferenced(tree: Tree, others: str) -> list[str]:
    """8. Every public function is used by the package, its docs, examples or benchmarks."""
    used = Counter(re.findall(r"\w+", others))
    for source in tree.sources.values():
        used.update(set(re.findall(r"\w+", source)))
    wrong = []
    for module in tree.sources:
        if module.startswith("testing."):  # for tests, ours and those of others
            continue
        own = tree.sources[module]
        for name in tree.public(module):
            defined = re.search(rf"^(def|class) {name}\b", own, re.MULTILINE)
            # once in this module as a word; here it must be called, too
            inside = len(re.findall(rf"(?<!def )(?<!class )(?<![\"'\w])\b{name}\b", own))
            if defined and used[name] <= 1 and not inside:
                wrong.append(f"{module}.{name}")
    return wrong


def foreign_imports(text: str, doors: set[str], names: Collection[str]) -> list[str]:
    """10. Docs and examples import public namespaces only, and public names of the root."""
    found = re.findall(r"from tokenloom(?:\.([\w.]+))? import|import tokenloom\.([\w.]+)", text)
    rooms = {a or b for a, b in found} - {""}
    of_root = re.findall(r"from tokenloom import \(?([\w\s,]+)", text)
    listed = {word.split()[0] for line in of_root for word in line.split(",") if word.strip()}
    return sorted((rooms - doors) | (listed - doors - set(names)))
