"""What the witnesses of the log say: only they know whether everything was set back together."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from joulie_audit.access.past import history_of
from joulie_audit.chain.entries import Flaw
from joulie_bus.errors import NotInTheLog, SettingsError
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.stored_tree import NO_TREE, StoredTree
from joulie_projections.witness.asking import Answer, Finding, WitnessPlace, ask_all, witness_place
from joulie_projections.witness.settings import WitnessSettings

ROUNDS = 2  # again: the projector may submit a newer checkpoint between our reading and our asking
NO_WITNESS = (
    "  No witness was asked: if the database and the broker were set back together, or replaced by "
    "others that the same key signed, nothing here shows it. `joulie witness` runs one; give "
    "--witness KEY@URL, or set WITNESSES."
)


class Witnessed(NamedTuple):
    answers: Sequence[Answer] = ()
    quorum: int = 0
    entries: int = 0  # in the tree that the witnesses were asked about

    @property
    def confirmed(self) -> int:
        return sum(answer.finding is Finding.COSIGNED for answer in self.answers)

    @property
    def flaw(self) -> Flaw | None:
        for answer in self.answers:
            name = answer.witness.key.name
            if answer.finding is Finding.AHEAD:
                what = f"the log was set back: witness {name} {answer.what}"
                return Flaw(self.entries + 1, what)
            if answer.finding is Finding.FORKED:
                return Flaw(answer.size, f"the log was forked: witness {name} {answer.what}")
        if self.confirmed < self.quorum:
            silent = [each for each in self.answers if each.finding is Finding.SILENT]
            why = "; ".join(f"{each.witness.key.name} {each.what}" for each in silent)
            asked = len(self.answers)
            what = (
                f"{self.confirmed} of {asked} witnesses confirm the log, not {self.quorum}: {why}"
            )
            return Flaw(self.entries, what)
        return None

    @property
    def as_json(self) -> dict[str, Any]:
        names = {each.witness.key.name: each.finding.value for each in self.answers}
        return {"witnesses": names, "quorum": self.quorum} if self.answers else {}

    @property
    def as_text(self) -> str:
        if not self.answers:
            return NO_WITNESS
        return (
            f"  {self.confirmed} of {len(self.answers)} witnesses confirm its {self.entries} "
            "entries as the newest that they saw."
        )


def witnessed(args: argparse.Namespace, wires: Wiring) -> Witnessed:
    named = [_place_of(text) for text in args.witness]
    places = named or wires.source.load(WitnessSettings).witnesses
    if not places:
        if args.quorum:
            raise NotInTheLog("--quorum demands witnesses: give --witness KEY@URL, or WITNESSES.")
        return Witnessed()
    if args.quorum > len(places):
        raise NotInTheLog(f"--quorum {args.quorum} is more than the {len(places)} witnesses.")
    quorum = args.quorum or len(places) // 2 + 1
    asked = _ask(wires, places, quorum)
    for _ in range(ROUNDS):
        if all(answer.finding is not Finding.AHEAD for answer in asked.answers):
            break
        asked = _ask(wires, places, quorum)
    return asked


def _place_of(text: str) -> WitnessPlace:
    try:
        return witness_place(text)
    except ValueError as error:
        raise SettingsError([f"--witness {text[:200]!r}: {error}"]) from error


def _ask(wires: Wiring, places: Sequence[WitnessPlace], quorum: int) -> Witnessed:
    with history_of(wires) as history:
        tree = StoredTree.of(history)
        if tree is None:
            raise NotInTheLog(f"No witness was asked. {NO_TREE}")
        newest = tree.newest
        return Witnessed(ask_all(places, newest, tree.consistency), quorum, newest.size)
