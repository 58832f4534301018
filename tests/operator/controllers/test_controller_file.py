"""The file of power controllers: one rule for what is read and for what is switched."""

from pathlib import Path

import pytest

from joulie_cli.main import main
from joulie_operator.controllers.controller_file import (
    Controllers,
    Entry,
    Use,
    controllers_of,
    read_controllers,
)
from joulie_projections.state.state import NodeState

RACK, HOST = "rack.node-restriction.kubernetes.io/name", "bmc.node-restriction.kubernetes.io/host"


def written(folder: Path, *entries: str) -> Path:
    """A file of these entries; SECRETS stands for files that exist."""
    for name in ("user", "password"):
        (folder / name).write_text("x\n")
    secrets = f'user_file = "{folder}/user"\npassword_file = "{folder}/password"'
    file = folder / "controllers.toml"
    text = "".join(f"[[controller]]\n{entry}\n" for entry in entries)
    file.write_text(text.replace("SECRETS", secrets))
    return file


def entries(folder: Path, *texts: str) -> tuple[Entry, ...]:
    return read_controllers(written(folder, *texts))


REDFISH = 'kind = "redfish"\naddress = "https://{node}.bmc"\nSECRETS'
COMMAND = 'kind = "command"\non = ["on", "{node}"]\noff = ["off", "{node}"]'


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('kind = "magic"', "Invalid value 'magic'"),
        ('kind = "redfish"\nSECRETS', "missing required field `address`"),
        ('kind = "redfish"\naddress = "https://b"', "missing required field `user_file`"),
        (REDFISH.replace("https", "http"), "is not https://HOST"),
        (REDFISH.replace("{node}.bmc", "u:p@b"), "is not https://HOST"),
        (REDFISH.replace("{node}.bmc", "b/path"), "is not https://HOST"),
        (REDFISH.replace("{node}.bmc", ""), "is not https://HOST"),
        (REDFISH + "\nreads = false", "neither reads nor switches"),
        (REDFISH + "\ntimeout_s = 0.0", "timeout_s"),
        (REDFISH + '\nca_file = "/none"', "there is no file /none"),
        (REDFISH + "\ncolour = 1", "colour"),
        (REDFISH + '\nnodes = "x"', "not a list of label=value"),
        ('kind = "command"\non = ["x"]\noff = []', "off names no program"),
        ('kind = "autoscaler"\nsecret = "x"', "unknown field `secret`"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(toml: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"controllers\.toml: ") as wrong:
        entries(tmp_path, toml)

    assert why in str(wrong.value)


@pytest.mark.parametrize("label", ["joulie.io/bmc", "node-restriction.kubernetes.io.evil/x", "bmc"])
@pytest.mark.parametrize(
    "toml",
    [
        REDFISH.replace("{node}", "{LABEL}"),
        REDFISH + '\nchassis = "{LABEL}"',
        REDFISH + '\nsystem = "{LABEL}"\nswitches = true',
        'kind = "ipmi"\naddress = "{LABEL}"\nSECRETS',
        COMMAND.replace('"off", "{node}"', '"off", "{LABEL}"'),
        COMMAND + '\nstate = ["state", "{LABEL}"]',
        REDFISH + '\nnodes = "LABEL=r1"',
        COMMAND + '\nnodes = "LABEL=r1"',
    ],
)
def test_no_label_that_a_kubelet_can_set_chooses_a_controller_or_its_address(
    toml: str, label: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"{label}: name a label of node-restriction"):
        entries(tmp_path, toml.replace("LABEL", label))


def node(**labels: str) -> NodeState:
    named = {{"rack": RACK, "host": HOST}[key]: value for key, value in labels.items()}
    return NodeState(ordinal=0, at=0, present=True, labels=named)


def found(folder: Path, use: Use, nodes: dict[str, NodeState], *texts: str) -> Controllers:
    return controllers_of(entries(folder, *texts), use, nodes)


def test_the_first_entry_with_the_use_whose_labels_a_node_has_is_its_controller(
    tmp_path: Path,
) -> None:
    texts = (
        REDFISH.replace("{node}", f"{{{HOST}}}") + f'\nnodes = "{RACK}=r1"',
        COMMAND,
    )
    nodes = {"n1": node(rack="r1", host="b7"), "n2": node(), "n3": node(rack="r1")}
    read = found(tmp_path, "reads", nodes, *texts)
    switched = found(tmp_path, "switches", nodes, *texts)

    assert {name: getattr(each, "address", "") for name, each in read.entries.items()} == {
        "n1": "https://b7.bmc"
    }
    assert read.problems == {"n3": f"the node has no label {HOST}"}
    assert {name: getattr(each, "off", ()) for name, each in switched.entries.items()} == {
        name: ("off", name) for name in nodes
    }


@pytest.mark.parametrize(
    ("use", "toml"),
    [
        ("reads", REDFISH.replace("{node}", "one")),
        ("switches", REDFISH.replace("{node}", "one") + "\nswitches = true"),
        ("switches", COMMAND.replace("{node}", "one")),
        ("reads", 'kind = "ipmi"\naddress = "one"\nSECRETS'),
    ],
)
def test_a_machine_that_several_nodes_name_is_read_and_switched_for_none(
    use: Use, toml: str, tmp_path: Path
) -> None:
    both = found(tmp_path, use, {"n1": node(), "n2": node()}, toml)
    one = found(tmp_path, use, {"n1": node()}, toml)

    assert (set(both.entries), set(both.problems)) == (set(), {"n1", "n2"})
    assert "several nodes" in both.problems["n1"]
    assert set(one.entries) == {"n1"}


@pytest.mark.parametrize("use", ["reads", "switches"])
def test_a_name_that_no_node_can_have_is_part_of_no_address(use: Use, tmp_path: Path) -> None:
    toml = REDFISH + "\nswitches = true"

    assert not found(tmp_path, use, {"other.example/": node(), "A": node()}, toml).entries


def test_the_operator_does_not_start_with_a_wrong_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWER_CONTROLLERS", str(written(tmp_path, "kind = 'snmp'")))

    assert main(["operator", "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "POWER_CONTROLLERS" in said
    assert "snmp" in said


def documented(page: str) -> str:
    """The controllers of the examples of a page."""
    root = Path(__file__).parents[3]
    blocks = (root / "docs" / page).read_text().split("```")[1::2]
    return "\n".join(each.removeprefix("toml") for each in blocks if "[[controller]]" in each)


@pytest.mark.parametrize("page", ["power-sources.md", "sleeping-nodes.md"])
def test_the_documented_controllers_are_a_valid_file(page: str, tmp_path: Path) -> None:
    text = documented(page)
    for name in ("user", "password", "ca.crt"):
        (tmp_path / name).write_text("x")
    file = tmp_path / "controllers.toml"
    file.write_text(text.replace("/etc/joulie/power", str(tmp_path)))

    assert len(read_controllers(file)) == text.count("[[controller]]") > 0
