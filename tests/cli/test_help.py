"""`joulie --help` and the command line as such."""

import subprocess
import sys

import joulie_migrations
from joulie_cli.main import COMMANDS, MIGRATION_PHASES

SLOW_TO_IMPORT = ("alembic", "kubernetes", "nats", "numpy", "sqlalchemy", "starlette", "structlog")
HELP = f"""
import sys
from joulie_cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
print("imported:", [name for name in {SLOW_TO_IMPORT!r} if name in sys.modules])
"""


def test_help_lists_every_command_and_imports_no_large_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True, timeout=60
    )

    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ")}
    assert set(COMMANDS) <= listed
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_migrate_offers_the_phases_of_the_migrations() -> None:
    assert MIGRATION_PHASES == joulie_migrations.PHASES
