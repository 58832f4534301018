"""The error of power controllers."""


class ControllerFailed(Exception):
    """Why a power controller was not read, or did not follow."""
