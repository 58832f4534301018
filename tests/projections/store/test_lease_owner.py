"""The identity of the owner of a lease, and when its process is certain to have ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from joulie_projections.store import lease_owner
from joulie_projections.store.lease_owner import is_gone, new_owner

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
PRINT_OWNER = (
    "from joulie_projections.store.lease_owner import new_owner; print(new_owner(), flush=True)"
)


def owner_of_a_process(*wrapper: str, stays: bool = False) -> tuple[str, "subprocess.Popen[str]"]:
    code = f"{PRINT_OWNER}; {'input()' if stays else ''}"
    process = subprocess.Popen(
        [*wrapper, sys.executable, "-c", code],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process.stdout.readline().strip(), process


def changed(owner: str, field: int, value: str) -> str:
    parts = owner.split("/")
    parts[field] = value
    return "/".join(parts)


@linux_only
def test_a_process_that_ended_is_gone_and_one_that_runs_is_not() -> None:
    owner, process = owner_of_a_process(stays=True)
    before = is_gone(owner)
    process.communicate("\n")

    assert (before, is_gone(owner)) == (False, True)


@linux_only
def test_another_process_with_the_same_id_does_not_keep_the_lease() -> None:
    assert is_gone(changed(new_owner(), 3, "1"))


@linux_only
@pytest.mark.parametrize("field", [0, 1], ids=["another boot", "another PID namespace"])
def test_a_process_of_another_machine_or_container_is_not_known_to_be_gone(field: int) -> None:
    """A process id of another machine or namespace says nothing about processes here."""
    owner = changed(new_owner(), field, "another")

    assert not is_gone(owner)
    assert not is_gone(changed(owner, 2, str(2**22 + 1)))


@linux_only
def test_two_containers_with_the_same_host_name_and_process_id_have_different_owners() -> None:
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("only root may make PID namespaces")
    (one, first), (other, second) = (owner_of_a_process(*unshare) for _ in range(2))
    first.communicate()
    second.communicate()

    assert one != other
    assert (is_gone(one), is_gone(other)) == (False, False)


@linux_only
def test_a_process_that_proc_hides_is_not_known_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like `hidepid` does for processes of other users."""
    owner, process = owner_of_a_process(stays=True)
    for name in ("sys", "self", str(os.getpid())):
        (tmp_path / name).symlink_to(Path("/proc") / name)
    monkeypatch.setattr(lease_owner, "_PROC", tmp_path)
    before = is_gone(owner)
    process.communicate("\n")

    assert (before, is_gone(owner)) == (False, True)


def test_two_projectors_of_one_process_are_two_owners_and_neither_is_gone() -> None:
    one, other = new_owner(), new_owner()

    assert one != other
    assert (is_gone(one), is_gone(other)) == (False, False)


@pytest.mark.parametrize("owner", ["", "me", "elsewhere:1", "a/b/c/d", "a/b/c/d/e", "////"])
def test_an_owner_of_another_form_is_not_known_to_be_gone(owner: str) -> None:
    assert not is_gone(owner)
