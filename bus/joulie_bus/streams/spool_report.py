"""What a replica of the extender says of its spool."""

import msgspec

from joulie_bus.events.bounds import Count, Name


class SpoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of the decision log that wait on the disk of one replica. A live message, never
    stored: without a new one, nothing is known of the spool."""

    replica: Name
    waiting: Count
    oldest_ms: Count | None  # None: an age that is not known
    ends: bool = False  # the replica stops, and its next start reports again
