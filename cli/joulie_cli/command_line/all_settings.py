"""The settings of all components, which an examination reads."""

from joulie_audit.access import heads_places
from joulie_audit.ledger import component as ledger
from joulie_audit.retention import writing as archive
from joulie_console import component as console
from joulie_extender import component as extender
from joulie_operator import component as operator
from joulie_projections import projector_component as projector

SETTINGS = (
    *projector.SETTINGS,
    *heads_places.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *console.SETTINGS,
    *archive.SETTINGS,
    *ledger.SETTINGS,
)
