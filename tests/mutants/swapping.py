"""Puts the code of a mutant in the place of its module, or of its functions."""

import ast
import gc
import importlib.abc
import importlib.util
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FunctionType, ModuleType

from mutations import Mutant, compiled
from packages import ROOT


class MutatedLoader(importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._mutant.file)
        exec(self._mutant.code, module.__dict__)


class MutatedFinder(importlib.abc.MetaPathFinder):
    """Finds the mutant instead of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(mutant.file.relative_to(ROOT).with_suffix("").parts[1:])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        return importlib.util.spec_from_loader(fullname, MutatedLoader(self._mutant))


class Functions:
    """The imported functions by their code, to give them that of a mutant."""

    def __init__(self) -> None:
        self._by_code: dict[CodeType, list[FunctionType]] = {}
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(ROOT)):
                self._by_code.setdefault(one.__code__, []).append(one)

    def change(self, mutant: Mutant) -> bool:
        """Whether the change lies in functions alone; what runs at import has run."""
        original = compiled(ast.parse(mutant.file.read_text()), mutant.file)
        return self._change(original, mutant.code, is_replaced=False)

    def _change(self, old: CodeType, new: CodeType, is_replaced: bool) -> bool:
        if old == new:
            return True
        functions = self._by_code.get(old, [])
        for function in functions:
            function.__code__ = new
        is_replaced = is_replaced or bool(functions)
        inner, inner_new = _inner_codes(old), _inner_codes(new)
        if len(inner) != len(inner_new) or (not is_replaced and _own(old) != _own(new)):
            return is_replaced
        pairs = zip(inner, inner_new, strict=True)
        return all([self._change(one, other, is_replaced) for one, other in pairs])


def _inner_codes(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[bytes, str]:
    return code.co_code, repr([one for one in code.co_consts if not isinstance(one, CodeType)])
