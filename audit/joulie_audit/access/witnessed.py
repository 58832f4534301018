"""What the witnesses of the log say: only they know whether everything was set back together."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from joulie_audit.access.past import history_of
from joulie_audit.chain.entries import Flaw
from joulie_bus.errors import NotInTheLog, SettingsError
from joulie_projections.chain.head import head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.merkle import EMPTY_ROOT
from joulie_projections.chain.note import LogCheckpoint
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.stored_tree import StoredTree, newest_head
from joulie_projections.witness.asking import Answer, Finding, ask_all, seen_by
from joulie_projections.witness.policy import Policy, at_least, witness_place
from joulie_projections.witness.settings import WitnessSettings, policy_in

ROUNDS = 2  # again: the projector may submit a newer checkpoint between our reading and our asking
_LATER = (Finding.AHEAD, Finding.ACCUSED)
NO_WITNESS = (
    "  No witness was asked: if the database and the broker were set back together, or replaced by "
    "others that the same key signed, nothing here shows it. `joulie witness` runs one; give "
    "--witness KEY@URL, or set WITNESSES."
)


class Witnessed(NamedTuple):
    answers: Sequence[Answer] = ()
    policy: Policy = Policy()
    entries: int = 0  # in the tree that the witnesses were asked about

    @property
    def confirmed(self) -> int:
        return sum(answer.finding is Finding.COSIGNED for answer in self.answers)

    @property
    def flaw(self) -> Flaw | None:
        """What a witness proves: a checkpoint that a key of the log signed, and that the log does
        not contain. What it says without that is no proof."""
        for answer in self.answers:
            name = answer.witness.key.name
            if answer.finding is Finding.AHEAD:
                what = f"the log was set back: witness {name} {answer.what}"
                return Flaw(self.entries + 1, what)
            if answer.finding is Finding.FORKED:
                return Flaw(answer.size, f"the log was forked: witness {name} {answer.what}")
        return None

    @property
    def is_confirmed(self) -> bool:
        """Whether the quorum has cosigned the log since it was asked."""
        keys = {each.witness.key.raw for each in self.answers if each.finding is Finding.COSIGNED}
        return self.policy.is_met_by(keys)

    @property
    def as_json(self) -> dict[str, Any]:
        if not self.answers:
            return {}
        names = {each.witness.key.name: each.finding.value for each in self.answers}
        return {"witnesses": names, "confirmed": self.is_confirmed}

    @property
    def as_text(self) -> str:
        if not self.answers:
            return NO_WITNESS
        count = f"{self.confirmed} of {len(self.answers)} witnesses confirm"
        if self.is_confirmed:
            first = f"  {count} its {self.entries} entries as the newest that they saw."
        else:
            first = f"UNCONFIRMED: {count} the log; demanded are {self.policy.demand}."
        others = (each for each in self.answers if each.finding is not Finding.COSIGNED)
        return "\n".join([first, *map(_line, others)])


def _line(answer: Answer) -> str:
    unproved = " (it shows no signature of the log)" if answer.finding is Finding.ACCUSED else ""
    return f"  {answer.witness.key.name} {answer.what}{unproved}"


def witnessed(args: argparse.Namespace, wires: Wiring, ring: Ring) -> Witnessed:
    policy = _policy(args, wires)
    if not policy.witnesses:
        return Witnessed()
    asked = _ask(wires, policy, ring)
    for _ in range(ROUNDS):
        if all(answer.finding not in _LATER for answer in asked.answers):
            break
        asked = _ask(wires, policy, ring)
    return asked


def _policy(args: argparse.Namespace, wires: Wiring) -> Policy:
    if args.policy is not None and (args.witness or args.quorum):
        raise SettingsError(["--policy names witnesses and their quorum: leave the others out"])
    try:
        if args.policy is not None:
            return policy_in(args.policy)
        named = at_least(map(witness_place, args.witness))
    except ValueError as error:
        option = "--witness" if args.policy is None else "--policy"
        raise SettingsError([f"{option}: {error}"]) from error
    policy = named if named.witnesses else wires.source.load(WitnessSettings).policy
    if not args.quorum:
        return policy
    if not policy.witnesses:
        raise NotInTheLog("--quorum demands witnesses: give --witness KEY@URL, or WITNESSES.")
    if args.quorum > len(policy.witnesses):
        raise NotInTheLog(
            f"--quorum {args.quorum} is more than the {len(policy.places)} witnesses."
        )
    return at_least(policy.places, args.quorum)


def _ask(wires: Wiring, policy: Policy, ring: Ring) -> Witnessed:
    with history_of(wires) as history:
        newest, tree = newest_head(history, ring).checkpoint, StoredTree(history)
        if policy.logs and not any(map(newest.is_signed_by, policy.logs)):
            raise NotInTheLog(f"The policy of witnesses names no key of this log, {newest.origin}.")
        asked = ask_all(policy.places, newest, tree.consistency)
        answers = [_proved(each, newest, tree, ring) for each in asked]
        return Witnessed(answers, policy, newest.size)


def _proved(answer: Answer, newest: LogCheckpoint, tree: StoredTree, ring: Ring) -> Answer:
    """What a witness says of another tree counts if it shows a head of it."""
    if answer.finding is not Finding.ACCUSED:
        return answer
    seen = seen_by(answer.witness, newest.origin)
    shown = head_in(seen.note) if seen is not None else None
    if shown is None or ring.flaw_of(shown):
        return answer
    if shown.pos > newest.size:
        what = f"saw {shown.pos} entries, and the log has {newest.size}"
        return answer._replace(finding=Finding.AHEAD, what=what, size=shown.pos)
    root = tree.frontier_at(shown.pos).root if shown.pos else EMPTY_ROOT
    if root != shown.checkpoint.root:
        return answer._replace(finding=Finding.FORKED, size=shown.pos)
    return answer._replace(finding=Finding.SILENT, what="refuses a log that contains what it saw")
