"""The type of a source of answers: a console, or the local data."""

from typing import TYPE_CHECKING

from joulie.client.console import ConsoleClient

if TYPE_CHECKING:
    from joulie_answers.answers import Answers

    Source = Answers | ConsoleClient  # their methods are the same
else:
    Source = ConsoleClient

__all__ = ["Source"]
