import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.core.redaction import HIDDEN, masked
from joulie_bus.errors import SettingsError
from joulie_bus.runtime.settings import (
    BusSettings,
    HostPort,
    InForce,
    Source,
    address,
    boolean,
    choice,
    declared,
    duration,
    integer,
    number,
    setting,
    some_time,
    token,
)
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_operator.settings import OperatorSettings
from joulie_projections.projector.projector import ProjectorSettings
from joulie_simulator.service import SimulatorOptions

ALL = (
    BusSettings,
    ProjectorSettings,
    ServerSettings,
    ScoringSettings,
    OperatorSettings,
    SimulatorOptions,
)
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
PARTS = st.tuples(
    st.decimals(0, 1000, places=2).map(str) | st.integers(0, 9999).map(str),
    st.sampled_from(list(SECONDS)),
)


@dataclass(frozen=True, kw_only=True)
class Vault:
    key: str = setting(token, "VAULT_KEY", "x", "Opens it", secret=True)


def mistakes_of(source: Source, *classes: type) -> tuple[str, ...]:
    for cls in classes:
        source.load(cls)
    with pytest.raises(SettingsError) as caught:
        source.finish()
    return caught.value.mistakes


def in_force(source: Source, *names: str) -> list[InForce]:
    source.load(BusSettings)
    return [each for each in source.finish() if each.name in names]


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "joulie.toml"
        file.write_text(text)
        return file

    return write


@given(st.lists(PARTS, min_size=1, max_size=5))
@settings(deadline=None)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[str, str]]) -> None:
    text = "".join(number + unit for number, unit in parts)

    assert duration(text) == pytest.approx(
        sum(float(number) * SECONDS[unit] for number, unit in parts)
    )


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (duration, "250ms", 0.25),
        (duration, "1h30m", 5400),
        (duration, "0s", 0),
        (some_time, ".5m", 30),
        (address, ":9876", HostPort("0.0.0.0", 9876)),
        (address, "[::1]:80", HostPort("::1", 80)),
        (address, "nats.example:0", HostPort("nats.example", 0)),
        (boolean, "True", True),
        (boolean, "false", False),
        (number(0, 1), "1e-3", 0.001),
        (integer(1, 5), "5", 5),
        (choice("a", "b"), "b", "b"),
        (token, "gpu-lab-1", "gpu-lab-1"),
    ],
)
def test_a_value_is_read(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (duration, ""),
        (duration, "30"),
        (duration, "m"),
        (duration, "-5m"),
        (duration, "5 m"),
        (duration, "1h 30m"),
        (duration, "2d"),
        (duration, "1e3s"),
        (duration, "5mm"),
        (some_time, "0s"),
        (address, "9876"),
        (address, "host:"),
        (address, "host:http"),
        (address, "host:65536"),
        (address, "host:-1"),
        (boolean, "yes"),
        (boolean, "1"),
        (number(), "nan"),
        (number(), "inf"),
        (number(0, 1), "1.01"),
        (number(0, 1), "-0.01"),
        (number(), "5%"),
        (integer(1, 5), "0"),
        (integer(1, 5), "6"),
        (integer(), "1.0"),
        (choice("a", "b"), "A"),
        (token, ""),
        (token, "a.b"),
        (token, "a b"),
        (token, "ä"),
    ],
)
def test_a_meaningless_value_is_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (each parser says it in its way)
        parse(text)

    assert str(caught.value)


@pytest.mark.parametrize("cls", ALL)
def test_every_default_passes_its_own_parser(cls: type) -> None:
    assert Source.of().load(cls) == cls()


def test_every_setting_has_one_name_a_meaning_and_what_is_allowed() -> None:
    told = declared(*ALL)

    assert len(told) == len({each for cls in ALL for each in declared(cls)})
    assert [each.name for each in told if not each.doc or not each.allowed] == []


def test_the_error_of_a_setting_names_its_range() -> None:
    [told] = [each for each in declared(*ALL) if each.name == "STATIC_HP_FRAC"]

    assert (told.default, told.allowed, told.secret) == ("0.5", "a number from 0 to 1", False)


def test_all_errors_are_reported_together_with_the_allowed_values() -> None:
    source = Source.of(
        METRICS_ADDR="nowhere", LOG_LEVEL="loud", STATIC_HP_FRAC="2", RECONCILE_INTERVAL="0s"
    )

    assert mistakes_of(source, BusSettings, OperatorSettings) == (
        "METRICS_ADDR='nowhere' (from environment): not an address; "
        "allowed: host:port, or :port for every interface",
        "LOG_LEVEL='loud' (from environment): unknown; allowed: one of debug, info, warning, error",
        "RECONCILE_INTERVAL='0s' (from environment): too short; "
        "allowed: a duration longer than nothing, such as 250ms, 30s, 5m or 1h30m",
        "STATIC_HP_FRAC='2' (from environment): out of range; allowed: a number from 0 to 1",
    )


def test_the_message_has_one_line_for_each_mistake() -> None:
    source = Source.of(LOG_LEVEL="loud", JOULIE_CLUSTER="a b")
    source.load(BusSettings)

    with pytest.raises(SettingsError) as caught:
        source.finish()
    assert str(caught.value) == (
        "JOULIE_CLUSTER='a b' (from environment): not a plain name; "
        "allowed: letters, digits and dashes. Nothing was started.\n"
        "LOG_LEVEL='loud' (from environment): unknown; "
        "allowed: one of debug, info, warning, error. Nothing was started."
    )


def test_a_secret_is_never_shown() -> None:
    source = Source.of(NATS_USER="joe", NATS_PASSWORD="hunter2")

    assert source.load(BusSettings).nats_password == "hunter2"
    assert [each for each in source.finish() if each.name == "NATS_PASSWORD"] == [
        InForce("NATS_PASSWORD", "(hidden)", "environment")
    ]


def test_an_unusable_secret_is_not_shown() -> None:
    assert mistakes_of(Source.of(VAULT_KEY="hunter 2"), Vault) == (
        "VAULT_KEY=(hidden) (from environment): not a plain name; "
        "allowed: letters, digits and dashes",
    )


def test_the_environment_is_stronger_than_the_file_and_the_file_than_the_default(
    toml: Callable[[str], Path],
) -> None:
    file = toml('LOG_LEVEL = "debug"\nLOG_FORMAT = "json"\n')
    source = Source({"LOG_LEVEL": "error"}, file)

    assert in_force(source, "LOG_LEVEL", "LOG_FORMAT", "JOULIE_CLUSTER") == [
        InForce("JOULIE_CLUSTER", "local", "default"),
        InForce("LOG_FORMAT", "json", str(file)),
        InForce("LOG_LEVEL", "error", "environment"),
    ]


def test_a_file_may_hold_numbers_and_truths_as_toml_writes_them(
    toml: Callable[[str], Path],
) -> None:
    lines = ("ENABLE_FACILITY_METRICS = true", "SCORE_TREND_SCALE = 10")
    file = toml("\n".join([*lines, "MARGINAL_CPU_UTIL_COEFF = 0.5"]))
    loaded = Source({}, file).load(ScoringSettings)

    assert (loaded.facility, loaded.trend_scale, loaded.cpu) == (True, 10.0, 0.5)


def test_a_child_process_gets_the_settings_of_the_file_that_apply(
    toml: Callable[[str], Path],
) -> None:
    file = toml('LOG_LEVEL = "debug"\nJOULIE_CLUSTER = "east"\nNATS_REPLICAS = 3')
    source = Source({"JOULIE_CLUSTER": "west"}, file)

    assert source.from_file() == {"LOG_LEVEL": "debug", "NATS_REPLICAS": "3"}


def test_an_unknown_name_in_the_file_is_a_mistake_with_a_suggestion(
    toml: Callable[[str], Path],
) -> None:
    file = toml('LOG_LEVLE = "debug"\nZZZ = 1\n')

    assert mistakes_of(Source({}, file), BusSettings) == (
        f"LOG_LEVLE in {file}: there is no such setting; did you mean LOG_LEVEL?",
        f"ZZZ in {file}: there is no such setting",
    )


def test_a_name_that_another_process_reads_is_no_mistake(toml: Callable[[str], Path]) -> None:
    source = Source({}, toml("STATIC_HP_FRAC = 0.6\n"))
    source.load(BusSettings)

    assert {each.origin for each in source.finish(lambda: ["STATIC_HP_FRAC"])} == {"default"}


@dataclass(frozen=True, kw_only=True)
class Pump:
    speed: str = setting(token, "PUMP_SPEED", "slow", "How fast it turns")
    pause_s: float = 2.5


def test_a_constant_is_no_setting_and_a_test_can_replace_it(
    toml: Callable[[str], Path],
) -> None:
    file = toml("pause_s = 1\n")

    assert [row.name for row in declared(Pump)] == ["PUMP_SPEED"]
    assert Source.of(pause_s="1", PUMP_SPEED="fast").load(Pump) == Pump(speed="fast", pause_s=2.5)
    assert mistakes_of(Source({}, file), Pump) == (f"pause_s in {file}: there is no such setting",)


def test_a_removed_setting_in_the_file_is_reported_as_unknown(
    toml: Callable[[str], Path],
) -> None:
    file = toml('EXTENDER_KEEP_ALIVE = "60s"\n')

    told = mistakes_of(Source({}, file), ServerSettings)

    assert len(told) == 1
    assert told[0].startswith(f"EXTENDER_KEEP_ALIVE in {file}: there is no such setting")


def test_many_values_where_one_belongs_are_a_mistake(toml: Callable[[str], Path]) -> None:
    file = toml('NATS_URL = ["nats://a", "nats://b"]\n')

    assert mistakes_of(Source({}, file), BusSettings) == (
        f"NATS_URL in {file}: not one value but a list",
    )


@pytest.mark.parametrize(
    "content", [b"LOG_LEVEL = ", b"LOG_LEVEL = '\xff'", None], ids=["cut", "no text", "missing"]
)
def test_a_file_that_cannot_be_read_is_a_mistake_with_its_path(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "joulie.toml"
    if content is not None:
        file.write_bytes(content)
    [mistake] = mistakes_of(Source({"LOG_LEVEL": "info"}, file), BusSettings)

    assert mistake.startswith(f"--config {file} cannot be read: ")


def test_an_error_in_the_file_names_the_file(toml: Callable[[str], Path]) -> None:
    file = toml("STATIC_HP_FRAC = 7\n")

    assert mistakes_of(Source({}, file), OperatorSettings) == (
        f"STATIC_HP_FRAC='7' (from {file}): out of range; allowed: a number from 0 to 1",
    )


# --- secrets in files -----------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_a_secret_can_be_in_a_file_also_behind_a_link(tmp_path: Path, content: str) -> None:
    (tmp_path / "data").write_text(content)
    (tmp_path / "link").symlink_to("data")  # as in a mounted Secret
    source = Source.of(VAULT_KEY_FILE=str(tmp_path / "link"))

    assert source.load(Vault).key == "s3cret"
    assert source.names("VAULT_KEY")
    [shown] = source.finish()
    assert shown == InForce("VAULT_KEY", HIDDEN, str(tmp_path / "link"))


def test_a_settings_file_can_name_the_file_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of-the-file")
    config = tmp_path / "joulie.toml"
    config.write_text(f'VAULT_KEY_FILE = "{tmp_path / "key"}"\n')

    assert Source({}, config).load(Vault).key == "of-the-file"
    source = Source({"VAULT_KEY": "of-the-environment"}, config)
    assert source.load(Vault).key == "of-the-environment"
    source.finish()


def test_an_empty_name_of_a_file_names_none() -> None:
    assert Source.of(VAULT_KEY_FILE="", VAULT_KEY="k").load(Vault).key == "k"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is no text"),
        (b"x" * 65_537, "it holds 65537 bytes"),
        (None, "No such file or directory"),
    ],
    ids=["nothing", "a line end", "no text", "too much", "no file"],
)
def test_a_file_without_a_secret_is_a_mistake_that_names_it(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)

    [mistake] = mistakes_of(Source.of(VAULT_KEY_FILE=str(path)), Vault)
    assert mistake.startswith(f"VAULT_KEY_FILE='{path}' (from environment): {why}")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")

    [mistake] = mistakes_of(Source.of(VAULT_KEY_FILE=str(tmp_path / "key")), Vault)
    assert "it is no regular file" in mistake


def test_a_secret_and_its_file_are_a_mistake_that_shows_neither(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret")
    source = Source.of(VAULT_KEY="0ther", VAULT_KEY_FILE=str(tmp_path / "key"))

    [mistake] = mistakes_of(source, Vault)
    assert "VAULT_KEY is given, too" in mistake
    assert "s3cret" not in mistake
    assert "0ther" not in mistake


def test_only_secrets_have_files(tmp_path: Path) -> None:
    (tmp_path / "level").write_text("debug")

    assert Source.of(LOG_LEVEL_FILE=str(tmp_path / "level")).load(BusSettings).log_level == "info"


def test_a_secret_of_a_file_appears_in_no_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("token-of-the-file")
    Source.of(VAULT_KEY_FILE=str(tmp_path / "key")).load(Vault)

    assert "token-of-the-file" not in masked("it failed with token-of-the-file")
