"""Names that select: one that is unknown is an error, with known ones that are similar.

Checked only where nothing was found, because each check is another question.
"""

from collections.abc import Iterable

from joulie_answers.pages import PAGE, all_pages
from joulie_answers.schema import requests as q
from joulie_bus.core.similar_names import similar_names
from joulie_bus.errors import NotInTheLog
from joulie_cli.asking.source_type import Source


async def require_node(source: Source, name: str | None) -> None:
    """The question about one node refuses an unknown one."""
    if name:
        await source.node(name, q.Node(transitions=0))


async def require_pod(source: Source, name: str | None) -> None:
    if name:
        await source.pod(name, q.Pod())


async def require_model(source: Source, name: str | None) -> None:
    if not name or (await source.gpus(q.Gpus(model=name, limit=1))).items:
        return
    cards = (await all_pages(source.gpus, q.Gpus())).items
    raise _unknown("model of a card", name, {card.model for card in cards})


async def require_namespace(source: Source, name: str | None) -> None:
    if not name or (await source.decisions(q.Decisions(namespace=name, limit=1))).items:
        return
    newest = (await source.decisions(q.Decisions(limit=PAGE))).items
    pods = (await all_pages(source.pods, q.Pods())).items
    known = {each.namespace for each in newest} | {each.namespace for each in pods}
    known.discard("")
    if name not in known:
        raise _unknown("namespace", name, known)


def _unknown(what: str, name: str, known: Iterable[str]) -> NotInTheLog:
    listed = similar_names(name, known)
    return NotInTheLog(f"No {what} {name!r} is known. Known are {listed}. Nothing was listed.")
