import asyncio
import socket
from pathlib import Path

import pytest

from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import BusSettings, HostPort, Source
from joulie_bus.streams.subjects import Subjects
from joulie_cli.command_line.parser import parsed
from joulie_cli.demo.demo import (
    DemoOptions,
    Ending,
    addresses_of,
    demo_defaults,
    demo_options,
    free_or,
    log_to_file,
    moved,
    trends_in_simulated_time,
)
from joulie_cli.main import main
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.component.wiring import Wiring


def options_for(*arguments: str) -> DemoOptions:
    return demo_options(parsed(["demo", *arguments]))


@pytest.mark.parametrize(
    ("nodes", "pods", "interval_s"), [(20, "8.0", 1), (200, "13.3", 1), (5000, "50.0", 10)]
)
def test_a_larger_cluster_gets_more_pods_and_is_read_less_often(
    nodes: int, pods: str, interval_s: float
) -> None:
    options = options_for("--nodes", str(nodes))

    assert (options.arguments["--pods-per-second"], options.simulated.interval_s()) == (
        pods,
        interval_s,
    )


@pytest.mark.parametrize(
    ("words", "odd"),
    [(["--nodes", "200"], 2), (["--nodes", "50"], 0), (["--nodes", "200", "--hours", "1"], 0)],
)
def test_a_demo_of_many_nodes_has_late_silent_and_leaving_ones(words: list[str], odd: int) -> None:
    assert options_for(*words).simulated.odd_nodes == odd
    assert options_for(*words, "--odd-nodes", "3").simulated.odd_nodes == 3


def test_a_given_option_overrides_the_computed_default() -> None:
    assert options_for("--nodes", "30", "--pods-per-second", "70.5").simulated.pods_per_s == 70.5


@pytest.mark.parametrize("option", ["--nodes", "--speed", "--pods-per-second"])
def test_an_invalid_option_is_reported_before_anything_starts(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["demo", option, "0", "--data", str(tmp_path / "data")])

    assert code == 2
    error = capsys.readouterr().err
    assert f"{option}='0" in error
    assert "(from the command line)" in error
    assert not (tmp_path / "data").exists()


def test_trends_count_in_simulated_time_unless_a_setting_is_given() -> None:
    assert trends_in_simulated_time(Source.of(), 60) == {"SCORE_TREND_SCALE": "360"}
    assert trends_in_simulated_time(Source.of(SCORE_TREND_SCALE="6"), 0.5) == {}


def test_an_address_from_the_settings_is_used_unchanged() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        addresses = addresses_of(Source.of(CONSOLE_ADDR=f"127.0.0.1:{port}"))
        free = free_or(port)

    assert addresses["console"] == HostPort("127.0.0.1", port)
    assert free.port != port


def test_a_port_that_is_taken_is_named_with_the_address_that_was_chosen() -> None:
    source = Source.of()
    addresses = {
        "extender": HostPort("127.0.0.1", 9876),
        "console": HostPort("127.0.0.1", 20001),
        "metrics": BusSettings().metrics_addr,
    }

    [line] = moved(source, addresses)

    assert line == (
        "Port 9870 is taken by another program: the console is at http://127.0.0.1:20001/ instead. "
        "CONSOLE_ADDR chooses an address."
    )


def test_demos_that_start_at_the_same_moment_get_different_ports() -> None:
    ports = [at.port for _ in range(2) for at in addresses_of(Source.of()).values()]

    assert len({*ports}) == len(ports)


@pytest.mark.anyio
async def test_the_time_of_a_demo_counts_from_the_moment_at_which_it_has_begun() -> None:
    begun: list[bool] = []
    ending = Ending(asyncio.Event(), None, 0.0, lambda: bool(begun))
    assert not await ending.wait(0.01)

    begun.append(True)
    assert await ending.wait(0.01)


def test_log_lines_go_to_a_file_while_the_screen_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wires = Wiring(
        Source.of(), BusSettings(log_level="warning"), DataDirectory(tmp_path), Subjects("local")
    )
    with log_to_file(wires):
        logging.get_logger("up").warning("exited", component="operator")
    aside = capsys.readouterr().err
    logging.get_logger("up").warning("later")

    assert aside == ""
    assert "component=operator" in (tmp_path / "logs" / "demo.log").read_text()
    assert "later" in capsys.readouterr().err


def test_a_demo_runs_the_preset_that_saves_in_simulated_time() -> None:
    assert demo_defaults(Source.of(), 60.0) == {
        "PRESET": "savings",
        "RECONCILE_INTERVAL": "1s",
        "POLICY_NUMBERS": "sleep_after_s=10,wake_timeout_s=15",
    }


def test_a_demo_leaves_what_is_given() -> None:
    assert demo_defaults(Source.of(PRESET="headroom", RECONCILE_INTERVAL="9s"), 60.0) == {}
    assert "POLICY_NUMBERS" not in demo_defaults(Source.of(POLICY_TYPE="static_partition"), 60.0)
