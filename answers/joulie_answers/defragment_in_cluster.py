"""`joulie plans --defragment`: which pods to move so that free GPUs are of use to others."""

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joulie_answers.views.defragment import ONLY_ADVICE, defragment_of
from joulie_audit.access.past import history_of
from joulie_extender.defragment.movable_pods import Judged
from joulie_extender.defragment.plan import defragmentation_plan
from joulie_extender.defragment.search import Budget
from joulie_extender.gpu.models import aliases_of
from joulie_operator.cluster_settings import IN_CLUSTER
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.power.disruptions import Disruptions, disruptions
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.wiring import Wiring


def report_of(args: argparse.Namespace, wires: Wiring) -> dict[str, Any]:
    """With what the API server knows of budgets and volumes."""
    with history_of(wires) as history:
        cluster_state = history.cluster_state()
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    judged = judged_by(asyncio.run(_asked(args.kubeconfig, cluster_state.namespaces)))
    plan = defragmentation_plan(cluster_state, aliases, args.moves, judged)
    return defragment_of(plan, [ONLY_ADVICE])


async def _asked(cluster: str, namespaces: Mapping[str, str]) -> Disruptions:
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        return await disruptions(api, namespaces)


def judged_by(found: Disruptions) -> Judged:
    return Judged(found.stays, [Budget(*each) for each in found.allowed])
