"""Why the system refused something, in its own words: without numbers, addresses and objects."""

import os
import re
import socket
import ssl

_FIRST_NUMBER = re.compile(r"\[Errno (\d+)\]")


def reason_of(error: BaseException) -> str:
    """Such as `Connection refused`. An error that is not the system's keeps its text."""
    found = getattr(error, "os_error", error)  # of aiohttp, which adds addresses and objects
    if isinstance(found, socket.gaierror):
        return found.strerror or "the name is not known"
    if isinstance(found, ssl.SSLError):  # its number is not one of the system
        return str(found)
    if isinstance(found, OSError) and type(found.errno) is int and found.errno > 0:
        return os.strerror(found.errno)
    if several := _FIRST_NUMBER.search(str(found)):  # one for each address of a name
        return os.strerror(int(several[1]))
    return str(error)
