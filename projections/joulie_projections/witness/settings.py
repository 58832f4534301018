"""Where the heads of the log are kept outside of the broker and the database."""

from dataclasses import dataclass
from pathlib import Path

from joulie_bus.runtime.settings import setting
from joulie_projections.witness.asking import WitnessPlace, witness_places


def heads_file(text: str) -> Path | None:
    """file:PATH, or empty"""
    kind, _, path = text.partition(":")
    if text and (kind != "file" or not path):
        raise ValueError("not file:PATH")
    return Path(path) if path else None


@dataclass(frozen=True, kw_only=True)
class WitnessSettings:
    witnesses: tuple[WitnessPlace, ...] = setting(
        witness_places,
        "WITNESSES",
        "",
        "Witnesses that cosign the checkpoints of the log (`joulie witness`), as KEY@URL",
    )
    heads_to: Path | None = setting(
        heads_file, "HEADS_TO", "", "A file outside of this machine to which heads are appended"
    )
