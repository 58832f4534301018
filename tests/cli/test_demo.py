import socket
from pathlib import Path

import pytest

from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import BusSettings, HostPort, Source
from joulie_bus.streams.subjects import Subjects
from joulie_cli.commands.demo import Wish, addresses_of, free_or, lines_aside, wish_of
from joulie_cli.main import main, parser
from joulie_cli.supervisor.data_directory import DataDirectory
from joulie_cli.wiring import Wiring


def wish(*words: str) -> Wish:
    return wish_of(parser().parse_args(["demo", *words]))


@pytest.mark.parametrize(
    ("nodes", "pods", "interval_s"), [(20, "8.0", 2), (200, "13.3", 2), (5000, "50.0", 10)]
)
def test_a_larger_cluster_gets_more_pods_and_is_read_less_often(
    nodes: int, pods: str, interval_s: float
) -> None:
    found = wish("--nodes", str(nodes))

    assert (found.words["--pods-per-second"], found.simulated.interval_s()) == (pods, interval_s)


def test_an_option_that_is_given_comes_before_what_fits() -> None:
    assert wish("--nodes", "30", "--pods-per-second", "70.5").simulated.pods_per_s == 70.5


@pytest.mark.parametrize("option", ["--nodes", "--speed", "--pods-per-second"])
def test_an_option_that_cannot_be_used_is_told_before_anything_starts(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["demo", option, "0", "--data", str(tmp_path / "data")])

    assert code == 2
    told = capsys.readouterr().err
    assert f"{option}='0" in told
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
