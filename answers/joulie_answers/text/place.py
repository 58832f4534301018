"""What would happen to the pods of a manifest, as text."""

from collections.abc import Iterator

from joulie_answers.schema.responses import Foretold, PlacedOn, PlacedPods
from joulie_answers.text.pod import Line, request_lines
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextTable, TextWithTables

NODES, CARDS, TIED = 8, 8, 5  # that are named


def place_text(found: Foretold) -> str:
    lines = list[str | TextTable]()
    for group in found.groups:
        lines += _group(group)
        lines.append("")
    lines += map(str, _whole(found))
    return TextWithTables.of(lines)


# --- one group --------------------------------------------------------------------------------


def _group(group: PlacedPods) -> Iterator[str | TextTable]:
    role = f", {group.role}" if group.role else ""
    yield f"{group.what}{role}: {_verdict(group)}"
    for note in group.notes:
        yield str(Line("note", note))
    yield from map(str, request_lines(group.pod))
    yield from map(str, _placed(group))
    if group.scores:
        yield str(Line("scores", "of the first pod, by the extender: the sum of their points"))
        yield from score_table(group.scores, group.nodes[0].node)
    yield from map(str, _refused(group))
    for what in group.unknown:
        yield str(Line("UNKNOWN", what))


def _verdict(group: PlacedPods) -> str:
    would = "would be placed now" if not group.unknown else "would be placed now, as far as known"
    if group.pods == 1:
        return would if group.placed else "would wait"
    return f"{group.placed} of {group.pods} pods {would}"


def _placed(group: PlacedPods) -> Iterator[Line]:
    if not group.nodes:
        return
    yield Line("on", _listed([_on(each) for each in group.nodes], NODES))
    if group.tied:
        tied = _listed(group.tied, TIED)
        yield Line("tied", f"for the first pod, {tied}: kube-scheduler chooses among them")
    if group.best:
        yield Line("best", f"for the first pod, {group.best}")
    yield Line("adds", _watts(group.added_w, group.unrated, group.placed))


def _on(each: PlacedOn) -> str:
    pods = f" ({each.pods})" if each.pods > 1 else ""
    cards = f" with {_listed(each.cards, CARDS)}" if each.cards else ""
    return f"{each.node}{pods}{cards}"


def _watts(watts: float | None, unrated: int, pods: int) -> str:
    if watts is None:
        return "watts that are not known: nothing fresh is known of the nodes"
    but = f", without {unrated} of {pods} pods of which it is not known" if unrated else ""
    return f"{watts:.0f} W, {watts / 1000:.3g} kWh per hour{but}"


def _refused(group: PlacedPods) -> Iterator[Line]:
    if group.placed == group.pods:
        return
    which = "it" if group.pods == 1 else f"pod {group.placed + 1}"
    yield Line("refused", f"{which}, by:" if group.refused else f"{which}: there is no node")
    for each in group.refused:
        more = ", ..." if each.nodes > len(each.examples) else ""
        yield Line("", f"{each.nodes} {each.reason} ({', '.join(each.examples)}{more})")
    for near in group.nearest:
        fits = f"{near.fits:g} of {near.asked:g} {near.resource}"
        yield Line("would fit", f"{fits}, all else as it is")
    if group.refused and not group.nearest:
        yield Line("would fit", "not by less of one resource alone")


# --- all of them ------------------------------------------------------------------------------


def _whole(found: Foretold) -> Iterator[Line]:
    if len(found.groups) > 1:
        yield Line("all", f"{found.placed} of {found.pods} pods would be placed now")
        unrated = sum(group.unrated for group in found.groups)
        yield Line("adds", _watts(found.added_w, unrated, found.placed))
    if found.waked is not None:
        yield Line("wakes", _waked(found))
    before, after = found.free_before, found.free_after
    yield Line(
        "free",
        f"{before.cores:g} cores and {before.gpus:g} GPUs before, {after.cores:g} cores and "
        f"{after.gpus:g} GPUs after",
    )
    if found.waiting:
        are = "pod waits" if found.waiting == 1 else "pods wait"
        yield Line("waiting", f"{found.waiting} {are} already, and would not be placed before")
    if found.ignored:
        yield Line("ignored", f"{_listed(found.ignored, TIED)}: no pods")
    settings = f"settings {found.settings}" if found.settings else "default settings"
    yield Line("model", f"kube-scheduler 1.{found.minor}, {settings}, position {found.position}")
    for what in found.unknown:
        yield Line("UNKNOWN", f"for every pod: {what}")


def _waked(found: Foretold) -> str:
    assert found.waked is not None
    if not found.waked.nodes:
        return "no node on which these pods fit wakes up, already or by the next plan"
    nodes = _listed(found.waked.nodes, NODES)
    more = "1 more pod fits" if found.waked.pods == 1 else f"{found.waked.pods} more pods fit"
    return f"{nodes}, already or by the next plan; then {more}"


def _listed(names: list[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
