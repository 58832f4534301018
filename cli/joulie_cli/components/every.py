"""The settings of all components, for the commands that start or examine them."""

from joulie_cli.components import archive, console, extender, ledger, operator, projector

SETTINGS = (
    *projector.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *console.SETTINGS,
    *archive.SETTINGS,
    *ledger.SETTINGS,
)
