"""The agent runs on every node: it loads no library that only the control plane needs."""

import subprocess
import sys

HEAVY = ("aiohttp", "kubernetes", "numpy", "psycopg", "sqlalchemy", "starlette", "uvicorn")


def test_the_agent_loads_no_library_of_the_control_plane() -> None:
    script = "import sys, joulie_cli.main, joulie_agent.component; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert [name for name in HEAVY if name in done.stdout.split()] == []
