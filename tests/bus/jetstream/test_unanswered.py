from joulie_bus.jetstream.unanswered import ELECTION_S, IN_VAIN_S, LONGEST_STAY_S, Unanswered


def test_a_kind_of_request_without_an_answer_for_four_seconds_is_noticed() -> None:
    noted = Unanswered()

    assert not noted.is_long("info", 0.0, 2.0, IN_VAIN_S)
    assert not noted.is_long("names", 3.0, 4.5, IN_VAIN_S)
    assert noted.is_long("info", 2.0, IN_VAIN_S, IN_VAIN_S)


def test_during_an_election_a_server_is_kept_for_longer() -> None:
    noted = Unanswered()

    assert not noted.is_long("info", 0.0, IN_VAIN_S, ELECTION_S)
    assert noted.is_long("info", ELECTION_S, ELECTION_S, ELECTION_S)


def test_an_answer_ends_the_row() -> None:
    noted = Unanswered()
    noted.is_long("info", 0.0, 2.0, IN_VAIN_S)
    noted.answered("info")

    assert not noted.is_long("info", 3.0, 5.0, IN_VAIN_S)


def test_a_failure_of_long_ago_is_another_one() -> None:
    noted = Unanswered()
    noted.is_long("info", 0.0, 2.0, IN_VAIN_S)

    assert not noted.is_long("info", LONGEST_STAY_S + 1, LONGEST_STAY_S + 3, IN_VAIN_S)


def test_each_server_is_tried_before_one_is_kept_for_longer() -> None:
    noted, kept = Unanswered(), list[bool]()
    for begun in (100.0, 104.0, 108.0):
        noted.left(begun, servers=3, why="no answer to info")
        kept.append(noted.stays(begun + IN_VAIN_S))

    assert kept == [False, False, True]


def test_after_each_round_a_server_is_kept_for_longer_up_to_a_minute() -> None:
    noted, stays = Unanswered(), list[float]()
    for begun in (100.0, 200.0, 300.0, 400.0, 500.0):
        noted.left(begun, servers=2, why="no answer to info")
        noted.left(begun + IN_VAIN_S, servers=2, why="no answer to info")
        until = begun + IN_VAIN_S
        stays.append(next(s for s in range(1, 100) if not noted.stays(until + s)))

    assert stays == [8, 16, 32, 60, 60]


def test_after_two_minutes_without_leaving_the_rounds_begin_anew() -> None:
    noted, later = Unanswered(), 104.0 + 2 * LONGEST_STAY_S + 1
    noted.left(100.0, servers=2, why="no answer to info")
    noted.left(104.0, servers=2, why="no answer to info")
    noted.left(later, servers=2, why="no answer to info")

    assert not noted.stays(later + IN_VAIN_S)
    noted.left(later + IN_VAIN_S, servers=2, why="no answer to info")
    assert not noted.stays(later + IN_VAIN_S + 8)


def test_while_servers_are_left_for_the_same_reason_only_the_first_is_news() -> None:
    noted, told = Unanswered(), list[bool]()
    for at, why in enumerate(["no answer to info", "no answer to info", "no acknowledgement"] * 2):
        told.append(noted.left(100.0 + at * IN_VAIN_S, servers=3, why=why))
    noted.answered("info")
    told.append(noted.left(130.0, servers=3, why="no answer to info"))
    told.append(noted.left(131.0 + 2 * LONGEST_STAY_S, servers=3, why="no acknowledgement"))

    assert told == [True, False, True, False, False, False, True, True]
