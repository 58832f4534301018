"""A parser whose errors are one line: what is wrong, what was done, and what to do."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

# What other programs call an option of ours.
OTHER_NAMES = {"--json": "-o json", "--yaml": "-o yaml", "--csv": "-o csv", "--format": "-o"}


class Parser(argparse.ArgumentParser):
    def arguments(self, words: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`, with similar options for an unknown one."""
        found, unknown = self.parse_known_args(words)
        if unknown:
            used = self._used(found)
            used.error(used._unknown(unknown[0].partition("=")[0]))
        return found

    def _used(self, found: argparse.Namespace) -> "Parser":
        """The parser of the command, if this one has parsers of commands."""
        for action in self._actions:
            if isinstance(action.choices, dict):
                used = action.choices.get(getattr(found, action.dest, None))
                if isinstance(used, Parser):
                    return used
        return self

    def error(self, message: str) -> NoReturn:
        help_of = f"`{self.prog} --help` lists what can be given."
        self.exit(2, f"{self.prog}: {message.rstrip('.')}. Nothing was done. {help_of}\n")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one argument too many"
        flags = [flag for action in self._actions for flag in action.option_strings]
        similar = get_close_matches(word, [flag for flag in flags if flag.startswith("--")])
        if OTHER_NAMES.get(word, "").partition(" ")[0] in flags:
            similar = [OTHER_NAMES[word]]
        starting = [flag for flag in flags if flag.startswith(word)]
        found = [*dict.fromkeys([*similar, *starting])][:3]
        return f"there is no option {word}{'. Similar: ' * bool(found)}{', '.join(found)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        similar = get_close_matches(str(value), known, 1)
        hint = f" (did you mean {similar[0]}?)" if similar else ""
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{hint}")
