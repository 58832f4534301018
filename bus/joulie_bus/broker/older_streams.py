"""Lets the account of the core find the streams of a version without accounts, on one server.

    python -m joulie_bus.broker.older_streams /data/jetstream

Such a version has its streams in the account `$G`. nats-server follows a link in the place of the
messages of a stream, and removes one in the place of a stream or an account. So each stream gets a
copy of its declaration and a link to its messages. They stay where they are: after a rollback the
older version finds them with all that was added. Only if a stream was purged as a whole meanwhile,
the server has put a directory of its own in the place of the link.

Several servers know the accounts of streams in their own log, which this does not change.
"""

import shutil
import sys
from pathlib import Path

from joulie_bus.streams.accounts import CORE

_NO_ACCOUNT = "$G"
_DECLARATION = ("meta.inf", "meta.sum")


def adopt(store: Path) -> None:
    """`store` is the directory of nats-server that holds one directory for each account."""
    streams = store / CORE / "streams"
    if streams.exists():
        return
    unfinished = store / CORE / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for path in (store.parent, store, store / CORE, unfinished):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for older in (store / _NO_ACCOUNT / "streams").glob("*"):
        stream = unfinished / older.name
        stream.mkdir(mode=0o700)
        for name in _DECLARATION:
            shutil.copy2(older / name, stream)
        (stream / "msgs").symlink_to(
            Path("..", "..", "..", _NO_ACCOUNT, "streams", older.name, "msgs")
        )
    unfinished.rename(streams)


if __name__ == "__main__":
    adopt(Path(sys.argv[1]))
