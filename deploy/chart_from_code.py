"""Writes the parts of the chart that the code knows. A test compares the files with the code.

    .venv/bin/python deploy/chart_from_code.py

Chart.yaml             the version of the package, in pyproject.toml
files/nats.conf        the configuration of the embedded broker, for a pod
files/callout.conf     for the broker that asks `joulie callout`: an account, and a line after them
files/parts.json       the broker role and the inbox of each component
files/rbac-requests.yaml  ../rbac-requests.yaml, which users apply and may download by itself
values.schema.json     the names of all settings that `settings` may hold, removed ones among them,
                       which components name in their logs
../kube-scheduler*.yaml  the configurations of kube-scheduler, which the chart renders
"""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from joulie_bus.broker import callout, embedded
from joulie_bus.runtime.secret_files import SUFFIX
from joulie_bus.runtime.settings import BusSettings, declared
from joulie_bus.streams.batch_limits import BATCH_LIMITS
from joulie_bus.streams.roles import Role, inbox
from joulie_cli.admin.grant import every_account, with_variables
from joulie_cli.command_line.commands import commands
from joulie_extender.protocol import scheduler_config
from joulie_operator.planning import policy_numbers
from joulie_projections.component.wiring import PlaceSettings

CHART = Path(__file__).parent / "chart"
SERVICE_URL = "https://joulie-extender.joulie-system.svc.cluster.local:9876"
REQUESTS = "rbac-requests.yaml"
PARTS = {
    "projector": Role.PROJECTOR,
    "operator": Role.OPERATOR,
    "extender": Role.EXTENDER,
    "console": Role.CONSOLE,
    "ledger": Role.AUDITOR,
    "archive": Role.ARCHIVIST,
    "agent": Role.AGENT,
    "migrate": Role.ADMIN,
}
USERS = {**PARTS, "test": Role.AUDITOR}  # of the broker; the test is `joulie doctor`
# What the chart sets itself, from values of its own.
BY_THE_CHART = frozenset(
    {
        "ARCHIVE_BUCKET",
        "ARCHIVE_DIR",
        "CONSOLE_ADDR",
        "CONSOLE_TOKEN_FILE",
        "DATABASE_URL",
        "DATABASE_URL_FILE",
        "EXTENDER_ADDR",
        "EXTENDER_BINDS",
        "EXTENDER_HOSTS",
        "EXTENDER_REPLICA",
        "EXTENDER_SPOOL",
        "EXTENDER_TLS_CERT_FILE",
        "EXTENDER_TLS_CLIENT_CA_FILE",
        "EXTENDER_TLS_CLIENT_NAMES",
        "EXTENDER_TLS_KEY_FILE",
        "HEADS_TO",
        "JOULIE_CLUSTER",
        "JOULIE_DATA",
        "JOULIE_KEYS",
        "KUBECONFIG",
        "METRICS_ADDR",
        "MIGRATION_TIMEOUT",
        "NATS_CA_FILE",
        "NATS_CREDS_FILE",
        "NATS_INBOX",
        "NATS_PASSWORD_FILE",
        "NATS_REPLICAS",
        "NATS_URL",
        "NATS_USER",
        "NOTIFY_PLAIN",
        "NOTIFY_TOKEN_FILE",
        "NOTIFY_URL",
        "NOTIFY_URL_FILE",
        "POD_NAMESPACE",
        "PRESET",
        "S3_ACCESS_KEY_FILE",
        "S3_CA_FILE",
        "S3_REGION",
        "S3_SECRET_KEY_FILE",
        "WITNESSES",
    }
)
# They have no meaning in a pod of this chart.
NOT_IN_PODS = frozenset({"NATS_CERT_FILE", "NATS_KEY_FILE", "NATS_SERVER_BIN"})
NOT_IN_PODS |= {
    "NATS_PASSWORD",
    "NOTIFY_TOKEN",
    "S3_ACCESS_KEY",
    "S3_SECRET_KEY",
}  # secrets are files there
USERS_FILE = '"../joulie/broker/users.conf"'
_CLUSTER_AND_TLS = """\
tls {
  cert_file: /etc/joulie/nats/tls.crt
  key_file: /etc/joulie/nats/tls.key
  ca_file: /etc/joulie/nats/ca.crt
}
http: "127.0.0.1:8222"  # without a password, so that only probes in the pod reach it
"""


def setting_names() -> set[str]:
    """The settings of all components that the chart runs."""
    parts = [commands()[part].load().program().settings for part in PARTS]
    rows = declared(BusSettings, PlaceSettings, *(each for part in parts for each in part))
    files = {row.name + SUFFIX for row in rows if row.secret}
    return {row.name for row in rows} | files | _replaced(parts)


def _replaced(parts: Sequence[Sequence[type]]) -> set[str]:
    return {name for part in parts for each in part for name in getattr(each, "REPLACED", {})}


def nats_conf() -> str:
    """The name is a variable of the environment of nats-server; the passwords are variables of a
    file that an init container writes. nats-server finds a file beside that of its configuration.
    """
    text = embedded._CONFIG.format(
        name="$POD_NAME",
        port=4222,
        max_payload=embedded.MAX_PAYLOAD,
        store="/data",
        limits=BATCH_LIMITS,
        accounts=every_account(),
        callout="",
        cluster=_CLUSTER_AND_TLS,
    )
    _, text = text.split("\n", 1)  # the comment of the embedded broker
    # A NetworkPolicy names the clients.
    return f"include {USERS_FILE}\n" + text.replace("127.0.0.1:4222", "0.0.0.0:4222")


def callout_conf() -> str:
    passwords = {user: f"$NATS_{user.upper()}" for user in callout.SERVICES}
    account = json.dumps(callout.account(passwords), separators=(",", ":"))
    asking = callout.configured("$NATS_ISSUER", Role)
    return with_variables(f"{callout.ACCOUNT}: {account}\n{asking}\n")


def parts() -> str:
    rows = {part: {"role": str(role), "inbox": inbox(role)} for part, role in USERS.items()}
    for user in callout.SERVICES:
        rows[user] = {"role": user, "inbox": f"_INBOX_{user}"}
    return json.dumps(rows, indent=2) + "\n"


def chart(now: str) -> str:
    """The metadata with the version of the package. The image has the same version as its tag."""
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]
    return re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {project['version']}", now)


def schema(now: str) -> str:
    """The schema with the current names of the settings."""
    tree = json.loads(now)
    names = sorted(setting_names() - BY_THE_CHART - NOT_IN_PODS)
    settings = tree["properties"]["settings"]
    settings["propertyNames"]["enum"] = names
    numbers = {"anyOf": [settings["additionalProperties"], policy_numbers.json_schema()]}
    settings["properties"] = {"POLICY_NUMBERS": numbers}
    return json.dumps(tree, indent=2) + "\n"


def scheduler_files() -> dict[Path, str]:
    """One per configuration, for the Service that the chart makes with scheduler.mode=patch."""
    found = {}
    for name in scheduler_config.CONFIGURATIONS:
        options = scheduler_config.Options(SERVICE_URL, name, files=scheduler_config.ClientFiles())
        suffix = "" if name == "energy" else f"-{name}"
        text = scheduler_config.text_of(scheduler_config.configuration(options))
        found[CHART.parent / f"kube-scheduler{suffix}.yaml"] = text
    return found


def files() -> dict[Path, str]:
    """What each file holds if it is up to date."""
    metadata, schema_file = CHART / "Chart.yaml", CHART / "values.schema.json"
    return {
        metadata: chart(metadata.read_text()),
        CHART / "files/nats.conf": nats_conf(),
        CHART / "files/callout.conf": callout_conf(),
        CHART / "files/parts.json": parts(),
        CHART / "files" / REQUESTS: (CHART.parent / REQUESTS).read_text(),
        schema_file: schema(schema_file.read_text()),
        **scheduler_files(),
    }


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
