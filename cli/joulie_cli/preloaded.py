"""Imports what the components of a supervisor need, in the process that they are forked from."""

import gc
from importlib import import_module

from joulie_cli.command_line.commands import commands
from joulie_cli.supervisor.forked import become_fork_server

# What a command runs as; the simulator is a component of the demo.
COMPONENTS = (
    *("projector", "operator", "extender", "console"),
    *("ledger", "archive", "shadow", "simulator"),
)

become_fork_server()
gc.disable()
for module in ("wiring", "connecting", "process"):  # which are imported late
    import_module(f"joulie_projections.component.{module}")
for name in COMPONENTS:
    commands()[name].load().program().all_settings()
gc.freeze()  # so that no search for garbage writes to the shared pages
gc.enable()
