"""Requests beside use, of the newest snapshot and the ledger, as API values."""

from joulie_answers.schema import requests, responses
from joulie_answers.views.right_size import pool_of, rows_of, totals_of
from joulie_projections.energy.use import KEPT_MS
from joulie_projections.state.state import ClusterState
from joulie_projections.store.energy_table import EnergyTable

MS_PER_SECOND = 1000


def requests_now(
    table: EnergyTable,
    stamp: responses.Stamp,
    state: ClusterState,
    now_ms: int,
    query: requests.WorkloadRequests,
) -> responses.WorkloadRequestList:
    reading = table.uses(now_ms - KEPT_MS)
    pool = pool_of(state)
    rows = rows_of(state, reading.workloads, query, pool)
    totals = totals_of(rows, state, pool)
    end = query.offset + query.limit
    return responses.WorkloadRequestList(
        **stamp,
        folded_to=reading.position,
        ledger_behind_ms=round(reading.behind_s * MS_PER_SECOND),
        items=[row.item for row in rows[query.offset : end]],
        total=len(rows),
        next=end if end < len(rows) else None,
        free_cores=totals.cores,
        free_gib=totals.gib,
        free_nodes=totals.nodes,
        free_w=totals.watts,
        nodes=pool.nodes if pool else 0,
        idle_w=pool.idle_w if pool else None,
        idle_known_nodes=pool.idle_known if pool else 0,
    )
