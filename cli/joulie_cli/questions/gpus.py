"""`joulie gpus`: GPU cards, the pods that use them, free memory and its fragmentation."""

import argparse
import asyncio

from joulie_answers.schema.requests import Gpus
from joulie_answers.schema.responses import GpuList
from joulie_answers.text.gpus import gpus_text
from joulie_cli.asking.sources import SETTINGS, all_pages, source_of
from joulie_cli.display.output import show
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    found = asyncio.run(_gpus(args, wires))
    show(args, found, gpus_text(found))
    return 0


async def _gpus(args: argparse.Namespace, wires: Wiring) -> GpuList:
    query = Gpus(node=args.node or "", model=args.model or "", pod=args.pod or "", free=args.free)
    async with source_of(args, wires) as source:
        return await all_pages(source.gpus, query)
