import socket
from pathlib import Path

import pytest

from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import BusSettings, HostPort, Source
from joulie_bus.streams.subjects import Subjects
from joulie_cli.commands.demo import Wish, addresses_of, free_or, lines_aside, settings_of
from joulie_cli.main import main
from joulie_cli.supervisor.data_directory import DataDirectory
from joulie_cli.wiring import Wiring


def wish(nodes: int = 200, pods_per_s: float | None = None) -> Wish:
    return Wish(nodes, 1, 60.0, pods_per_s, "", headless=True, seconds=None)


@pytest.mark.parametrize(
    ("nodes", "pods", "interval"),
    [(20, "8.0", "2.0s"), (200, "13.3", "2.0s"), (5000, "50.0", "10.0s")],
)
def test_a_larger_cluster_gets_more_pods_and_is_read_less_often(
    nodes: int, pods: str, interval: str
) -> None:
    found = settings_of(wish(nodes), Source.of())

    assert (found["SIM_PODS_PER_SECOND"], found["SIM_SAMPLE_INTERVAL"]) == (pods, interval)


def test_what_is_asked_for_comes_before_the_settings_and_those_before_what_fits() -> None:
    said = Source.of(SIM_PODS_PER_SECOND="20", SIM_NODES="7")
    asked, unasked = settings_of(wish(30, 70.5), said), settings_of(wish(30), said)

    assert (asked["SIM_PODS_PER_SECOND"], asked["SIM_NODES"]) == ("70.5", "30")
    assert "SIM_PODS_PER_SECOND" not in unasked  # so that the setting itself counts


@pytest.mark.parametrize("option", ["--nodes", "--speed", "--pods-per-second"])
def test_an_option_that_cannot_be_used_is_told_before_anything_starts(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["demo", option, "0", "--data", str(tmp_path / "data")])

    assert code == 2
    setting = f"SIM_{option[2:].upper().replace('-', '_')}"
    told = capsys.readouterr().err
    assert f"{setting}='0" in told
    assert "(from the command line)" in told
    assert not (tmp_path / "data").exists()


def test_an_address_that_somebody_set_is_used_as_it_is() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = addresses_of(Source.of(CONSOLE_ADDR=f"127.0.0.1:{port}"))
        free = free_or(port)

    assert said["console"] == HostPort("127.0.0.1", port)
    assert free.port != port


def test_no_line_of_the_log_tears_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wires = Wiring(
        Source.of(), BusSettings(log_level="warning"), DataDirectory(tmp_path), Subjects("local")
    )
    with lines_aside(wires):
        logging.get_logger("up").warning("fell", who="operator")
    aside = capsys.readouterr().err
    logging.get_logger("up").warning("later")

    assert aside == ""
    assert "who=operator" in (tmp_path / "logs" / "demo.log").read_text()
    assert "later" in capsys.readouterr().err
