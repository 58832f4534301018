"""Secrets of machines in files."""

from pathlib import Path

import pytest

from joulie_operator.controllers.failure import ControllerFailed
from joulie_operator.controllers.kept_secrets import kept_secret


def test_a_secret_is_read_anew_each_time_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    first = kept_secret(str(file))
    file.write_text("second\n")

    assert (first, kept_secret(str(file))) == ("first", "second")


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read: No such file or directory"), (b"\xff\xfe", "it is no text")],
)
def test_a_secret_that_cannot_be_read_is_named_with_the_reason(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ControllerFailed, match=f"^{file} .*{why}$"):
        kept_secret(str(file))
