"""Small mistakes, one at a time: which ones could be made in a module, and how to make one.

One idea: a mutant is the module compiled with one node of its syntax tree changed. Only bodies of
functions are changed, and neither assertions (`assert`, `strict=True`) nor what is written for
people (messages, log lines, `__repr__`), so the changed code can be put into the functions of the
running process: nothing is imported again, and every decorator, class and reference stays what it
is.
"""

from __future__ import annotations

import ast
import copy
import gc
import hashlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}

SWAPPED_NAMES = {"min": "max", "minimum": "maximum", "any": "all"}
SWAPPED_NAMES |= {there: here for here, there in SWAPPED_NAMES.items()}

SWAPPED_WORDS = {"left": "right", "right": "left"}

FOR_PEOPLE = {"warn", "warning", "info", "debug", "error"}  # calls whose arguments are messages

NOT_CODE = {"__repr__", "__str__"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed node.

    Attributes:
        module: file of the module, below the root of the project.
        function: the outermost function or method that holds the node.
        number: which node of the tree, in the order of `ast.walk` over the function.
        kind: which change of that node.
        first, last: the lines of the node.
        opens: the first line of its statement, which runs when the node does; constants alone
            on a line leave no trace of their own.
        what: the change in words.
    """

    module: str
    function: str
    number: int
    kind: str
    first: int
    last: int
    opens: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.first} {self.function}: {self.what}"

    @property
    def name(self) -> str:
        """Identifies it as long as its function stays as it is: no line number in it."""
        return f"{self.module}:{self.function}:{self.number}:{self.kind}"

    @property
    def name_of_module(self) -> str:
        """What to import."""
        return self.module.removeprefix("src/").removesuffix(".py").replace("/", ".")


def mutants_of(root: Path, module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse((root / module).read_text())
    found = []
    for path, function in _functions(tree):
        opens = function.lineno
        for number, node in enumerate(_nodes(function)):
            if isinstance(node, ast.stmt):
                opens = node.lineno
            for kind, what, _ in _changes(node):
                last = getattr(node, "end_lineno", node.lineno)
                found.append(Mutant(module, path, number, kind, node.lineno, last, opens, what))
    return found


def sample(mutants: list[Mutant], count: int, key: str) -> list[Mutant]:
    """`count` of them, chosen by a hash: a change in one function leaves the others chosen."""

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{key}/{mutant.name}".encode()).digest()

    return sorted(sorted(mutants, key=rank)[:count], key=lambda m: (m.module, m.first, m.name))


def apply(root: Path, mutant: Mutant, loaded: types.ModuleType) -> int:
    """Put the mutant into the running process: the number of functions that were changed.

    Args:
        root: the root of the project.
        mutant: which.
        loaded: its module, imported.
    """
    path = root / mutant.module
    source = path.read_text()
    whole, changed = ast.parse(source), ast.parse(source)
    functions = dict(_functions(changed))
    node = _nodes(functions[mutant.function])[mutant.number]
    next(do for kind, _, do in _changes(node) if kind == mutant.kind)()
    ast.fix_missing_locations(changed)
    where = loaded.__file__ or str(path)
    before = dict(_codes(compile(whole, where, "exec", dont_inherit=True)))
    after = dict(_codes(compile(changed, where, "exec", dont_inherit=True)))
    done = 0
    for function in _live_functions():
        code = function.__code__
        if code.co_filename != where:
            continue
        key = _key(code)
        old, new = before.get(key), after.get(key)
        if old is None or new is None or old != code or old == new:
            continue
        if code.co_freevars == new.co_freevars:
            function.__code__ = new
            done += 1
    return done


def _live_functions() -> list[types.FunctionType]:
    """All functions of the process, also those that are frozen (see tests/conftest.py)."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()  # get_objects leaves frozen objects out
    live = [one for one in gc.get_objects() if type(one) is types.FunctionType]
    if frozen:
        gc.freeze()
    return live


Key = tuple[str, int]


def _key(code: types.CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno


def _codes(code: types.CodeType) -> Iterator[tuple[Key, types.CodeType]]:
    """All code objects inside one, by name and line."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield _key(constant), constant
            yield from _codes(constant)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and of its classes, with their names; not those inside others."""

    def inside(body: list[ast.stmt], path: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from inside(node.body, f"{path}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and node.name not in NOT_CODE:
                yield f"{path}{node.name}", node

    seen: dict[str, int] = {}
    for path, function in inside(tree.body, ""):  # overloads and setters share a name
        seen[path] = seen.get(path, 0) + 1
        yield (path if seen[path] == 1 else f"{path}#{seen[path]}"), function


def _nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function's body that run, but for assertions and what people read."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if _is_left_alone(node):
            return
        found.append(node)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "args") and isinstance(
                node, ast.FunctionDef | ast.AnnAssign | ast.Lambda
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child)

    for statement in function.body:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text:  # docstrings
            visit(statement)
    return [node for node in found if hasattr(node, "lineno")]


def _is_left_alone(node: ast.AST) -> bool:
    """Whether a node is a message or an assertion; `strict=True` of a zip is one, too."""
    if isinstance(node, ast.Call):
        return _name(node.func) in FOR_PEOPLE
    if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
        return (node.arg, node.value.value) == ("strict", True)
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", None) or getattr(node, "id", "")


Change = tuple[str, str, Callable[[], None]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """(kind, in words, do it) for every change of one node."""
    for make in (_of_expressions, _of_constants, _of_statements):
        yield from make(node)


def _of_expressions(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED_COMPARISONS:
        new = SWAPPED_COMPARISONS[type(node.ops[0])]()
        yield "compare", _words(node, ops=[new, *node.ops[1:]]), _set(node.ops, 0, new)
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED_OPERATORS:
        op = SWAPPED_OPERATORS[type(node.op)]()
        yield "operator", _words(node, op=op), lambda: setattr(node, "op", op)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and-or", _words(node, op=other), lambda: setattr(node, "op", other)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign", _words(node, op=ast.UAdd()), lambda: _unsign(node)
    elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        field = "attr" if isinstance(node, ast.Attribute) else "id"
        name = getattr(node, field)
        if name in SWAPPED_NAMES:
            to = SWAPPED_NAMES[name]
            yield "name", f"{name} → {to}", lambda: setattr(node, field, to)


def _of_constants(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield "bool", f"{value} → {not value}", lambda: setattr(node, "value", not value)
    elif isinstance(value, int):
        yield "number", f"{value} → {value + 1}", lambda: setattr(node, "value", value + 1)
    elif value in SWAPPED_WORDS:
        to = SWAPPED_WORDS[value]
        yield "word", f"{value!r} → {to!r}", lambda: setattr(node, "value", to)


def _of_statements(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        test = node.test
        flipped = ast.UnaryOp(ast.Not(), test)
        ast.copy_location(flipped, test)
        words = f"if {_text(test)} → if not"
        yield "condition", words, lambda: setattr(node, "test", flipped)
    elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPPED_OPERATORS:
        op = SWAPPED_OPERATORS[type(node.op)]()
        yield "operator", _words(node, op=op), lambda: setattr(node, "op", op)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            nothing = ast.copy_location(ast.Constant(None), node.value)
            yield "return", f"{_text(node)} → None", lambda: setattr(node, "value", nothing)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        nothing = ast.copy_location(ast.Constant(None), node.value)
        yield "call", f"without {_text(node)}", lambda: setattr(node, "value", nothing)


def _unsign(node: ast.UnaryOp) -> None:
    if isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    else:  # `not x` becomes the truth of x
        node.operand = ast.copy_location(ast.UnaryOp(ast.Not(), node.operand), node)


def _set(things: list[ast.cmpop], place: int, value: ast.cmpop) -> Callable[[], None]:
    return lambda: things.__setitem__(place, value)


def _words(node: ast.AST, **fields: object) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"{_text(node)} → {_text(changed)}"


def _text(node: ast.AST) -> str:
    return ast.unparse(node).replace("\n", " ")[:70]
