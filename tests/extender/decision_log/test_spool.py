import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.runtime.settings import Source
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.frames import framed
from joulie_extender.decision_log.spool import (
    RECENT_BYTES,
    SEGMENT_BYTES,
    Spool,
    waiting_in,
)
from joulie_extender.settings import ServerSettings


def message(number: int, size: int = 10) -> Message:
    return Message("joulie.dec.test.r", f"r:b:{number}", bytes([number % 256]) * size)


def waiting(spool: Spool, limit: int = 100) -> list[Message]:
    return spool.unshipped(limit)[0]


Life = Callable[..., Spool]  # numbers of messages to append


@pytest.fixture
def life(tmp_path: Path) -> Generator[Life, None, None]:
    """Another process that takes over the same directory once the last one is gone."""
    lives: list[Spool] = []
    with contextlib.ExitStack() as stack:

        def begin(*numbers: int) -> Spool:
            for gone in lives:
                gone.close()  # writes nothing: a kill leaves just the same
            spool = stack.enter_context(contextlib.closing(Spool(tmp_path)))
            lives.append(spool)
            for number in numbers:
                spool.append(message(number))
            return spool

        yield begin


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_appended_waits_until_it_is_shipped(life: Life) -> None:
    spool = life(1, 2, 3)
    found = spool.unshipped(100)

    assert found.messages == [message(1), message(2), message(3)] == waiting(spool)
    spool.shipped(found)
    assert (waiting(spool), spool.is_empty) == ([], True)


def test_a_new_spool_is_empty(life: Life) -> None:
    assert life().is_empty


def test_messages_are_taken_in_portions_and_in_order(life: Life) -> None:
    spool = life(1, 2, 3, 4, 5)
    seen: list[Message] = []
    while not spool.is_empty:
        found = spool.unshipped(2)
        seen += found.messages
        spool.shipped(found)

    assert seen == [message(number) for number in (1, 2, 3, 4, 5)]


def test_what_comes_while_others_are_shipped_is_kept(life: Life) -> None:
    spool = life(1)
    found = spool.unshipped(100)
    spool.append(message(2))
    spool.shipped(found)

    assert waiting(spool) == [message(2)]


def test_the_next_life_finds_what_the_last_one_left(life: Life) -> None:
    first = life(1, 2)
    first.shipped(first.unshipped(1))
    life(3)  # killed, too

    assert waiting(life(4)) == [message(1), message(2), message(3), message(4)]


def test_what_waits_is_counted_from_the_last_life_on(life: Life, tmp_path: Path) -> None:
    life(1, 2)
    spool = life(3, 4, 5)

    assert spool.waiting == 5
    spool.shipped(spool.unshipped(3))
    assert spool.waiting == 2
    spool.shipped(spool.unshipped(100))
    assert spool.waiting == 0


@pytest.mark.parametrize("shipped", range(6))
def test_a_clean_end_leaves_only_what_the_broker_does_not_have(
    life: Life, tmp_path: Path, shipped: int
) -> None:
    life(1, 2)
    spool = life(3, 4, 5)
    spool.shipped(spool.unshipped(shipped))
    spool.delete_shipped()
    spool.close()

    assert waiting_in(tmp_path) == 5 - shipped
    following = life(6)
    assert waiting(following) == [message(number) for number in range(1 + shipped, 7)]
    assert following.waiting == 6 - shipped


def test_what_the_last_life_left_is_deleted_once_it_is_shipped(life: Life, tmp_path: Path) -> None:
    life(1)
    spool = life(2)
    spool.shipped(spool.unshipped(100))

    assert files(tmp_path) == ["000000000002.spool"]
    assert spool.is_empty


@pytest.mark.parametrize("portion", [1, 2, 3, 4])
def test_lives_and_portions_may_end_together(life: Life, portion: int) -> None:
    life(1, 2)
    spool = life(3, 4)
    seen: list[Message] = []
    while not spool.is_empty:
        found = spool.unshipped(portion)
        seen += found.messages
        spool.shipped(found)

    assert seen == [message(number) for number in (1, 2, 3, 4)]


@contextlib.contextmanager
def no_more_files() -> Generator[None, None, None]:
    """This process can open no other file."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_segment_grows_while_no_new_one_can_be_opened(life: Life, tmp_path: Path) -> None:
    spool = life()
    with no_more_files():
        for number in range(4):
            spool.append(message(number, SEGMENT_BYTES // 2))
        spool.append(message(4))
    spool.append(message(5))
    spool.append(message(6))

    assert files(tmp_path) == ["000000000001.spool", "000000000002.spool"]
    assert [each.id for each in waiting(spool)] == [f"r:b:{number}" for number in range(7)]


def rot(path: Path, *places: int) -> None:
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("place", range(len(framed(message(2)))))
def test_a_rotten_byte_costs_its_record_and_no_other(
    life: Life, tmp_path: Path, place: int
) -> None:
    life(1, 2, 3, 4)
    [file] = tmp_path.iterdir()
    rot(file, len(framed(message(1))) + place)

    found = life().unshipped(100)

    assert found.messages == [message(1), message(3), message(4)]
    [loss] = found.losses
    assert loss.records == 1
    assert str(file) in loss.why


def test_the_number_of_lost_records_follows_from_the_numbers_of_the_others(
    life: Life, tmp_path: Path
) -> None:
    life(1, 2, 3, 4, 5)
    [file] = tmp_path.iterdir()
    rot(file, *range(len(framed(message(1))), 3 * len(framed(message(1)))))

    found = life().unshipped(100)

    assert (found.messages, [loss.records for loss in found.losses]) == (
        [message(1), message(4), message(5)],
        [2],
    )


def test_the_search_for_a_record_passes_bytes_that_only_look_like_one(
    life: Life, tmp_path: Path
) -> None:
    first = life()
    first.append(message(1, 300_000)._replace(data=b"\x10\0\0\0\0\0\0\0\x93" * 30_000))
    first.append(message(2))
    [file] = tmp_path.iterdir()
    rot(file, 0)

    assert life().unshipped(100).messages == [message(2)]


def as_link(segment: Path) -> None:
    segment.rename(segment.with_suffix(".elsewhere"))
    segment.symlink_to(segment.with_suffix(".elsewhere"))


def as_pipe(segment: Path) -> None:
    segment.unlink()
    os.mkfifo(segment)


def as_endless(segment: Path) -> None:
    segment.unlink()
    segment.symlink_to("/dev/zero")


def as_directory(segment: Path) -> None:
    segment.unlink()
    segment.mkdir()


@pytest.mark.parametrize("change", [as_link, as_pipe, as_endless, as_directory, Path.unlink])
def test_a_segment_that_cannot_be_read_is_set_aside_and_counted(
    life: Life, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    life(1)
    spool = life(2)
    change(tmp_path / "000000000001.spool")

    found = spool.unshipped(100)
    spool.shipped(found)

    assert found.messages == [message(2)]
    assert [loss.records for loss in found.losses] == [1]
    assert spool.is_empty
    assert "000000000001.spool" not in files(tmp_path)


def test_a_process_without_free_descriptors_sets_no_segment_aside(life: Life) -> None:
    life(1)
    spool = life()
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        spool.unshipped(100)

    assert waiting(spool) == [message(1)]


@pytest.mark.parametrize("lost", range(1, 30))
def test_a_frame_that_is_torn_anywhere_is_left_out(life: Life, tmp_path: Path, lost: int) -> None:
    life(1, 2)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-lost])

    assert waiting(life(3)) == [message(1), message(3)]


def test_a_frame_that_rotted_is_left_out(life: Life, tmp_path: Path) -> None:
    life(1, 2)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"!")

    assert waiting(life()) == [message(1)]


def test_segments_roll_and_are_deleted_behind_the_front(life: Life, tmp_path: Path) -> None:
    spool = life()
    large = [message(number, SEGMENT_BYTES // 2) for number in range(5)]
    for each in large:
        spool.append(each)
    assert len(files(tmp_path)) == 3

    found = spool.unshipped(100)
    spool.shipped(found)

    assert found.messages == large
    assert (len(files(tmp_path)), spool.is_empty) == (1, True)


def test_a_long_life_without_backlog_stays_in_one_small_file(life: Life, tmp_path: Path) -> None:
    spool = life()
    for number in range(50):
        spool.append(message(number, 1000))
        spool.shipped(spool.unshipped(10))

    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]


# --- memory -----------------------------------------------------------------------------------


def test_no_more_than_so_many_bytes_are_held_in_memory(life: Life) -> None:
    spool, held = life(), list[int]()
    for number in range(100):
        spool.append(message(number, RECENT_BYTES // 16))
        held.append(spool.remembered)

    assert max(held) == RECENT_BYTES
    assert spool.remembered == RECENT_BYTES


SMALL = 64 * 1024  # of memory and of a segment, where a test writes hundreds of times as much


@pytest.mark.slow
@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 7)), min_size=1, max_size=30),
    size=st.sampled_from([1, SMALL // 40, SMALL // 4, SMALL + 1]),
)
@settings(deadline=None, max_examples=50)
def test_what_memory_does_not_hold_is_read_again_in_order(
    steps: list[tuple[int, int]], size: int
) -> None:
    written, seen = 0, list[Message]()
    with (
        pytest.MonkeyPatch.context() as smaller,
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Spool(Path(directory))) as spool,
    ):
        for name in ("RECENT_BYTES", "SEGMENT_BYTES"):
            smaller.setattr(f"joulie_extender.decision_log.spool.{name}", SMALL)
        for comes, goes in [*steps, (0, 1000)]:
            for _ in range(comes):
                spool.append(message(written, size))
                written += 1
            found = spool.unshipped(goes)
            spool.shipped(found)
            seen += found.messages
            assert spool.waiting == written - len(seen)
        left = spool.is_empty

    assert left
    assert seen == [message(number, size) for number in range(len(seen))]
    assert len(seen) == written


def test_only_its_owner_may_read_it(life: Life, tmp_path: Path) -> None:
    life(1)

    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize(
    ("told", "expected"), [("", Path("data/spool")), ("/dev/shm/joulie", Path("/dev/shm/joulie"))]
)
def test_it_may_be_elsewhere_than_the_data(told: str, expected: Path) -> None:
    found = Source.of(EXTENDER_SPOOL=told).load(ServerSettings)

    assert found.spool_in(Path("data/spool")) == expected


FULL_DISK = """
import resource, sys
from pathlib import Path
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.frames import framed
from joulie_extender.decision_log.spool import Spool

spool = Spool(Path(sys.argv[1]))
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
kept = 0
for number in range(200):
    try:
        spool.append(Message("s", str(number), b"x" * (90 if number % 2 else 9)))
        kept += 1
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
spool.append(Message("s", "room again", b""))
print(kept)
"""


def test_a_full_disk_leaves_whole_frames_only(life: Life, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], check=True, capture_output=True
    )
    kept = int(told.stdout)

    left = waiting(life(1), 1000)
    assert 10 < kept < 100
    assert len(left) == kept + 2
    assert [each.id for each in left[-2:]] == ["room again", "r:b:1"]


SECOND = """
import pathlib, sys
from joulie_extender.decision_log.frames import framed
from joulie_extender.decision_log.spool import Spool
Spool(pathlib.Path(sys.argv[1]))
"""


def test_a_second_process_with_the_same_directory_is_refused_and_deletes_nothing(
    tmp_path: Path,
) -> None:
    with contextlib.closing(Spool(tmp_path)) as spool:
        spool.append(message(1))
        second = subprocess.run(
            [sys.executable, "-c", SECOND, str(tmp_path)], capture_output=True, text=True
        )
        spool.append(message(2))

        assert "Most likely another extender uses it" in second.stderr
        assert waiting(spool) == [message(1), message(2)]


def test_segments_that_others_could_read_are_the_owners_alone_from_the_next_start_on(
    life: Life, tmp_path: Path
) -> None:
    life(1)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    life()

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
