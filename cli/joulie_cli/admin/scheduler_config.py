"""print the configuration of a kube-scheduler that calls this installation.

joulie scheduler-config --url http://127.0.0.1:9876
"""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

CONFIGURATIONS = ("energy", "gpu", "split")  # a test compares them with the extender's


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser, ("yaml", "json"))
    shared.cluster(parser)
    parser.add_argument(
        "--mode",
        choices=("own", "patch"),
        default="patch",
        help="own: a second kube-scheduler, in a pod; patch: yours (patch)",
    )
    parser.add_argument(
        "--configuration",
        choices=CONFIGURATIONS,
        help="energy; gpu or split where the extender binds (by EXTENDER_BINDS)",
    )
    parser.add_argument(
        "--url",
        type=shared.web_url,
        metavar="URL",
        help="the extender, as kube-scheduler reaches it",
    )
    parser.add_argument("--namespace", metavar="NAME", help="of the installation (POD_NAMESPACE)")
    parser.add_argument(
        "--certificates",
        type=Path,
        default=Path("/etc/joulie"),
        metavar="DIR",
        help="where kube-scheduler has ca.crt, scheduler.crt, scheduler.key (/etc/joulie)",
    )
    parser.add_argument("--name", metavar="NAME", help="schedulerName of the profile")
    parser.add_argument(
        "--weight", type=shared.count, default=1, metavar="W", help="of the score (1)"
    )
    parser.add_argument(
        "--percentage", type=shared.percent, default=0, metavar="N", help="percentageOfNodesToScore"
    )
    parser.add_argument("--extenders", action="store_true", help="only the block `extenders`")


def program() -> Program:
    from joulie_cli.admin import scheduler_configuration

    return Program(scheduler_configuration.SETTINGS, scheduler_configuration.run)
