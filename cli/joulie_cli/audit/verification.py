"""`joulie verify`: checks every hash, link and signature of the decision log."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from joulie_audit.access import heads_places
from joulie_audit.access.heads_places import keeper_of
from joulie_audit.access.kept_heads import (
    NOTHING,
    Anchors,
    anchors_in,
    anchors_kept,
    anchors_of,
    ids_of,
    public_key,
    public_key_in,
)
from joulie_audit.access.past import (
    ArchivePlace,
    archive_of,
    broker_of,
    history_of,
    sharing_of,
    span_of,
)
from joulie_audit.access.witnessed import witnessed
from joulie_audit.archive.parts import Archive
from joulie_audit.chain.entries import EntryRange, Flaw
from joulie_audit.chain.heads import unkept_flaw
from joulie_audit.verify.days import Day, Sum, days_in, summed
from joulie_audit.verify.stream_messages import compare_messages, unlogged_notes
from joulie_audit.verify.unsigned import as_json as others_json
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.errors import NotInTheLog, SettingsError, Unreachable
from joulie_bus.log.protocol import Log
from joulie_cli.display.output import show
from joulie_cli.display.progress import progress
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.sequence_gaps import GapKind
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.witness.settings import WitnessSettings, heads_place

SETTINGS = (ArchivePlace, WitnessSettings, *heads_places.SETTINGS)
UNCONFIRMED = 3  # exit code: the log is valid, and too few witnesses say that it is the newest
FROM_THE_STREAM, FROM_NOWHERE = "stream", "none"
NO_STREAM = (
    "The broker stores the anchored heads of the log: give --heads FILE to compare with heads "
    "from a file, or --heads none to skip the comparison."
)
EMPTIED = (
    "the database holds {} signed heads, and their stream none that a key of this log signed: they "
    "were removed there, or the stream was recreated. For a restored log whose projector has not "
    "signed a head yet, give --heads none"
)
NOT_YET = (
    "the only signed head of the log is not in its stream: the projector ended before it published "
    "it there, or the stream was recreated"
)
ALONE = (
    "every file is intact, and every hash, link and signature is valid. It was compared with no "
    "database: there is none in the data directory"
)
NOT_COMPARED = "  No anchored heads were compared: a log cut off at its end would not be detected."


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.report is not None:
        return _verify_report(args, wires)
    if args.sum is not None:
        return _sum(args)
    if args.day and args.archive is None:
        raise NotInTheLog("--day is of an archive. Nothing was checked. Give --archive DIR, too.")
    if args.archive is not None and (args.day or not wires.data.has_database):
        return _verify_archive_alone(args, wires)
    require_readable(wires.data)  # before a witness or a broker is contacted
    # First: the head that they confirm is then verified.
    asked = witnessed(args, wires, _public(args, wires))
    report, archived, anchors = asyncio.run(_verify(args, wires))
    report = report._replace(flaw=report.flaw or asked.flaw)
    lines, is_compared = as_text(report, archived), anchors is not NOTHING
    if report.flaw is None:
        lines += f"\n{asked.as_text}"
    show(args, {**as_json(report, archived), **asked.as_json}, lines)
    if args.output == "table":
        notes = [*report.notes, *anchors.notes]
        print_notes(anchors._replace(notes=notes), is_compared=is_compared)
    flawed = report.flaw is not None or (archived is not None and archived.flaw is not None)
    if flawed or report.unkept:
        return 1
    return 0 if asked.is_confirmed else UNCONFIRMED


def _verify_report(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_answers.report.verification import verified  # the simulator takes half a second

    found = asyncio.run(verified(args.report, wires, archive_of(args, wires)))
    show(args, {"report": str(args.report), "flaw": found.flaw or None}, found.text)
    return 1 if found.flaw else 0


def _verify_archive_alone(args: argparse.Namespace, wires: Wiring) -> int:
    """Without a database beside it, as on the machine of an auditor."""
    archive = Archive.of(args.archive, args.day or "")  # first, because it is what is asked about
    public = _public(args, wires)
    anchors = _given(args, wires, public)
    ring, forged = public.with_all(anchors.keys)
    with progress("verify", args.output != "table") as tell:
        archived = verify_archive(archive, ring, None, anchors.heads, args.jobs, tell)
    if archived.flaw is None and (what := [*forged, *filter(None, [anchors.flaw])]):
        archived = archived._replace(flaw=what[0])
    show(args, {"archive": archive_json(archived)}, "\n".join(archive_lines(archived, ALONE)))
    if args.output == "table":
        print_notes(anchors, is_compared=anchors is not NOTHING)
    return 1 if archived.flaw is not None else 0


def _sum(args: argparse.Namespace) -> int:
    text = sys.stdin.read() if args.sum == "-" else Path(args.sum).read_text()
    found = summed(list(days_in(text)))
    show(args, {"sum": found._asdict()}, "\n".join(sum_lines(found)))
    return 1 if found.flaw is not None else 0


def _given(args: argparse.Namespace, wires: Wiring, public: Ring) -> Anchors:
    """Heads from the file or the place that --heads names."""
    if args.heads in (FROM_THE_STREAM, FROM_NOWHERE):
        return NOTHING
    kind, _, where = args.heads.partition(":")
    if kind not in ("file", "s3", "configmap"):
        return anchors_in(Path(args.heads), public)
    try:
        place = heads_place(args.heads)
    except ValueError as error:
        raise SettingsError([f"--heads={args.heads}: {error}"]) from error
    if isinstance(place, Path) or place is None:
        return anchors_in(Path(where), public)
    return anchors_kept(keeper_of(place, wires), args.heads, public)


def _public(args: argparse.Namespace, wires: Wiring) -> Ring:
    return public_key(wires) if args.key is None else public_key_in(args.key)


def print_notes(anchors: Anchors, *, is_compared: bool) -> None:
    if not is_compared:
        print(NOT_COMPARED)
    for note in anchors.notes:
        print(f"  Note: {note}.")


async def _verify(
    args: argparse.Namespace, wires: Wiring
) -> tuple[Report, ArchiveReport | None, Anchors]:
    public = _public(args, wires)
    if args.heads == FROM_THE_STREAM:
        report, anchors = await _by_the_stream(args, wires, public)
    else:
        anchors = await asyncio.to_thread(_given, args, wires, public)
        report = _report(args, wires, public, anchors)
        anchors = _with_end(anchors, wires, args.heads)
    archive = archive_of(args, wires)
    if archive is None:
        return report, None, anchors
    with history_of(wires) as history, progress("verify", args.output != "table") as tell:
        archived = verify_archive(
            Archive.of(archive), public, history, anchors.heads, args.jobs, tell
        )
    return report, archived, anchors


def _with_end(anchors: Anchors, wires: Wiring, named: str) -> Anchors:
    """Names the heads of the log that a place does not hold yet, or not any more."""
    if anchors.whole_from is None or not anchors.heads:
        return anchors
    last = max(head.pos for head in anchors.heads)
    with history_of(wires) as history:
        later = history.heads_after(last)
    if not later:
        return anchors
    what = f"{named} ends at entry {last}, and the newest signed head of the log at {later[-1].pos}"
    return anchors._replace(notes=[*anchors.notes, what])


async def _by_the_stream(
    args: argparse.Namespace, wires: Wiring, public: Ring
) -> tuple[Report, Anchors]:
    try:
        async with broker_of(wires) as bus:
            anchors = await anchors_of(bus, public)
            report = _report(args, wires, public, anchors)
            if report.flaw is None and report.heads and not anchors.heads:
                report, anchors = _without_anchors(report, anchors)
            if report.flaw is not None or (args.first, args.last) != (1, None):
                return report, anchors
            return await _with_messages(bus, wires, public, report, anchors)
    except Unreachable as error:
        raise NotInTheLog(f"{error} {NO_STREAM}") from error


async def _with_messages(
    bus: Log, wires: Wiring, public: Ring, report: Report, anchors: Anchors
) -> tuple[Report, Anchors]:
    """Compares the stream of decisions with the entries."""
    ring, _ = public.with_all(anchors.keys)
    with history_of(wires) as history:
        found = await compare_messages(bus, history, ring, anchors.heads)
    notes = [*anchors.notes, *found.notes]
    if found.flaw is None and report.gaps:
        notes += unlogged_notes(report.gaps, await ids_of(bus))
    return report._replace(flaw=found.flaw), anchors._replace(notes=notes)


def _without_anchors(report: Report, anchors: Anchors) -> tuple[Report, Anchors]:
    """A head is signed first, and then published: the first one may be missing in the stream, until
    the next projector publishes it."""
    if report.heads == 1 and report.cut is None:
        return report, anchors._replace(notes=[*anchors.notes, NOT_YET])
    return report._replace(flaw=Flaw(0, EMPTIED.format(report.heads))), anchors


def _report(args: argparse.Namespace, wires: Wiring, public: Ring, anchors: Anchors) -> Report:
    ring, forged = public.with_all(anchors.keys)
    with history_of(wires) as history:
        entry_range = EntryRange(*span_of(args, history.tip(), "entry"))
        entries = min(entry_range.last, history.tip()) - entry_range.first + 1
        workers = sharing_of(args.jobs, wires, entries)
        report = verify(history, ring, anchors.heads, entry_range, workers)
        if report.flaw is None and anchors.whole_from is not None:
            wanted = [head for head in history.heads() if head.pos >= anchors.whole_from]
            report = report._replace(flaw=unkept_flaw(wanted, anchors.heads, args.heads))
    if report.flaw is None and (what := [*forged, *filter(None, [anchors.flaw])]):
        return report._replace(flaw=Flaw(0, what[0]))
    return report


def as_json(report: Report, archived: ArchiveReport | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"entries": report.entries, "heads": report.heads}
    if report.gaps:
        result["holes"] = [gap._asdict() for gap in report.gaps]
    if report.unkept:
        result["unkept"] = [unkept._asdict() for unkept in report.unkept]
    if report.flaw is not None:
        result |= {"first_bad": report.flaw.place, "what": report.flaw.what}
    if report.notes:
        result["foreign"] = others_json(report.others)
    if archived is not None:
        result["archive"] = archive_json(archived)
    elif report.cut is not None:
        result["unseen"] = {"entries": [1, report.cut.pos - 1], "positions": [1, report.cut.p_to]}
    return result


def as_text(report: Report, archived: ArchiveReport | None = None) -> str:
    if report.flaw is not None:
        lines = [f"CORRUPTED: {report.flaw.what}."]
    else:
        lines = [
            f"{report.entries} entries, {report.heads} signed heads, {report.batches} manifests, "
            f"{report.snapshots} snapshots: every hash, link and signature is valid."
        ]
    lines.extend(f"  {gap}." for gap in report.gaps if gap.kind is not GapKind.MISSING)
    lines.extend(f"  PROMISE NOT KEPT to {unkept}." for unkept in report.unkept)
    if report.cut is not None:
        lines.append(_unseen(report.cut) if archived is None else _through(report.cut))
    if archived is not None:
        lines += archive_lines(archived, "every file is intact and matches the log")
    return "\n".join(lines)


def archive_json(archived: ArchiveReport) -> dict[str, Any]:
    found = {**archived._asdict(), "holes": [hole._asdict() for hole in archived.holes]}
    day = found.pop("day")
    return found if day is None else {**found, "day": msgspec.to_builtins(day)}


def sum_lines(found: Sum) -> list[str]:
    if found.flaw is not None:
        return [f"The archive is CORRUPTED: {found.flaw}"]
    (first, last), (entry, newest) = found.positions, found.entries
    lines = [
        f"{found.first_day} to {found.last_day}: positions {first} to {last} and entries {entry} "
        f"to {newest} in {found.parts} parts: every file is intact, and each day continues the "
        "day before."
    ]
    if found.signed_to < newest:
        lines.append(f"  NOT signed in these days: entries {found.signed_to + 1} to {newest}.")
    return lines


def _day_lines(archived: ArchiveReport, day: Day) -> list[str]:
    both = (("positions", day.facts), ("entries", day.log))
    held = [f"{what} {each.first} to {each.last}" for what, each in both if each is not None]
    return [
        f"{day.day}: {' and '.join(held) or 'nothing'} in {archived.parts} parts: every file is "
        "intact. `joulie verify --sum` joins the days."
    ]


def archive_lines(archived: ArchiveReport, what: str) -> list[str]:
    if archived.flaw is not None:
        return [f"The archive is CORRUPTED: {archived.flaw}"]
    if archived.day is not None:
        return _day_lines(archived, archived.day)
    lines = [
        f"The archive holds {archived.facts} facts and {archived.entries} entries in "
        f"{archived.parts} parts: {what}."
    ]
    if archived.signed_to < archived.entries:
        lines.append(
            f"  NOT signed: entries {archived.signed_to + 1} to {archived.entries}: the head that "
            "covers them is in the log, and not yet in the archive."
        )
    if archived.other_folds:
        lines.append(
            f"  {_by_version(archived.other_folds)}: a restore folds these facts again, and cannot "
            f"compare their state (this is version {CODE_VERSION})."
        )
    if archived.holes:
        lines.append(f"  A restore brings back {_spans(archived)}.")
        lines.extend(f"  NOT {hole}." for hole in archived.holes)
    return lines


def _spans(archived: ArchiveReport) -> str:
    """The positions between the holes."""
    begins = [1, *(hole.last for hole in archived.holes if hole.is_closed)]
    ends = [*(hole.first - 1 for hole in archived.holes), archived.facts]
    spans = [f"{first} to {last}" for first, last in zip(begins, ends, strict=False) if last]
    return f"positions {' and '.join(spans)}" if spans else "nothing"


def _by_version(positions: Mapping[str, int]) -> str:
    named = (f"{count} positions of fold version {name}" for name, count in positions.items())
    return " and ".join(named)


def _unseen(cut: Cut) -> str:
    return (
        f"  NOT checked: entries 1 to {cut.pos - 1} and positions 1 to {cut.p_to}, which were "
        "trimmed. To check them in the archive, give --archive DIR or set ARCHIVE_DIR."
    )


def _through(cut: Cut) -> str:
    return f"  The log continues at entry {cut.pos} from the trimmed part in the archive."
