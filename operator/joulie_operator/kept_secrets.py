"""Users and passwords of machines, in files that the administrator mounts."""

from pathlib import Path


def kept_secret(file: str, failure: type[Exception]) -> str:
    """Read at each use, so that a rotated secret counts at once. Raises `failure`."""
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise failure(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise failure(f"{file} cannot be read: it is no text") from error
