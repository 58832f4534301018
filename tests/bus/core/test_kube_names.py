"""Names that Kubernetes allows, and the path of an object in a URL."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joulie_bus.core.kube_names import (
    first_wrong,
    is_label,
    is_label_key,
    is_subdomain,
    is_uid,
    path_segment,
    require_subdomain,
)
from joulie_bus.errors import BadName

PIECES = st.text("a0.-\n/A", max_size=6) | st.sampled_from(["n1", "é", "a" * 254, "\ud800"])


@pytest.mark.parametrize("name", ["a", "0", "a-b.c", "ip-10-0-0-1.ec2.internal", "a" * 253])
def test_a_subdomain(name: str) -> None:
    assert is_subdomain(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a..b", "a_b", "a/b", "a\n", "é", "a" * 254])
def test_no_subdomain(name: str) -> None:
    assert not is_subdomain(name)


def test_a_label_has_no_dots_and_63_characters() -> None:
    assert [is_label(name) for name in ("a" * 63, "a" * 64, "a.b", "")] == [True, *[False] * 3]


def test_a_uid() -> None:
    assert is_uid("612f0000-0000-4000-8000-000000000000")
    assert not any(map(is_uid, ("", "a/b", "a\n", "..", "a" * 129)))


@given(st.lists(PIECES, max_size=6))
@example(["a", "b\nc"])
@example(["\n"])
@example([""])
def test_many_are_checked_as_one_by_one(names: list[str]) -> None:
    wrong = [at for at, name in enumerate(names) if not is_subdomain(name)]

    assert first_wrong(names) == (wrong[0] if wrong else None)


@given(st.text(min_size=1))
def test_a_segment_stays_one_segment(name: str) -> None:
    if name in (".", "..") or not name.isprintable():
        return
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", path_segment(name))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_segment_that_would_be_none_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        path_segment(name)


def test_a_wrong_name_is_shown_escaped_and_cut() -> None:
    with pytest.raises(BadName) as caught:
        require_subdomain("a\n\x1b[2J" + "b" * 300, "PodName")

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ["a", "A_b.c", "joulie.io/hw.gpu-model", "a.example/" + "b" * 63])
def test_the_key_of_a_label(key: str) -> None:
    assert is_label_key(key)


@pytest.mark.parametrize("key", ["", "a/", "/a", "A.b/c", "a/b/c", "-a", "a b", "b" * 64])
def test_no_key_of_a_label(key: str) -> None:
    assert not is_label_key(key)
