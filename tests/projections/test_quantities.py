"""Parsing of Kubernetes quantities."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.errors import BadQuantity
from joulie_projections.quantities import Quantity, parse, rounded_up


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("0", 0),
        ("8", 8),
        ("+8", 8),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1", Fraction(1, 10)),
        ("100n", Fraction(1, 10**7)),
        ("250u", Fraction(1, 4000)),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("129e6", 129_000_000),
        ("1E2", 100),
        ("1e+2", 100),
        ("5e-1", Fraction(1, 2)),
        ("1e003", 1000),
        ("1E-0002", Fraction(1, 100)),
        ("1e-10", Fraction(1, 10**9)),
        ("1.0000000001", 1 + Fraction(1, 10**9)),
        ("0e999", 0),
        ("9223372036854775807", 2**63 - 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        (1e-07, Fraction(1, 10**7)),
    ],
)
def test_a_quantity_is_read_exactly(quantity: Quantity, value: Fraction | int) -> None:
    assert parse(quantity) == value


@pytest.mark.parametrize(
    "quantity",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "1 Gi",
        "one",
        "1.2.3",
        "1,5",
        ".",
        "m",
        "Gi",
        "1K",
        "1ki",
        "1gi",
        "1GiB",
        "1mi",
        "1e",
        "1e2m",
        "1e999999999",
        "0x10",
        "--1",
        "1_000",
        "٣",
        "nan",
        "inf",
        float("nan"),
        float("inf"),
    ],
)
def test_text_outside_the_grammar_is_an_error_that_names_the_place(quantity: Quantity) -> None:
    with pytest.raises(BadQuantity, match="container web, cpu holds the quantity"):
        parse(quantity, "container web, cpu")


@pytest.mark.parametrize("quantity", ["-1", "-500m", -1, "-" + "9" * 5000])
def test_a_negative_request_is_an_error(quantity: Quantity) -> None:
    with pytest.raises(BadQuantity):
        parse(quantity)


@pytest.mark.parametrize(
    "quantity",
    ["9223372036854775808", "16Ei", 1e30, "9" * 5000, "0" * 5000 + "1", "1." + "0" * 5000 + "Ei"],
    ids=lambda quantity: str(quantity)[:24],
)
def test_a_request_above_the_kubernetes_maximum_is_capped_at_it(
    quantity: Quantity,
) -> None:
    assert parse(quantity) == 2**63 - 1


@given(value=st.fractions(min_value=0, max_value=10**15))
@settings(deadline=None, max_examples=100)
def test_rounding_never_lowers_a_request_and_adds_less_than_one(value: Fraction) -> None:
    assert 0 <= rounded_up(value) - value < 1


def test_rounding_is_capped_at_int64() -> None:
    assert rounded_up(parse("1Ei") * 1000) == 2**63 - 1


@given(text=st.text(max_size=8))
@settings(deadline=None, max_examples=100)
def test_any_text_is_a_quantity_or_raises_bad_quantity(text: str) -> None:
    try:
        value = parse(text)
    except BadQuantity:
        return

    assert value >= 0
