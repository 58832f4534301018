"""The rendered chart: what helm accepts, and what it promises of every pod."""

import base64
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from bus_kit import CLUSTER, connected, running_broker, running_cluster
from helm_chart import (
    CHART,
    DOCUMENTED,
    NAMESPACE,
    VERSION,
    generator,
    helm,
    of_kind,
    pod_specs,
    rendered,
    template,
)
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.settings import declared
from joulie_bus.streams.roles import Role
from joulie_console.settings import ConsoleSettings
from joulie_extender.protocol import scheduler_config
from joulie_extender.settings import ServerSettings
from joulie_operator.planning.rules import numbers as numbers_of
from kube_real import DEPLOY

pytestmark = pytest.mark.slow  # each test waits for helm
FROM_CODE = generator()
SERVICE = f"joulie-extender.{NAMESPACE}.svc"
PATCH, EXTERNAL = CHART / "values-patch.yaml", CHART / "values-external.yaml"


def values(name: str) -> list[str]:
    return ["-f", str(CHART / f"{name}.yaml")]


@pytest.fixture(scope="module", params=DOCUMENTED)
def trees(request: pytest.FixtureRequest, home: Path) -> list[dict[str, Any]]:
    return rendered(home, *values(request.param))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_helm_finds_no_fault_in_the_chart(name: str, home: Path) -> None:
    code, said = helm(["lint", str(CHART), "--kube-version", VERSION, *values(name)], home)

    assert code == 0, said
    assert "[WARNING]" not in said


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("scheduler.mode=other", "/scheduler/mode"),
        ("settings.STATIC_HP_FRACTION=x", "STATIC_HP_FRACTION"),
        ("settings.NATS_URL=x", "NATS_URL"),
        ("settings.SCORING=energy", "SCORING"),  # a preset has it
        ("preset=cheap", "/preset"),
        ("preset=mine.toml", "preset=mine.toml: `files` has no file of this name"),
        ("settings.POLICY_NUMBERS.reserve=2", "/settings/POLICY_NUMBERS/reserve"),
        ("settings.POLICY_NUMBERS.resrve=much", "/settings/POLICY_NUMBERS/resrve"),
        ("nats.replicas=2", "/nats/replicas"),
        ("scheduler.name=default-scheduler", "/scheduler/name"),
        ("replica=2", "replica"),
        ("projector.replicas=2", "database.existingSecret"),
        ("nats.url=nats://n:4222", "nats.usersSecret"),
        ("headsTo.configMap=true,headsTo.existingClaim=vault", "headsTo"),
        ("headsTo.s3.url=https://s3.example.com/heads", "headsTo.s3.existingSecret"),
        ("headsTo.s3.url=http://s3.example.com/heads", "headsTo"),
        ("archive.bucket.url=https://s3.example.com/archive", "archive.bucket.existingSecret"),
        ("console.notify.url=http://hooks.example.com", "console.notify.plain=true"),
        ("console.notify.url=hooks.example.com", "/console/notify/url"),
        ("console.traces.url=collector:4318", "/console/traces/url"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(wrong: str, named: str, home: Path) -> None:
    code, said = helm(
        ["template", "joulie", str(CHART), "--kube-version", VERSION, "--set", wrong], home
    )

    assert code != 0
    assert named in said


def test_every_pod_is_unprivileged_with_a_read_only_root(trees: list[dict[str, Any]]) -> None:
    specs = pod_specs(trees)
    specs.pop("DaemonSet/joulie-agent")  # in tests/deploy/test_agent.py

    assert len(specs) >= 6
    for name, spec in specs.items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name


def test_every_container_has_a_memory_limit_of_at_least_its_request(
    trees: list[dict[str, Any]],
) -> None:
    units = {"Mi": 1, "Gi": 1024}
    for name, spec in pod_specs(trees).items():
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            amounts = {
                kind: int(amount["memory"][:-2]) * units[amount["memory"][-2:]]
                for kind, amount in container["resources"].items()
            }
            assert amounts["requests"] <= amounts["limits"], (name, container["name"])


def test_only_pods_with_rights_get_a_token_of_the_api_server(trees: list[dict[str, Any]]) -> None:
    subjects = [
        subject["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for tree in of_kind(trees, kind).values()
        for subject in tree["subjects"]
    ]

    for name, spec in pod_specs(trees).items():
        has_token = spec.get("automountServiceAccountToken", True)
        assert not has_token or spec["serviceAccountName"] in subjects, name
    assert {"joulie-projector", "joulie-console"} & set(subjects) == set()


S3 = "https://s3.example.com:9000/heads/cluster-a"
PROJECTOR, ARCHIVER = "StatefulSet/joulie-projector", "Deployment/joulie-archive"


def with_bucket(value: str) -> tuple[str, str]:
    secrets = f"{value}.existingSecret=bucket-keys,{value}.caSecret=ca"
    return "--set", f"{value}.url={S3},{secrets}"


def with_files(
    trees: list[dict[str, Any]], component: str
) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """Its pod, its settings, and the files of its volume s3."""
    spec = pod_specs(trees)[component]
    [container] = spec["containers"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    [place] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "s3"] or [
        ""
    ]
    sources = [
        item["path"]
        for volume in spec["volumes"]
        if volume["name"] == "s3"
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    ]
    return spec, env, {f"{place}/{path}" for path in sources}


@pytest.mark.parametrize(
    ("value", "component", "setting", "place"),
    [
        ("headsTo.s3", PROJECTOR, "HEADS_TO", f"s3:{S3}"),
        ("archive.bucket", ARCHIVER, "ARCHIVE_BUCKET", S3),
    ],
)
def test_a_component_uses_a_bucket_with_credentials_in_files(
    home: Path, value: str, component: str, setting: str, place: str
) -> None:
    trees = rendered(home, *with_bucket(value))
    _, env, files = with_files(trees, component)

    assert env[setting] == place
    holders = {name for name, spec in pod_specs(trees).items() if "bucket-keys" in json.dumps(spec)}
    assert holders == {component}
    assert {value for name, value in env.items() if re.fullmatch("S3_.*_FILE", name)} == files
    assert not {"S3_ACCESS_KEY", "S3_SECRET_KEY"} & env.keys()


def with_webhook(*values: str) -> tuple[str, str]:
    return "--set", ",".join(f"console.notify.{value}" for value in values)


WEBHOOK = with_webhook(
    "url=http://hooks.example.com:8443/x", "existingSecret=hook", "caSecret=ca", "plain=true"
)
SECRET_WEBHOOK = with_webhook("existingSecret=hook")


@pytest.mark.parametrize(
    ("options", "named", "port"),
    [
        (
            WEBHOOK,
            {
                "NOTIFY_URL": "http://hooks.example.com:8443/x",
                "NOTIFY_TOKEN_FILE": "/etc/joulie/notify/token",
                "SSL_CERT_FILE": "/etc/joulie/notify-ca/ca.crt",
                "NOTIFY_PLAIN": "true",
            },
            8443,
        ),
        (SECRET_WEBHOOK, {"NOTIFY_URL_FILE": "/etc/joulie/notify/url"}, 443),
        (with_webhook("url=https://hooks.example.com/x"), {}, 443),
    ],
    ids=["token", "secret address", "no secret"],
)
def test_the_console_alone_may_connect_to_the_webhook(
    home: Path, options: Sequence[str], named: dict[str, str], port: int
) -> None:
    trees = rendered(home, *options)
    [container] = pod_specs(trees)["Deployment/joulie-console"]["containers"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    policy = of_kind(trees, "NetworkPolicy")["joulie-to-webhook"]["spec"]

    assert named.items() <= env.items()
    assert policy["egress"] == [{"ports": [{"port": port}]}]
    assert policy["podSelector"]["matchExpressions"][0]["values"] == ["console"]
    mounted = [each["mountPath"] for each in container["volumeMounts"]]
    assert all(str(Path(value).parent) in mounted for value in named.values() if value[0] == "/")


def test_the_console_alone_may_connect_to_the_collector_of_traces(home: Path) -> None:
    url = "http://collector.monitoring:4318"
    trees = rendered(home, "--set", f"console.traces.url={url}")
    [container] = pod_specs(trees)["Deployment/joulie-console"]["containers"]
    policy = of_kind(trees, "NetworkPolicy")["joulie-to-collector"]["spec"]

    assert {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": url} in container["env"]
    assert policy["egress"] == [{"ports": [{"port": 4318}]}]
    assert policy["podSelector"]["matchExpressions"][0]["values"] == ["console"]


def test_with_a_config_map_the_projector_may_replace_that_one_object(home: Path) -> None:
    trees = rendered(home, "--set", "headsTo.configMap=true")
    spec, env, _ = with_files(trees, PROJECTOR)
    [rule] = of_kind(trees, "Role")["joulie-heads"]["rules"]
    [subject] = of_kind(trees, "RoleBinding")["joulie-heads"]["subjects"]

    assert env["HEADS_TO"] == f"configmap:{NAMESPACE}/joulie-heads"
    assert (rule["resourceNames"], rule["verbs"]) == (["joulie-heads"], ["get", "update"])
    assert subject["name"] == spec["serviceAccountName"]
    assert spec["automountServiceAccountToken"] is True
    assert "data" not in of_kind(trees, "ConfigMap")["joulie-heads"]  # an upgrade keeps it


def test_every_container_sets_known_settings_only(trees: list[dict[str, Any]]) -> None:
    known = FROM_CODE.setting_names() | {"POD_NAME", "NODE_NAME", "GOMEMLIMIT"}
    set_by_pods = {
        each["name"]
        for spec in pod_specs(trees).values()
        for container in spec["containers"]
        for each in container.get("env", [])
    }

    assert set_by_pods - known == set()
    assert set_by_pods & FROM_CODE.setting_names() <= FROM_CODE.BY_THE_CHART


@pytest.mark.anyio
async def test_a_cluster_of_brokers_refuses_the_store_of_a_single_one(
    home: Path, tmp_path: Path
) -> None:
    """nats-server would delete its streams after 30 s."""
    pods = pod_specs(rendered(home, *values("values-ha")))
    check = pods["StatefulSet/joulie-nats"]["initContainers"][-1]
    async with running_broker(tmp_path / "single"):
        pass
    async with running_cluster(tmp_path) as servers, connected(servers["n0"]) as connection:
        await ensure(connection, CLUSTER, replicas=3)
    (tmp_path / "new").mkdir()

    def ended(store: Path) -> tuple[int, str]:
        done = subprocess.run(
            check["command"], cwd=store, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    code, said = ended(tmp_path / "single/nats")
    assert code == 1
    assert "a cluster would delete them" in said
    assert ended(tmp_path / "n0/nats") == (0, "")
    assert ended(tmp_path / "new") == (0, "")


def test_files_of_the_values_are_in_every_container_of_a_component(home: Path) -> None:
    teams = "[[team]]\nname = 'research'"
    made = rendered(home, "--set-string", f"files.teams\\.toml={teams}")
    mount = {"name": "files", "mountPath": "/etc/joulie/files", "readOnly": True}
    components = {"projector", "operator", "extender", "console", "ledger", "archive"}
    mounted = {
        container["name"]
        for spec in pod_specs(made).values()
        for container in spec["containers"]
        if mount in container.get("volumeMounts", [])
    }

    assert of_kind(made, "ConfigMap")["joulie-files"]["data"] == {"teams.toml": teams}
    assert components - mounted == set()


def test_the_chart_sets_every_setting_that_it_keeps_from_users(home: Path) -> None:
    kept = ("--set", f"witnesses={{{WITNESS}}}", "--set", "headsTo.existingClaim=vault")
    buckets = (*with_bucket("headsTo.s3"), *with_bucket("archive.bucket"))
    other = (*values("values-external"), "--set", "scheduler.configuration=gpu", *buckets)
    text = template(home, *values("values-patch"), *kept, *WEBHOOK) + template(home, *other)
    text += template(home, *SECRET_WEBHOOK, "--set", "callout.enabled=true")
    named = set(re.findall(r"(?:name: |^  )([A-Z][A-Z0-9_]*)\b", text, re.MULTILINE))

    assert FROM_CODE.BY_THE_CHART - named == set()


def test_every_volume_and_account_of_a_pod_exists(trees: list[dict[str, Any]]) -> None:
    made = {f"{tree['kind']}/{tree['metadata']['name']}" for tree in trees}
    issued = (
        "nats",
        "extender",
        "admission",
        "scheduler-client",
    )  # by cert-manager, if it is there
    made |= {f"Secret/joulie-{name}-tls" for name in issued}
    made |= {"Secret/nats-ca", "Secret/joulie-database"}
    for name, spec in pod_specs(trees).items():
        for volume in spec.get("volumes", []):
            for kind, key in (("configMap", "name"), ("secret", "secretName")):
                if kind in volume:
                    assert f"{kind[0].upper()}{kind[1:]}/{volume[kind][key]}" in made, name
        account = spec.get("serviceAccountName")
        assert account is None or f"ServiceAccount/{account}" in made, name


def test_the_projector_alone_mounts_the_key_that_signs_the_log(home: Path) -> None:
    """With SQLite the others mount the volume of the database, and all but its writers cannot
    write to it. With PostgreSQL they mount no volume of the projector."""
    on_one_node, apart = pod_specs(rendered(home)), pod_specs(rendered(home, *values("values-ha")))

    for name, spec in [*on_one_node.items(), *apart.items()]:
        if name != "StatefulSet/joulie-projector":
            containers = str(spec["containers"])
            assert "head-key" not in containers, name
            assert "joulie-head-key" not in str(spec) or name == "Deployment/joulie-archive", name
            assert "joulie-projector-keys" not in str(spec), name
    assert "data-joulie-projector" not in str(apart)
    assert "head-key" not in str(apart["Deployment/joulie-archive"]["containers"])
    assert {
        name.split("/joulie-")[1]
        for name, spec in on_one_node.items()
        if "joulie-projector-0" in str(spec.get("volumes", []))
        and not all(each.get("readOnly") for each in mounts_of(spec, "data"))
    } == {"migrate", "rebuild"}


def mounts_of(spec: dict[str, Any], volume: str) -> list[dict[str, Any]]:
    mounts = [each for container in spec["containers"] for each in container["volumeMounts"]]
    return [each for each in mounts if each["name"] == volume]


def test_with_sqlite_the_ledger_alone_writes_to_its_volume_and_all_others_read_it(
    home: Path,
) -> None:
    found = {
        name.split("/joulie-")[1]: [
            bool(each.get("readOnly")) for each in mounts_of(spec, "ledger")
        ]
        for name, spec in pod_specs(rendered(home)).items()
        if "DATABASE_URL" in str(spec["containers"])
    }

    assert {name for name, reads in found.items() if reads != [True]} == {"ledger"}
    assert found["ledger"] == [False]
    assert set(found) >= {"projector", "console", "archive", "test", "migrate"}


def test_the_ledger_is_another_user_of_the_group_that_all_pods_share(home: Path) -> None:
    """Files of the projector are 0640, and keys 0600."""
    found = {
        name.split("/joulie-")[1]: spec["securityContext"]
        for name, spec in pod_specs(rendered(home)).items()
        if "DATABASE_URL" in str(spec["containers"])
    }

    assert {name for name, of in found.items() if of["runAsUser"] != 65532} == {"ledger"}
    assert {of["runAsGroup"] for of in found.values()} == {65532}


def test_a_chart_without_ledger_or_sqlite_has_no_volume_of_the_ledger(home: Path) -> None:
    for trees in (
        rendered(home, "--set=ledger.enabled=false"),
        rendered(home, *values("values-ha")),
    ):
        assert "joulie-ledger" not in of_kind(trees, "PersistentVolumeClaim")
        assert "DATABASE_URL," not in str(trees)
        assert not any(mounts_of(spec, "ledger") for spec in pod_specs(trees).values())


@pytest.mark.parametrize(
    "planted", ["head.key", "head.key.next", "head.announced", "head.retire", "head.key.replaces"]
)
def test_nothing_on_the_volume_of_the_database_becomes_a_key(
    planted: str, home: Path, tmp_path: Path
) -> None:
    """With SQLite the archiver writes to it."""
    pod = pod_specs(rendered(home))["StatefulSet/joulie-projector"]
    start = {each["name"]: each for each in pod["initContainers"]}["key"]
    data, keys, secret = (tmp_path / name for name in ("data", "keys", "secret"))
    for folder in (data, keys, secret):
        folder.mkdir()
    (secret / "head.key").write_text("of the chart")
    (data / planted).write_text("planted")

    def started() -> dict[str, str]:
        *shell, script = start["command"]
        places = {start["workingDir"]: keys, "/etc/joulie/head": secret, "/var/lib/joulie": data}
        for path, folder in places.items():
            script = script.replace(f"{path}/", f"{folder}/")
        subprocess.run([*shell, script], cwd=keys, check=True)
        return {path.name: path.read_text() for path in keys.iterdir()}

    assert "data" not in [each["name"] for each in start["volumeMounts"]]
    assert started() == {"head.key": "of the chart"}
    (keys / "head.key").write_text("rotated")
    assert started() == {"head.key": "rotated"}


def test_each_pod_has_the_url_of_its_right_to_the_database_alone(home: Path) -> None:
    urls = {
        name.split("/joulie-")[1]: {
            item["key"]
            for volume in spec.get("volumes", [])
            for source in volume.get("projected", {}).get("sources", [])
            for item in source["secret"].get("items", [])
            if item["path"] == "database-url"
        }
        for name, spec in pod_specs(rendered(home, *values("values-ha"))).items()
    }
    owners = {name for name, keys in urls.items() if keys == {"url-migrate"}}
    writers = {name for name, keys in urls.items() if keys == {"url-writer"}}
    ledgers = {name for name, keys in urls.items() if keys == {"url-ledger"}}
    readers = {name for name, keys in urls.items() if keys == {"url-reader"}}

    assert owners
    assert all(name.startswith("migrate") for name in owners)
    assert writers == {"projector", "rebuild"}
    assert ledgers == {"ledger"}
    assert readers == {"archive", "console", "extender", "operator", "test"}
    known = owners | writers | readers | ledgers
    assert all(not keys for name, keys in urls.items() if name not in known)


def test_the_test_reads_every_certificate_of_the_chart_and_no_key(
    trees: list[dict[str, Any]],
) -> None:
    """cert-manager makes the Secrets of Certificates."""
    made = {
        name
        for name, tree in of_kind(trees, "Secret").items()
        if tree.get("type") == "kubernetes.io/tls"
    } | {tree["spec"]["secretName"] for tree in of_kind(trees, "Certificate").values()}
    volumes = {each["name"]: each for each in pod_specs(trees)["Pod/joulie-test"]["volumes"]}
    sources = [each["secret"] for each in volumes["certificates"]["projected"]["sources"]]

    assert made - {each["name"] for each in sources} == set()
    assert all([item["key"] for item in each["items"]] == ["tls.crt"] for each in sources)
    assert all(each["optional"] for each in sources)


def test_a_value_chooses_whether_warnings_fail_the_test(home: Path) -> None:
    def words(*options: str) -> list[str]:
        [container] = pod_specs(rendered(home, *options))["Pod/joulie-test"]["containers"]
        return list(container["args"])

    assert words()[0] == "doctor"
    assert "--accept-warnings" in words()
    assert "--accept-warnings" not in words("--set", "test.fails=warnings")


def test_the_rights_of_the_operator_are_those_of_deploy(home: Path) -> None:
    wanted = [tree for tree in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()) if tree]
    found = rendered(home)

    for tree in wanted[1:]:
        [same] = [
            each
            for each in found
            if each["kind"] == tree["kind"]
            and each["metadata"]["name"] == tree["metadata"]["name"]
            and each["metadata"].get("namespace") == tree["metadata"].get("namespace")
        ]
        for part in ("rules", "roleRef", "subjects", "spec"):
            assert same.get(part) == tree.get(part)


@pytest.mark.parametrize("name", scheduler_config.CONFIGURATIONS)
def test_the_chart_configures_kube_scheduler_as_the_command_prints_it(
    name: str, home: Path
) -> None:
    own = scheduler_config.Options(
        f"https://{SERVICE}:9876",
        name,
        scheduler_config.ClientFiles(),
        name="joulie",
        lease_namespace=NAMESPACE,
    )
    patch = scheduler_config.Options(
        "https://10.0.0.76:9876", name, scheduler_config.ClientFiles(), percentage=50
    )
    cards = patch._replace(resources=("nvidia.com/gpu", "example.com/card"))
    more = ["--set", "scheduler.percentageOfNodesToScore=50"]
    named = ["--set", r"settings.GPU_RESOURCES=nvidia.com/gpu\,example.com/card"]

    assert configured(home, name) == tree_of(own)
    assert configured(home, name, "-f", str(PATCH), *more) == tree_of(patch)
    assert configured(home, name, "-f", str(PATCH), *more, *named) == tree_of(cards)


def test_a_preset_of_ones_own_is_one_of_the_files(home: Path, tmp_path: Path) -> None:
    text = 'base = "savings"\n[scores]\ngpu_packing = "share"\n'
    (tmp_path / "values.yaml").write_text(
        yaml.safe_dump({"preset": "mine.toml", "files": {"mine.toml": text}})
    )

    maps = of_kind(rendered(home, "-f", str(tmp_path / "values.yaml")), "ConfigMap")

    assert maps["joulie-settings"]["data"]["PRESET"] == "/etc/joulie/files/mine.toml"
    assert maps["joulie-files"]["data"] == {"mine.toml": text}


def test_the_numbers_of_the_policy_may_be_a_map(home: Path, tmp_path: Path) -> None:
    numbers = {"reserve": 0.05, "power_target_w": {"rack:r1": 1_500_000, "a": 10}}
    whole = {"settings": {"POLICY_NUMBERS": {**numbers, "caps_where_measured": 1}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(whole))

    trees = rendered(home, "-f", str(tmp_path / "values.yaml"))

    given = of_kind(trees, "ConfigMap")["joulie-settings"]["data"]["POLICY_NUMBERS"]
    assert numbers_of(given) == {
        "caps_where_measured": 1,
        "power_target_w.a": 10,
        "power_target_w.rack:r1": 1_500_000,
        "reserve": 0.05,
    }


def tree_of(options: scheduler_config.Options) -> dict[str, Any]:
    return scheduler_config.tree_of(scheduler_config.configuration(options))


def configured(home: Path, name: str, *words: str) -> Any:
    trees = rendered(home, "--set", f"scheduler.configuration={name}", *words)
    return yaml.safe_load(of_kind(trees, "ConfigMap")["joulie-scheduler"]["data"]["config.yaml"])


def test_the_files_for_kube_scheduler_name_a_service_that_the_chart_makes(home: Path) -> None:
    services = of_kind(rendered(home, "-f", str(PATCH)), "Service")
    hosts = {
        urlsplit(block["urlPrefix"]).netloc
        for path in DEPLOY.glob("kube-scheduler*.yaml")
        for block in yaml.safe_load(path.read_text())["extenders"]
    }

    [port] = services["joulie-extender"]["spec"]["ports"]
    assert hosts == {f"joulie-extender.{NAMESPACE}.svc.cluster.local:{port['port']}"}


@pytest.mark.parametrize("options", [[], ["-f", str(PATCH)]], ids=["own", "patch"])
def test_an_extender_that_binds_has_the_rights_to_bind_and_no_more(
    options: list[str], home: Path
) -> None:
    trees = rendered(home, *options, "--set", "scheduler.configuration=split")
    rules = of_kind(trees, "ClusterRole")["joulie-extender"]["rules"]

    assert [rule["resources"] for rule in rules] == [["pods/binding"], ["pods"]]
    binding = of_kind(trees, "ClusterRoleBinding")["joulie-extender"]
    assert binding["subjects"][0]["name"] == "joulie-extender"
    pod = pod_specs(trees)["StatefulSet/joulie-extender"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (
        "joulie-extender",
        True,
    )


def test_kube_scheduler_runs_in_a_deployment_of_its_own_that_needs_no_component(
    home: Path,
) -> None:
    """With all components at zero replicas it still places pods: it has no volume, no broker and
    no database of theirs, and it runs on any node.
    """
    pods = pod_specs(rendered(home))
    scheduler = pods["Deployment/joulie-scheduler"]
    volumes = {next(iter(set(each) - {"name"})) for each in scheduler["volumes"]}

    assert [each["name"] for each in scheduler["containers"]] == ["kube-scheduler"]
    assert volumes == {"configMap", "secret", "emptyDir"}
    assert "podAffinity" not in scheduler["affinity"]
    assert "podAffinity" in pods["StatefulSet/joulie-extender"]["affinity"]
    for name, spec in pods.items():
        if name != "Deployment/joulie-scheduler":
            assert "kube-scheduler" not in str(spec["containers"]), name


@pytest.mark.parametrize("name", scheduler_config.CONFIGURATIONS)
def test_kube_scheduler_has_the_files_of_its_configuration_and_the_name_that_it_calls(
    name: str, home: Path
) -> None:
    trees = rendered(home, "--set", f"scheduler.configuration={name}")
    pod = pod_specs(trees)["Deployment/joulie-scheduler"]
    [init], [container] = pod["initContainers"], pod["containers"]
    [certificates] = [each["secret"] for each in pod["volumes"] if "secret" in each]
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    files = {f"/etc/joulie/{item['path']}" for item in certificates["items"]}
    hosts = of_kind(trees, "NetworkPolicy")["joulie-extender"]["spec"]["ingress"][0]["from"]

    for block in configured(home, name)["extenders"]:
        assert set(block["tlsConfig"].values()) == files
        assert urlsplit(block["urlPrefix"]).hostname == SERVICE
    assert mounted["/etc/hosts"]["subPath"] == "hosts"
    assert f"%s {SERVICE}" in init["command"][-1]
    assert pod["enableServiceLinks"] is True
    assert hosts[0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "scheduler"


def test_ports_are_those_of_the_code(home: Path) -> None:
    rows = declared(ServerSettings, ConsoleSettings)
    default = {row.name: row.default.rpartition(":")[2] for row in rows}
    text = template(home, "-f", str(PATCH))

    for name in ("EXTENDER_ADDR", "CONSOLE_ADDR"):
        assert re.findall(rf'name: {name}, value: ":(\d+)"', text) == [default[name]]


def test_alerts_and_dashboard_are_those_of_deploy(home: Path) -> None:
    trees = rendered(home, "-f", str(EXTERNAL))
    alerts = yaml.safe_load((DEPLOY / "alerts/joulie.yaml").read_text())
    dashboards = of_kind(trees, "ConfigMap")["joulie-dashboard"]["data"]

    assert of_kind(trees, "PrometheusRule")["joulie"]["spec"] == alerts
    assert set(dashboards) == {"joulie.json", "energy.json"}
    for name, text in dashboards.items():
        assert text == (DEPLOY / "dashboards" / name).read_text()


def test_high_availability_has_replicas_and_a_budget_of_each(home: Path) -> None:
    trees = rendered(home, *values("values-ha"))
    replicas = {
        name: tree["spec"]["replicas"]
        for kind in ("Deployment", "StatefulSet")
        for name, tree in of_kind(trees, kind).items()
    }

    # No placement waits for these two.
    assert replicas.pop("joulie-ledger") == replicas.pop("joulie-archive") == 1
    assert min(replicas.values()) >= 2
    assert set(of_kind(trees, "PodDisruptionBudget")) == set(replicas)
    conf = of_kind(trees, "ConfigMap")["joulie-nats"]["data"]["nats.conf"]
    assert len(re.findall(r'"nats://joulie-nats-\d\.', conf)) == 3


def test_no_budget_stops_the_drain_of_the_node_with_the_volume(home: Path) -> None:
    """No replica of these can run elsewhere before the drain has evicted the last one."""
    trees = rendered(home, "--set", "scheduler.replicas=2", "--set", "extender.replicas=2")

    assert set(of_kind(trees, "PodDisruptionBudget")) == {"joulie-scheduler"}


def test_an_upgrade_migrates_before_and_after_the_roll_out(home: Path) -> None:
    jobs = of_kind(rendered(home, "--is-upgrade"), "Job")
    args = [
        jobs[f"joulie-migrate-{phase}"]["spec"]["template"]["spec"]["containers"][0]["args"]
        for phase in ("pre", "post")
    ]

    assert args == [["migrate", "--phase", "pre"], ["migrate", "--phase", "post"]]


def test_a_rollback_folds_all_facts_again_as_the_projector(home: Path) -> None:
    trees = rendered(home)
    job = of_kind(trees, "Job")["joulie-rebuild"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    users = {each["name"]: each.get("value") for each in container["env"]}

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-rollback"
    assert container["command"][-1].startswith("joulie rebuild ")
    assert users["NATS_USER"] == Role.PROJECTOR


def test_namespaces_of_pods_are_chosen_by_a_label_where_the_server_can(home: Path) -> None:
    kind = "MutatingAdmissionPolicy"
    served = ["--api-versions", f"admissionregistration.k8s.io/v1beta1/{kind}"]

    def made(*options: str) -> tuple[list[str], list[str]]:
        trees = rendered(home, *options)
        return list(of_kind(trees, kind)), list(of_kind(trees, "MutatingWebhookConfiguration"))

    assert made() == ([], ["joulie-scheduler"])
    assert made(*served) == (["joulie-scheduler"], [])
    assert made(*served, "--set", "scheduler.admission=webhook") == ([], ["joulie-scheduler"])
    assert made(*served, "--set", "scheduler.admission=never") == ([], [])
    assert made(*served, "--set", "scheduler.mode=none") == ([], [])


def test_the_operator_may_evict_only_if_the_chart_says_so(home: Path) -> None:
    assert "joulie-evictions" not in of_kind(rendered(home), "ClusterRole")

    trees = rendered(home, "--set", "operator.evictions=true")
    [rule] = of_kind(trees, "ClusterRole")["joulie-evictions"]["rules"]
    [subject] = of_kind(trees, "ClusterRoleBinding")["joulie-evictions"]["subjects"]

    assert (rule["resources"], rule["verbs"]) == (["pods/eviction"], ["create"])
    assert (subject["name"], subject["namespace"]) == ("joulie-operator", NAMESPACE)


def test_the_operator_may_change_requests_only_if_the_chart_says_so(home: Path) -> None:
    assert "joulie-requests" not in of_kind(rendered(home), "ClusterRole")

    trees = rendered(home, "--set", "operator.requests=true", "--set", "scheduler.mode=none")
    rules = of_kind(trees, "ClusterRole")
    policies = of_kind(trees, "ValidatingAdmissionPolicy")

    assert rules["joulie-requests"]["rules"][0]["resources"] == ["pods/resize"]
    # The mark of a pod is written with its status, also where no pod is nominated.
    assert "pods/status" in [
        what for each in rules["joulie-operator"]["rules"] for what in each["resources"]
    ]
    assert {"joulie-requests", "joulie-nominations"} <= policies.keys()


def test_images_are_named_by_digest_where_one_is_given(home: Path) -> None:
    digest = f"sha256:{'0f' * 32}"
    text = json.dumps(rendered(home, "--set", f"image.digest={digest}"))

    images = {name for name in re.findall(r'"image": "([^"]+)"', text) if name.startswith("joulie")}
    assert images == {f"joulie@{digest}"}


EVERYTHING = {
    "one broker": (),
    "three brokers and PostgreSQL": values("values-ha"),
    "broker and database of others": values("values-external"),
    "database of CloudNativePG": values("values-cnpg"),
    "scheduler of the cluster": values("values-patch"),
    "admission by a webhook": ("--set", "scheduler.admission=webhook"),
    "limits of nodes": ("--set", "agent.caps=true"),
    "identities of agents": ("--set", "callout.enabled=true"),
    "heads in a bucket": with_bucket("headsTo.s3"),
    "an archive in a bucket": with_bucket("archive.bucket"),
    "a webhook": WEBHOOK,
    "a webhook with a secret address": SECRET_WEBHOOK,
}


@pytest.mark.parametrize("options", EVERYTHING.values(), ids=EVERYTHING)
def test_no_container_has_a_secret_in_its_environment_or_command(
    home: Path, options: Sequence[str]
) -> None:
    """Descriptions of pods and children show an environment, and no file."""
    trees = rendered(home, *options)
    secrets = {
        base64.b64decode(value).decode()
        for tree in of_kind(trees, "Secret").values()
        for value in tree.get("data", {}).values()
    }
    assert secrets or "values-external.yaml" in str(options)
    for name, spec in pod_specs(trees).items():
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            text = json.dumps(container)
            assert "secretKeyRef" not in text, name
            assert "secretRef" not in text, name
            assert not [each for each in secrets if each in text], name
            env = {each["name"]: each.get("value", "") for each in container.get("env", [])}
            mounts = {each["mountPath"] for each in container.get("volumeMounts", [])}
            named = [env[key] for key in ("NATS_PASSWORD_FILE", "DATABASE_URL_FILE") if key in env]
            assert {path.rpartition("/")[0] for path in named} <= mounts, name
    settings = json.dumps([tree for tree in trees if tree["kind"] == "ConfigMap"])
    assert not [each for each in secrets if each in settings]


def test_the_components_that_need_the_schema_wait_for_the_job_that_makes_it(
    trees: list[dict[str, Any]],
) -> None:
    waiting = {
        container["name"]
        for spec in pod_specs(trees).values()
        for container in spec["containers"]
        if "MIGRATION_TIMEOUT" in {each["name"] for each in container.get("env", [])}
    }

    assert {"projector", "operator", "console", "ledger"} <= waiting
    assert not {"agent", "nats", "kube-scheduler"} & waiting


WITNESS = "w1.example.com+8d3a6f6c+BKz@https://w1.example.com:9880"


def test_the_projector_knows_the_witnesses_and_where_heads_are_kept(home: Path) -> None:
    options = ("--set", f"witnesses={{{WITNESS},w2+1+K@https://w2}}")
    trees = rendered(home, *options, "--set", "headsTo.existingClaim=vault")
    spec = pod_specs(trees)["StatefulSet/joulie-projector"]
    [container] = spec["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    paths = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}

    assert env["WITNESSES"] == f"{WITNESS} w2+1+K@https://w2"
    assert env["HEADS_TO"] == f"file:{paths['heads']}/heads.jsonl"
    claims = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    }
    assert claims["heads"] == "vault"
    assert env["JOULIE_KEYS"] == paths["keys"]


@pytest.mark.parametrize("wrong", ["w1.example.com", "key@ftp://w1", "two keys@http://w1"])
def test_what_is_no_witness_is_refused(home: Path, wrong: str) -> None:
    code, said = helm(["template", "joulie", str(CHART), "--set", f"witnesses={{{wrong}}}"], home)

    assert code != 0
    assert "witnesses" in said
