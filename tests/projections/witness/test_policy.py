"""A policy of witnesses is read as C2SP's tlog-policy describes it."""

import pytest

from joulie_projections.chain.note import LOG_KEY, WITNESS_KEY, VerifierKey
from joulie_projections.witness.policy import Policy, parsed


def key(number: int, kind: int = WITNESS_KEY, name: str = "") -> str:
    return str(VerifierKey(name or f"w{number}.example.com", kind, bytes([number]) * 32))


def policy(*lines: str) -> Policy:
    return parsed("".join(f"{line}\n" for line in lines).encode())


def confirming(*numbers: int) -> set[bytes]:
    return {bytes([number]) * 32 for number in numbers}


# The example of the specification: two of the X and one of the Y.
EXAMPLE = (
    f"log {key(9, LOG_KEY)}",
    "",
    *(f"witness X{number} {key(number)}" for number in (1, 2, 3)),
    "group X-witnesses 2 X1 X2 X3",
    "  # the other organization",
    *(
        f"\twitness\tY{number} {key(number + 3)}  https://y{number}.example.com  "
        for number in (1, 2)
    ),
    f"witness Y3 {key(6)}",
    "group Y-witnesses any Y1 Y2 Y3",
    "group X-and-Y all X-witnesses Y-witnesses",
    "quorum X-and-Y",
)


@pytest.mark.parametrize(
    ("numbers", "is_met"),
    [((1, 2, 4), True), ((2, 3, 6), True), ((1, 2), False), ((1, 4, 5, 6), False), ((), False)],
)
def test_the_quorum_is_that_of_nested_groups(numbers: tuple[int, ...], is_met: bool) -> None:
    found = policy(*EXAMPLE)

    assert found.is_met_by(confirming(*numbers)) == is_met
    assert [each.name for each in found.logs] == ["w9.example.com"]
    assert [each.url for each in found.places] == [
        *("", "", ""),
        *("https://y1.example.com", "https://y2.example.com", ""),
    ]


def test_a_quorum_may_be_one_witness_or_none() -> None:
    one = policy(f"witness a {key(1)}", "quorum a")
    none = policy("quorum none")

    assert (one.is_met_by(confirming(1)), one.is_met_by(confirming(2))) == (True, False)
    assert none.is_met_by(confirming())


A, B = f"witness a {key(1)}", f"witness b {key(2)}"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((A,), "it has no quorum line"),
        ((A, "quorum a", "quorum a"), "line 3: the quorum is defined already"),
        (("quorum a", A), "line 1: no line before this one defines a"),
        ((A, f"witness b {key(1)}", "quorum a"), "line 2: w1.example.com is named twice"),
        ((A, f"witness b {key(1, name='other')}", "quorum a"), "line 2: other is named twice"),
        ((A, f"witness a {key(2)}", "quorum a"), "line 2: a is defined already"),
        ((f"witness none {key(1)}", "quorum none"), "line 1: none is defined already"),
        ((A, "group g 0 a", "quorum g"), "line 2: 0 is not all, any, or a number from 1 to 1"),
        ((A, "group g 2 a", "quorum g"), "line 2: 2 is not all, any, or a number from 1 to 1"),
        ((A, B, "group g any a a", "quorum g"), "line 3: a is a member already"),
        ((A, "group g any a", "group h any a", "quorum g"), "line 3: a is a member already"),
        ((A, "group g any g", "quorum g"), "line 2: no line before this one defines g"),
        ((A, "group g any none", "quorum g"), "line 2: no line before this one defines none"),
        ((A, "group g any", "quorum a"), "line 2: not `log KEY [URL]`"),
        (
            (f"witness a {key(1, LOG_KEY)}", "quorum a"),
            "line 1: w1.example.com is the key of a log",
        ),
        ((f"log {key(1)}", "quorum none"), "line 1: w1.example.com is the key of a witness"),
        (("witness a x+1+y", "quorum a"), "line 1: x+1+y: "),
        ((f"{A} http://w1.example.com", "quorum a"), "line 1: http://w1.example.com: beyond"),
        (("quorum none\x07",), "line 1: it has a control character"),
    ],
)
def test_a_wrong_policy_is_an_error_that_names_the_line(lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError) as wrong:  # noqa: PT011
        policy(*lines)

    assert why in str(wrong.value)
