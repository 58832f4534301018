"""`joulie try` without `--from`: a period of the log again, under other settings."""

from __future__ import annotations

import argparse
import time
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from joulie_bus.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from joulie_answers.trial_of_log.answer import Wanted
    from joulie_answers.trial_of_log.settings import Change
    from joulie_projections.component.wiring import Wiring
    from joulie_simulator.trial.past import Past, Tried

MOST_ROWS = 20  # of changes
MOST_SEEDS = 20
MS_PER_S = 1000
MS_PER_NS = 1_000_000


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.text.trial_of_log import as_text
    from joulie_answers.trial_of_log.answer import trial_of_log
    from joulie_audit.access.past import archive_of
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    wanted = wanted_of(args)
    with progress("try", args.output != "table"):
        found = asyncio.run(trial_of_log(wires, archive_of(args, wires), wanted))
    show(args, as_json(found), as_text(found))
    return 0


def wanted_of(args: argparse.Namespace) -> Wanted:
    """Raises SettingsError and NotInTheLog."""
    from joulie_answers.trial_of_log.answer import Wanted
    from joulie_cli.display.times import time_of_period

    if args.seeds > MOST_SEEDS:
        raise SettingsError([f"--seeds {args.seeds}: at most {MOST_SEEDS}"])
    to_ms = time_of_period(args.to, time.time_ns()) // MS_PER_NS if args.to else None
    return Wanted(round(args.last * MS_PER_S), to_ms, args.seeds, changes_of(args.set))


def changes_of(texts: Sequence[str]) -> list[Change]:
    """One for each combination of the values."""
    given = {name: values for name, values in map(_values, texts)}
    if not given:
        return []
    rows = prod(map(len, given.values()))
    if rows > MOST_ROWS:
        raise SettingsError([f"--set: {rows} rows, and at most {MOST_ROWS} are computed"])
    return [_change(dict(zip(given, each, strict=True))) for each in product(*given.values())]


def _values(text: str) -> tuple[str, list[str]]:
    """Of a text of pairs such as POLICY_NUMBERS, commas are part of the value."""
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals:
        raise SettingsError([f"--set {text}: write it as NAME=VALUE or NAME=VALUE,VALUE"])
    if name == "PRESET":
        raise SettingsError(["--set PRESET: each preset has a row already"])
    split = [values] if "=" in values else values.split(",")
    return name, [each.strip() for each in split]


def _change(given: Mapping[str, str]) -> Change:
    """Raises SettingsError for names that neither scores nor plans have."""
    from joulie_answers.trial_of_log.settings import Change
    from joulie_audit.questions.whatif import Overrides
    from joulie_cli.ask.whatif import other_of
    from joulie_operator.planning.policy_numbers import PolicyNumbers

    of_policy = {
        name: text for name, text in given.items() if name in PolicyNumbers.__struct_fields__
    }
    settings = {name: text for name, text in given.items() if name not in of_policy}
    name = ", ".join(f"{name}={value}" for name, value in given.items())
    overrides = other_of(settings) if settings else Overrides()
    return Change(name, given, overrides, _numbers(of_policy))


def _numbers(given: Mapping[str, str]) -> dict[str, float]:
    from joulie_answers.trial_of_log.settings import UNTRIED
    from joulie_operator.planning.policy_numbers import described, wrong_numbers

    found, wrong = dict[str, float](), list[str]()
    for name, text in given.items():
        if name in UNTRIED:
            wrong.append(f"--set {name}: caps, evictions and power targets are not simulated")
            continue
        try:
            found[name] = float(text)
        except ValueError:
            wrong.append(f"--set {name}={text}: not {described(name)}")
    wrong += [f"--set {each}" for each in wrong_numbers(found, others=False)]
    if wrong:
        raise SettingsError(wrong)
    return found


# --- JSON ---------------------------------------------------------------------------------------


def as_json(found: Past) -> dict[str, Any]:
    from joulie_answers.text.trial_of_log import assumed, not_known

    return {
        "from": found.from_ms,
        "to": found.to_ms,
        "position": found.position,
        "calibration": _calibration(found),
        "rows": [dict(_row(each, found)) for each in found.rows],
        "unknown": found.unknown._asdict(),
        "not_known": list(not_known(found)),
        "assumed": list(assumed(found)),
    }


def _calibration(found: Past) -> dict[str, Any]:
    known = found.calibration
    return {
        **{name: getattr(known.judged, name) for name in ("metered_kwh", "replayed_kwh", "error")},
        "is_good": known.is_good,
        "judged_on": "later half" if known.is_apart else "all",
        "whole": {**known.whole._asdict(), "error": known.whole.error},
        "error_by_interval": known.by_interval,
        "node_hours": known.hours._asdict(),
        "read_share": known.hours.read_share,
        "sleep_is_calibrated": found.sleeps,
        "use_of_requests": found.use._asdict(),
        "wake_s": found.wake_s,
        "happened": found.happened._asdict(),
    }


def _row(row: Tried, found: Past) -> Iterator[tuple[str, Any]]:
    from joulie_simulator.trial.past import PastRun, saved_by, work_share

    saved = None if row is found.as_it_ran else saved_by(row, found.as_it_ran)
    yield "name", row.name
    yield "set", dict(row.changed)
    yield from ((name, row.middle(name)) for name in PastRun._fields)
    yield "saved_share", saved and saved._asdict()
    yield "work_share", work_share(row, found.as_it_ran)
    yield "runs", [run._asdict() for run in row.runs]
