"""Users and passwords of machines, in files that the administrator mounts."""

from pathlib import Path

from joulie_operator.controllers.failure import ControllerFailed


def kept_secret(file: str) -> str:
    """Read at each use, so that a rotated secret counts at once. Raises ControllerFailed."""
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise ControllerFailed(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ControllerFailed(f"{file} cannot be read: it is no text") from error
