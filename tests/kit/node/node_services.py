"""A database and a broker of your own on the node, as real programs beside the pods."""

import contextlib
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from authority import Authority
from broker_installations import password, with_passwords
from joulie_bus.streams.roles import Role
from nats_trust import serving
from node_cluster import Cluster
from node_drill import NAMESPACE, say
from node_network import ADDRESS
from projections_kit import Postgres

DATABASE = "joulie"
PASSWORD = "secret"
# The roles of the user of each right, as docs/security.md lists them; the owner migrates.
ROLES = {
    "writer": "joulie_writer",
    "reader": "joulie_reader",
    "ledger": "joulie_ledger, joulie_reader",
}
MIGRATED_S = 600


@contextlib.contextmanager
def owned_database() -> Generator[Postgres, None, None]:
    """PostgreSQL at the address of the node, with an empty database and its owner."""
    with Postgres.running(durable=True, address=ADDRESS) as server:
        owner = f"CREATE ROLE {DATABASE} LOGIN CREATEROLE PASSWORD '{PASSWORD}'"
        server.execute("postgres", owner)
        server.execute("postgres", f"CREATE DATABASE {DATABASE} OWNER {DATABASE}")
        yield server


def _user(right: str) -> str:
    return DATABASE if right == "migrate" else f"pod_{right}"


async def secret_of_the_database(cluster: Cluster) -> None:
    """The URL of each right, with a user of its own."""
    urls = (
        f"--from-literal=url-{right}=postgresql://{_user(right)}:{PASSWORD}@{ADDRESS}:5432/{DATABASE}"
        for right in ("migrate", *ROLES)
    )
    words = ["create", "secret", "generic", "joulie-database", "-n", NAMESPACE]
    await cluster.told(*words, *urls)


async def users_of_the_database(cluster: Cluster, server: Postgres) -> None:
    """Their roles exist once the Job of the installation has migrated."""
    wait = ["wait", "job/joulie-migrate", "-n", NAMESPACE, "--for=condition=complete"]
    await cluster.told(*wait, f"--timeout={MIGRATED_S}s")
    for right, roles in ROLES.items():
        made = f"CREATE ROLE {_user(right)} LOGIN PASSWORD '{PASSWORD}' IN ROLE {roles}"
        server.execute(DATABASE, made)
    say("the database has a user for each right")


@contextlib.contextmanager
def broker_of_yours(directory: Path) -> Generator[str, None, None]:
    """A nats-server with TLS and the accounts of `joulie grant all`; its URL for pods."""
    directory.mkdir()
    cert, key = Authority.made(directory, "nats-ca").issue(directory, "nats", ADDRESS)
    command = [sys.executable, "-m", "joulie_cli.main", "grant", "all"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    users, limits = with_passwords(printed)
    store = f'jetstream {{ store_dir: "{directory}/store", max_file_store: 32GB, {limits} }}\n'
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    with serving(directory, tls + store + users, ADDRESS) as url:
        yield url.replace("nats://", "tls://")


async def secrets_of_the_broker(cluster: Cluster, directory: Path) -> None:
    """The password of each role, and the authority."""
    literals = (f"--from-literal=NATS_{role.upper()}={password(role)}" for role in Role)
    words = ["create", "secret", "generic", "-n", NAMESPACE]
    await cluster.told(*words, "joulie-nats-users", *literals)
    await cluster.told(*words, "nats-ca", f"--from-file=ca.crt={directory / 'nats-ca.pem'}")
