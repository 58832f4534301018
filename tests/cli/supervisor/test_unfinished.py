from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from joulie_bus.streams.records import Message
from joulie_cli.supervisor.disk_watch import DiskWatch
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_cli.supervisor.unfinished import Unfinished
from joulie_extender.decision_log.spool import Spool


def after(spool: Path, unwritten: int | None) -> Unfinished:
    stopped = SimpleNamespace(unwritten=unwritten, disk=DiskWatch(spool))
    return Unfinished.after(cast("Supervisor", stopped), spool)


def test_a_run_that_leaves_nothing_says_nothing(tmp_path: Path) -> None:
    found = after(tmp_path / "none", 0)

    assert (list(found.sentences()), found.has_failed) == ([], False)


def test_what_waits_in_the_spools_of_all_replicas_is_counted(tmp_path: Path) -> None:
    for replica, count in (("extender-0", 2), ("extender-1", 3)):
        spool = Spool(tmp_path / replica)
        for number in range(count):
            spool.append(Message("joulie.dec.test.r", f"r:b:{number}", b"x"))
        spool.close()
    found = after(tmp_path, 0)

    assert found.as_json() == {"spooled": 5, "unwritten": 0, "disk_full_s": 0.0}
    [sentence] = found.sentences()
    assert sentence.startswith(f"5 entries of the log wait in {tmp_path}: ")


@pytest.mark.parametrize(
    ("unwritten", "begins"),
    [(7, "7 entries are at the broker and not in the log"), (None, "The broker did not answer")],
)
def test_what_is_not_in_the_log_is_said_also_if_it_is_unknown(
    unwritten: int | None, begins: str, tmp_path: Path
) -> None:
    [sentence] = after(tmp_path, unwritten).sentences()

    assert sentence.startswith(begins)
