"""print a script that completes commands, options and names in bash, zsh or fish.

joulie completion bash > ~/.local/share/bash-completion/completions/joulie
joulie completion nodes
"""

import argparse

from joulie_cli.command_line.commands import Printed
from joulie_cli.command_line.completion import script

SHELLS = ("bash", "zsh", "fish")
MOST_PODS = 500  # newest ones with a decision


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=(*SHELLS, "nodes", "pods"), help="the shell; or the names that it lists"
    )


def program() -> Printed:
    return Printed(lambda args: script(args.what) if args.what in SHELLS else _names(args))


def _names(args: argparse.Namespace) -> str:
    """Those in the local data, one a line; none where there are no data."""
    from joulie_projections.component.opening import history_in
    from joulie_projections.component.wiring import wired

    data = wired("completion", (), args.data, args.config).data
    if not data.has_database:
        return ""
    with history_in(data) as history:
        if args.what == "pods":
            return "\n".join(history.pod_names(MOST_PODS))
        nodes = (row.key for row in history.states("node") if row.body is not None)
        return "\n".join(sorted(nodes))
