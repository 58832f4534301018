"""A client of Joulie for scripts and notebooks: typed answers, the decision stream, replay.

Not here: what the console serves (`joulie_console`), what a replay computes (`joulie_audit`).
In: the URL of a console, the URL of a broker, an archive. Out: the console's own answers, the
events of the log, a report.

`queries` are the parameters of the API, `answers` its responses. Everything is asynchronous.
"""

from joulie.client.archive import replay_archive
from joulie.client.broker import BrokerEvent, events_of_broker
from joulie.client.console import ConsoleClient
from joulie.client.stream import StreamEvent
from joulie_answers.schema import requests as queries
from joulie_answers.schema import responses as answers
from joulie_bus import events
from joulie_bus.errors import ConsoleNotReached, ConsoleRefused, JoulieError

__all__ = [
    "BrokerEvent",
    "ConsoleClient",
    "ConsoleNotReached",
    "ConsoleRefused",
    "JoulieError",
    "StreamEvent",
    "answers",
    "events",
    "events_of_broker",
    "queries",
    "replay_archive",
]
