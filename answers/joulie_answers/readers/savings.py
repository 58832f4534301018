"""What a report computed as saved, as API values."""

from joulie_answers.schema import responses
from joulie_projections.energy.savings import SavedRange, Savings


def savings_of(found: Savings | None) -> responses.Savings | None:
    if found is None:
        return None
    saved = found.saved
    return responses.Savings(
        computed_ms=found.computed_ms,
        from_ms=found.from_ms,
        to_ms=found.to_ms,
        baseline=found.baseline,
        policy=found.policy,
        pods=found.pods,
        nodes=found.nodes,
        kwh=range_of(saved.kwh if saved else None),
        share=range_of(saved.share if saved else None),
        share_per_work=range_of(saved.share_per_work if saved else None),
        cost=range_of(saved.cost if saved else None),
        kgco2e=range_of(saved.kgco2e if saved else None),
        why=found.why,
    )


def range_of(found: SavedRange | None) -> responses.SavedRange | None:
    return (
        None
        if found is None
        else responses.SavedRange(low=found.low, mid=found.mid, high=found.high)
    )
