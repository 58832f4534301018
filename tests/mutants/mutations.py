"""The changes of a module: one comparison, operator, constant, condition or returned value."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from packages import ROOT

# Sizes of caches and the level of a compression: they change no result.
FREE = {"CACHED_SHAPES", "SHAPES_SEEN_ONCE", "CACHED_REQUESTS", "MOST_KEPT", "LEVEL"}


# What these arguments change is no behaviour that a correct program shows: they make objects
# smaller or immutable, assert how callers write a call, which mypy checks, or bound a cache.
WITHOUT_EFFECT = {"frozen", "slots", "gc", "weakref", "weakref_slot", "repr", "kw_only", "maxsize"}


LARGE = 100


COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
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


OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


class Place(NamedTuple):
    """A node of the tree of a module, and one of its changes."""

    file: Path
    node: int
    change: int


class Mutant(NamedTuple):
    file: Path
    lines: range  # of the smallest statement around the change
    what: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.lines.start}: {self.what}"


def places_in(file: Path) -> Iterator[Place]:
    tree = ast.parse(file.read_text())
    left_out = set(map(id, _without_effect(tree)))
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out:
            for change, _ in enumerate(changed(node)):
                yield Place(file, number, change)


def _without_effect(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=str() as name) if name in WITHOUT_EFFECT:
                yield from ast.walk(node)
            case ast.Call(func=ast.Name(id="zip"), keywords=[strict]):
                yield from ast.walk(strict)
            case ast.Assign(targets=[ast.Name(id=name)]) if name in FREE:
                yield from ast.walk(node)
            case ast.arg(annotation=ast.expr() as note) | ast.AnnAssign(annotation=note):
                yield from ast.walk(note)
            case ast.FunctionDef(returns=ast.expr() as note):
                yield from ast.walk(note)
            case _:
                pass


def mutant_at(place: Place) -> Mutant:
    tree = ast.parse(place.file.read_text())
    node = next(each for at, each in enumerate(ast.walk(tree)) if at == place.node)
    lines = _lines_around(tree, node)
    before = ast.unparse(node).splitlines()[0]
    new = ast.copy_location(list(changed(node))[place.change], node)
    after = ast.unparse(new).splitlines()[0]
    replace(tree, node, new)
    return Mutant(place.file, lines, f"{before} -> {after}", compiled(tree, place.file))


def compiled(tree: ast.Module, file: Path) -> CodeType:
    return compile(tree, str(file), "exec", dont_inherit=True)


def _lines_around(tree: ast.AST, inner: ast.AST) -> range:
    """The lines of the smallest statement around a node, of a block those before its body."""
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and inner in ast.walk(node)
    ]
    smallest = around[-1]  # ast.walk goes by depth
    body = getattr(smallest, "body", None)
    end = max(smallest.lineno, body[0].lineno - 1) if body else smallest.end_lineno
    return range(smallest.lineno, (end or smallest.lineno) + 1)


def changed(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What the node may be replaced by."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            yield ast.Constant(_other(value))
        case ast.If(test=test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.IfExp(test=test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Return(value=ast.expr() as value) if not _is_as_none(value):
            yield ast.Return(ast.Constant(None))
        case _:
            yield from _other_operation(node)


def _other(value: bool | int | float) -> bool | int | float:
    """A large number is doubled: few tests could tell a limit of 2000 from one of 2001."""
    if isinstance(value, bool):
        return not value
    return value + 1 if abs(value) < LARGE else 2 * value


def _other_operation(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=[only]) if type(only) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(only)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case _:
            pass


def _is_as_none(value: ast.expr) -> bool:
    """In a condition, None is as good as False."""
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)


def replace(tree: ast.AST, old: ast.AST, new: ast.expr | ast.stmt) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(each is old for each in value):
                setattr(parent, name, [new if each is old else each for each in value])
    ast.fix_missing_locations(tree)
