"""Tools that render the chart without the cluster get no new keys; the examples for them work."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, NAMESPACE, VERSION, helm, of_kind, pod_specs, rendered
from joulie_projections.decision_log.heads import Signer
from kube_real import DEPLOY

pytestmark = pytest.mark.slow  # each test waits for helm
GITOPS = DEPLOY / "gitops"
ARGO_CD, FLUX = GITOPS / "argocd.yaml", GITOPS / "flux.yaml"
WORDS = ["template", "joulie", str(CHART), "-n", NAMESPACE, "--kube-version", VERSION]
Tree = dict[str, Any]


def documents(text: str) -> list[Tree]:
    return [each for each in yaml.safe_load_all(text) if each]


def values_of(example: Path) -> Tree:
    [values] = [
        spec["source"]["helm"]["valuesObject"] if "source" in spec else spec["values"]
        for each in documents(example.read_text())
        if "source" in (spec := each["spec"]) or "values" in spec
    ]
    return dict(values)


@pytest.fixture(scope="module")
def secrets() -> dict[str, dict[str, str]]:
    words = ["sh", str(GITOPS / "secrets.sh"), NAMESPACE]
    made = documents(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert {each["metadata"]["namespace"] for each in made} == {NAMESPACE}
    return {each["metadata"]["name"]: each["stringData"] for each in made}


@pytest.mark.parametrize("missing", ["nats", "console", "signingKey", "tls"])
def test_nothing_is_rendered_that_would_get_new_keys_each_time(
    missing: str, home: Path, tmp_path: Path
) -> None:
    values = values_of(ARGO_CD)
    del values[missing]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    code, said = helm([*WORDS, "-f", str(file)], home)

    assert code != 0
    assert "kind:" not in said
    [named] = re.findall(r"Nothing was rendered\. Set (\S+) ", said)
    assert named.partition(".")[0] == missing


@pytest.mark.parametrize("example", [ARGO_CD, FLUX], ids=lambda path: path.stem)
def test_the_values_of_an_example_render_the_same_chart_twice(
    example: Path, home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values_of(example)))

    (code, said), again = (helm([*WORDS, "-f", str(file)], home) for _ in range(2))

    assert code == 0, said
    assert (code, said) == again
    assert of_kind(documents(said), "Secret") == {}


def test_the_secrets_of_the_script_are_those_that_the_examples_name(
    secrets: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    users, console, signing = (secrets[name] for name in secrets)
    conf = (CHART / "files/nats.conf").read_text()
    key = tmp_path / "head.key"
    key.write_text(signing["head.key"])
    key.chmod(0o600)

    for values in (values_of(ARGO_CD), values_of(FLUX)):
        assert [
            values["nats"]["usersSecret"],
            values["console"]["tokenSecret"],
            values["signingKey"]["existingSecret"],
        ] == list(secrets)
    assert set(users) == {name[1:] for name in re.findall(r"\$NATS_[A-Z]+", conf)}
    assert len({*users.values(), *console.values()}) == len(users) + 1
    assert all(password.isalnum() and password[0].isalpha() for password in users.values())
    assert len(console["token"]) >= 16
    assert Signer.of(key).signature(b"head")


def test_the_database_of_cloudnative_pg_has_the_secret_that_its_values_name(home: Path) -> None:
    """The operator of CloudNativePG names a Secret after the cluster, with the URL in `uri`."""
    [cluster] = documents((GITOPS / "cloudnative-pg.yaml").read_text())
    specs = pod_specs(rendered(home, "-f", str(CHART / "values-cnpg.yaml")))
    projected = [
        source["secret"]
        for spec in specs.values()
        for volume in spec.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
        if "secret" in source
    ]
    of_database = [
        each for each in projected if each["name"] == f"{cluster['metadata']['name']}-app"
    ]

    assert len(of_database) >= 5
    assert {item["key"] for each in of_database for item in each["items"]} == {"uri"}
    made = cluster["spec"]["bootstrap"]["initdb"]
    assert made["postInitSQL"] == [f"ALTER ROLE {made['owner']} CREATEROLE"]
    assert cluster["spec"]["postgresql"]["synchronous"]["number"] < cluster["spec"]["instances"]
