"""Renews the table of docs/restarts.md: which pods restart when a value of the chart changes.

    python tests/kit/chart/chart_restarts.py

It renders the chart some 270 times, which takes a minute, and needs helm (`make kube`).
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from chart_changes import LEAVES, Change, changes
from kube_real import ROOT

PAGE = ROOT / "docs/restarts.md"
SECTIONS = (
    *("scheduler", "projector", "operator", "extender", "admission"),
    *("console", "ledger", "archive", "agent", "callout", "nats"),
)
COMPONENTS = frozenset(SECTIONS)
SECTION_OF = {"signer": "callout"}  # without a section of its own
OF_ITSELF = "the component of the section"
REFUSED = "refused by the API server"
HEAD = "| Restarts | Values |"


def component(workload: str) -> str:
    name = workload.partition("/joulie-")[2].removesuffix("-caps")
    return SECTION_OF.get(name, name)


def components(workloads: frozenset[str]) -> frozenset[str]:
    return frozenset(map(component, workloads))


def outcome(name: str, change: Change) -> str:
    """In words, for one row of the table."""
    section = name.partition(".")[0]
    if change.refused:
        return REFUSED
    if change.started or change.ended:
        restarted = spelled(components(change.restarted))
        return f"{spelled(components(change.started | change.ended))} (begins or ends); {restarted}"
    if components(change.restarted) == frozenset({section}):
        return OF_ITSELF
    return spelled(components(change.restarted))


def spelled(names: frozenset[str]) -> str:
    missing = sorted(COMPONENTS - names)
    if not missing:
        return "all components"
    if len(missing) <= 3:
        return f"all but {', '.join(missing)}"
    return ", ".join(sorted(names)) or "nothing"


def grouped(rows: Mapping[str, str]) -> dict[str, list[str]]:
    """The values by outcome; `X.*` where all below X have the same one."""
    found = defaultdict[str, list[str]](list)
    for name, said in rows.items():
        words = name.split(".")
        for count in range(1, len(words)):
            head = ".".join(words[:count]) + "."
            if {each for leaf, each in rows.items() if leaf.startswith(head)} == {said}:
                name = f"{head}*"
                break
        if name not in found[said]:
            found[said].append(name)
    return found


def of_sections(names: list[str]) -> list[str]:
    """`SECTION.image.*` for what every section has, or all but some of them."""
    having = defaultdict[str, list[str]](list)
    for name in names:
        section, _, key = name.partition(".")
        having[key].append(section)
    found = []
    for key, sections in having.items():
        missing = [section for section in SECTIONS if section not in sections]
        if len(sections) > 3:
            found.append(f"SECTION.{key}" + (f" (not {', '.join(missing)})" if missing else ""))
        else:
            found += [f"{section}.{key}" for section in sections]
    return found


def table(found: Mapping[str, Change]) -> str:
    rows = grouped({name: outcome(name, change) for name, change in found.items()})
    lines = [HEAD, "|---|---|"]
    for said, names in sorted(rows.items(), key=lambda row: (row[0] != OF_ITSELF, -len(row[1]))):
        shown = of_sections(names) if said == OF_ITSELF else names
        lines.append(f"| {said} | {', '.join(map(quoted, shown))} |")
    return "\n".join(lines) + "\n"


def quoted(name: str) -> str:
    head, space, rest = name.partition(" ")
    return f"`{head}`{space}{rest}"


def page(found: Mapping[str, Change]) -> str:
    """The page with this table instead of the one that it has."""
    before, _, rest = PAGE.read_text().partition(HEAD)
    after = rest.partition("\n\n")[2]
    return f"{before}{table(found)}\n{after}"


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        PAGE.write_text(page(changes(Path(place), list(LEAVES))))
