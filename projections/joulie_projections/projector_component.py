"""`joulie projector`: orders events, folds them into the twins and writes the decision log."""

from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.roles import Role
from joulie_projections.chain.keyring import Ring
from joulie_projections.component.connecting import connected
from joulie_projections.component.opening import await_migration
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.decision_log.heads import Signer, public_key
from joulie_projections.history.free_space import FreeSpaceMonitor
from joulie_projections.projector.liveness import Liveness
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.projector.trimmer import TrimTask
from joulie_projections.store import database
from joulie_projections.store.retrying import until_usable
from joulie_projections.witness.head_keepers import HeadKeeper
from joulie_projections.witness.keeping import HeadKeeping
from joulie_projections.witness.settings import HeadsSettings, WitnessSettings
from joulie_projections.witness.submitting import Submitter

SETTINGS = (ProjectorSettings, WitnessSettings, HeadsSettings)


def run(wires: Wiring, keeper: HeadKeeper | None) -> int:
    """`keeper`: of the place of HEADS_TO, if it is set."""
    await_migration(wires)
    health, place = Health(), wires.source.load(HeadsSettings).heads_to
    keeping = HeadKeeping(wires.data.database, keeper, str(place), lambda: _ring(wires))
    work = _project(wires, health, keeping)
    return serve_part(wires, "projector", work, health.alive, health.ready)


def _ring(wires: Wiring) -> Ring:
    return public_key(wires.data.public_key)


class Health:
    """Health checks that answer from the start, before the projector exists."""

    def __init__(self) -> None:
        self.liveness: Liveness | None = None
        self.waits_for = "the database"

    def alive(self) -> str:
        return self.liveness.alive() if self.liveness else ""

    def ready(self) -> str:
        return self.liveness.ready() if self.liveness else f"waiting for {self.waits_for}"


async def _project(wires: Wiring, health: Health, keeping: HeadKeeping) -> None:
    wires.data.create()
    engine = database.writer(wires.data.database)
    try:
        await until_usable(engine)
        health.waits_for = "the broker"
        settings = wires.source.load(ProjectorSettings)
        signer = Signer.of(wires.data.key, wires.data.public_key)
        signer.publish(wires.data.public_key)
        async with connected(wires, Role.PROJECTOR) as bus:
            trims = TrimTask(bus, wires.subjects, wires.data.database, lambda: _ring(wires))
            projector = Projector(bus, wires.subjects, engine, signer, settings)
            health.liveness = projector.liveness
            room = FreeSpaceMonitor(bus, wires.data.database, wires.data.path)
            witnesses = Submitter(
                wires.data.database, wires.source.load(WitnessSettings), lambda: _ring(wires)
            )
            async with (
                living(VitalTask.FREE_SPACE, room.run),
                living(VitalTask.WITNESSES, witnesses.run),
                living(VitalTask.KEPT_HEADS, keeping.run),
            ):
                await projector.run((VitalTask.TRIM, trims.run))
    finally:
        engine.dispose()
