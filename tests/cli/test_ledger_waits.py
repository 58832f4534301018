"""`joulie ledger` beside a database that another process has locked."""

import json
import sqlite3
from pathlib import Path

import pytest

from joulie_demo import demo, joulie

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_locked_database_does_not_end_the_ledger(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = data / "logs/ledger.log"
    with demo(data, "--nodes", "10") as running:
        running.await_decisions(5)
        locker = sqlite3.connect(data / "joulie-ledger.db", isolation_level=None, timeout=60)
        locker.execute("BEGIN IMMEDIATE")
        running.wait_until(lambda: "database is locked" in log.read_text())
        locker.execute("ROLLBACK")
        locker.close()
        running.wait_until(lambda: "accepted" in log.read_text())
        status = json.loads(joulie("status", "-o", "json", "--data", data).stdout)
        running.end()

    assert {part["name"]: part["restarts"] for part in status["parts"]}["ledger"] == 0
