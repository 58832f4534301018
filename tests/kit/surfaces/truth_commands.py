"""Judges what the commands print about energy, cards and placements, by the witness alone."""

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from joulie_demo import joulie
from truth import Judge

KWH_SLACK = 1e-6  # of a sum of whole microjoules
SHOWN_KWH = 0.0006  # three places
BROKER_NEEDED = ("report",)  # it reads facts from the streams


class Commands:
    """The commands `energy`, `report`, `gpus` and `explain` of a data directory."""

    def __init__(self, judge: Judge, data: Path) -> None:
        self._judge = judge
        self._data = data
        self.answers: dict[str, Any] = {}  # the last of each, with its text as `NAME text`

    async def look(self) -> None:
        for name in ("energy", "gpus", "report"):
            if not (name in BROKER_NEEDED and self._judge.stopped_at):
                await self._ask(name, name)
        await self._explain()

    async def _explain(self) -> None:
        placed = self._placed_pods()
        for uid in {*placed[:1], *placed[-1:]}:  # the newest ends soon
            await self._ask("explain", "explain", uid)

    async def until_explained(self) -> None:
        """Until a pod is explained that still runs then: on a busy machine most have ended."""
        while "explain" not in self.answers:
            await self._explain()

    async def _ask(self, name: str, *words: str) -> None:
        began = time.monotonic()
        text = await self._run(*words)
        answer = await self._run(*words, "-o", "json")
        ended = time.monotonic()
        await self._judge.settle()
        if text is not None and answer is not None:
            found = json.loads(answer)
            answered = {name: found, f"{name} text": text, f"{name} span": (began, ended)}
            if found.get("pod", found) is not None:  # not about a pod that is gone
                self.answers |= answered
            self.check(name, found, text, self._judge)

    async def _run(self, *words: str) -> str | None:
        """What it prints. A command that fails names what has a fault."""
        try:
            done = await asyncio.to_thread(joulie, *words, "--data", self._data)
        except subprocess.TimeoutExpired:  # a command without CPU states nothing
            self._judge.unanswered += 1
            return None
        if done.returncode == 0:
            return done.stdout
        is_fair = bool(self._judge.stopped_at) and "Traceback" not in done.stderr
        self._judge.expect(is_fair, words[0], done.stderr[-400:], "all components run")
        return None

    def check(self, name: str, found: Any, text: str, judge: Judge) -> None:
        match name:
            case "energy":
                _check_energy(found, text, self.answers[f"{name} span"], judge)
            case "report":
                _check_report(found, text, judge)
            case "gpus":
                _check_gpus(found, text, judge)
            case _:
                _check_explain(found, text, judge)

    def _placed_pods(self) -> list[str]:
        """Pods that run, by the broker."""
        pods = self._judge.witness.facts.pods_at(self._judge.witness.newest())
        return [uid for uid, pod in pods.items() if pod.node and not pod.finished]


def _check_energy(found: Any, text: str, span: tuple[float, float], judge: Judge) -> None:
    witness, inputs = judge.witness, judge.witness.inputs_at(found["folded_to"])
    judge.expect_ledger("energy", "behind", found["ledger_behind_ms"] / 1000, span)
    parts = found["pods_kwh"] + found["idle_kwh"]
    judge.expect_near("energy", "pods + idle", parts, found["meter_kwh"])
    sums = sum(each["kwh"] for each in found["items"])
    judge.expect_near("energy", "sum of the names", sums, found["meter_kwh"])
    series = sum(pods + idle for _, _, pods, idle, *_ in found["series"])
    judge.expect_near("energy", "sum of the series", series, found["meter_kwh"])
    if inputs is not None:
        truth = witness.facts.meter_kwh(inputs)
        judge.expect_near("energy", "meter_kwh", found["meter_kwh"], truth, KWH_SLACK)
        newest_ms = witness.facts.newest_reading_ms(inputs)
        judge.expect_same("energy", "complete_to_ms", found["complete_to_ms"], newest_ms)
    shown = re.search(r"\(position (\d+)\)\n  meters +([\d.]+) kWh", text)
    if judge.expect_found("energy text", shown, text) and shown:
        _check_shown(judge, "energy text", float(shown[2]), int(shown[1]))


def _check_shown(judge: Judge, where: str, shown_kwh: float, position: int) -> None:
    if (inputs := judge.witness.inputs_at(position)) is not None:
        truth = judge.witness.facts.meter_kwh(inputs)
        near = abs(shown_kwh - truth) <= SHOWN_KWH
        judge.expect(near, where, f"meters {shown_kwh} kWh", truth)


def _check_report(found: Any, text: str, judge: Judge) -> None:
    """Of everything up to its position. What was saved is a simulation, which nothing measures; its
    figure in the text is one of those that are compared with each other."""
    facts, inputs = judge.witness.facts, judge.witness.inputs_at(found["position"])
    energy, placements = found["energy"]["node"], found["placements"]
    ranked = placements["on_the_best_node"] + placements["elsewhere"]
    answered = ranked + placements["without_a_rank"]
    judge.expect_same("report", "answered", placements["answered"], answered)
    if inputs is not None:
        truth = facts.meter_kwh(inputs)
        judge.expect_near("report", "meter_kwh", energy["meter_kwh"], truth, KWH_SLACK)
        bound = facts.bound_at(inputs, energy["from"], energy["to"])
        judge.expect_same("report", "bound", placements["bound"], bound)
        # The text is of another run, some seconds before: it holds no more than this one.
        shown = re.match(r"The meters measured ([\d.]+) kWh", text)
        if judge.expect_found("report text", shown, text) and shown:
            near = 0 < float(shown[1]) <= truth + SHOWN_KWH
            judge.expect(near, "report text", shown[0], f"{truth} kWh later")


def _check_gpus(found: Any, text: str, judge: Judge) -> None:
    inputs = judge.witness.inputs_at(found["position"])
    if inputs is None:
        return
    cards, sums = judge.witness.facts.cards_at(inputs), found["sums"]
    for name, truth in {
        "cards": len(cards),
        "nodes": len({card.node for card in cards.values()}),
        "unhealthy": sum(not card.healthy for card in cards.values()),
        "total_mb": sum(card.total_mb for card in cards.values()),
    }.items():
        judge.expect_same("gpus", name, sums[name], truth)
    for item in found["items"]:
        card = cards.get(item["uuid"])
        known = (card.node, card.model, card.total_mb) if card else None
        stated = (item["node"], item["model"], item["total_mb"])
        judge.expect_same("gpus", item["uuid"], stated, known)
    shown = re.search(r"^(\d+) card\(s\) on (\d+) node\(s\): .*?(\d+) unhealthy", text, re.M)
    if judge.expect_found("gpus text", shown, text) and shown:
        truths = (sums["cards"], sums["nodes"], sums["unhealthy"])
        judge.expect_same("gpus text", "cards", tuple(map(int, shown.groups())), truths)


def _check_explain(found: Any, text: str, judge: Judge) -> None:
    inputs = judge.witness.inputs_at(found["position"])
    for entry in found["decisions"]:
        winner = judge.witness.winners.get(entry["id"])
        if winner is not None and entry["verb"] == "prioritize":
            judge.expect_same("explain", "winner", entry["winner"], winner)
    uids = [each["pod_uid"] for each in found["decisions"]]
    uids += [found["pod"]["uid"]] if found["pod"] else []
    if inputs is None or not uids:
        return
    pod = judge.witness.facts.pods_at(inputs).get(uids[0])
    if pod is None or found["pod"] is None:
        judge.expect_same("explain", "no pod", found["pod"], pod)
        return
    judge.expect_same("explain", "node", found["pod"]["node"], pod.node)
    name = f"{found['pod']['namespace']}/{found['pod']['name']}"
    judge.expect_same("explain", "name", name, f"{pod.namespace}/{pod.name}")
    shown = re.search(r"outcome +(?:bound to|runs on) ([\w.-]+)", text)
    if judge.expect_found("explain text", shown, text) and shown:
        judge.expect_same("explain text", "bound to", shown[1], pod.node)
