"""Authentication of the client and of the broker: against a real nats-server."""

import asyncio
import datetime
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from joulie_bus.errors import SettingsError, Unreachable
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.runtime.settings import BusSettings, Source
from nats_trust import Key, Operator, serving

pytestmark = pytest.mark.anyio


async def greeted(address: Address) -> bool:
    """Did the broker let us in, and does it answer?"""
    connection = await Connection.open(address, "test", 5)
    try:
        await connection.flush()
        return connection.is_connected
    finally:
        await connection.close()


async def complaint(address: Address) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(Unreachable) as caught:
            await Connection.open(address, "test", 0.7)
    return str(caught.value)


# --- TLS ------------------------------------------------------------------------------------------


# Python 3.13 wants what RFC 5280 wants: key identifiers, and an authority that may sign.
CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Certified(NamedTuple):
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            self._draft(self._name, self._key)
            .add_extension(constraints, critical=True)
            .add_extension(CA_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str) -> Certified:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        certificate = (
            self._draft(subject, key)
            .add_extension(addresses, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        made = Certified(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        made.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def _draft(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def tls(authority: Authority, *, mutual: bool = False) -> str:
    server = authority.certify("server")
    wanted = f'ca_file: "{authority.file}", verify: true' if mutual else ""
    return f'tls {{ cert_file: "{server.cert}", key_file: "{server.key}", {wanted} }}'


async def test_a_broker_whose_certificate_our_authority_signed_is_trusted(
    tmp_path: Path, authority: Authority
) -> None:
    with serving(tmp_path, tls(authority)) as url:
        assert await greeted(Address(url=url, ca_file=str(authority.file)))


async def test_a_broker_that_another_authority_vouches_for_is_not_talked_to(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path, "stranger")
    with serving(tmp_path, tls(authority)) as url:
        told = await complaint(Address(url=url, ca_file=str(stranger.file)))

    assert "certificate verify failed" in told


async def test_a_broker_that_wants_our_certificate_gets_it(
    tmp_path: Path, authority: Authority
) -> None:
    cert, key = authority.certify("client")
    with serving(tmp_path, tls(authority, mutual=True)) as url:
        assert await greeted(
            Address(url=url, ca_file=str(authority.file), cert_file=str(cert), key_file=str(key))
        )


@pytest.mark.parametrize("signed_by", ["nobody", "a stranger"])
async def test_a_client_without_the_right_certificate_is_refused(
    signed_by: str, tmp_path: Path, authority: Authority
) -> None:
    address = Address(url="", ca_file=str(authority.file))
    if signed_by == "a stranger":
        cert, key = Authority(tmp_path, "stranger").certify("client")
        address = Address(
            url="", ca_file=str(authority.file), cert_file=str(cert), key_file=str(key)
        )
    with serving(tmp_path, tls(authority, mutual=True)) as url:
        told = await complaint(_at(url, address))

    assert f"answers at {url}: " in told


async def test_a_key_with_a_passphrase_prompts_for_nothing(
    tmp_path: Path, authority: Authority
) -> None:
    cert, key = authority.certify("client")
    locked = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter2"),
    )
    key.write_bytes(locked)
    address = Address(url="nats://127.0.0.1:1", cert_file=str(cert), key_file=str(key))

    assert "answers at nats://127.0.0.1:1: " in await complaint(address)


def _at(url: str, address: Address) -> Address:
    return Address(
        url=url, ca_file=address.ca_file, cert_file=address.cert_file, key_file=address.key_file
    )


# --- keys -----------------------------------------------------------------------------------------


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def one_user(key: Key) -> str:
    return f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}"


@pytest.mark.parametrize("ending", ["", "\n"], ids=["bare", "with a line's end"])
async def test_the_seed_is_accepted(ending: str, tmp_path: Path) -> None:
    key = Key.user()
    seed = written(tmp_path / "user.nk", key.seed + ending)
    with serving(tmp_path, one_user(key)) as url:
        assert await greeted(Address(url=url, nkey_file=seed))


async def test_another_seed_is_named_in_the_error(tmp_path: Path) -> None:
    stranger = Key.user()
    seed = written(tmp_path / "user.nk", stranger.seed)
    with serving(tmp_path, one_user(Key.user())) as url:
        told = await complaint(Address(url=url, nkey_file=seed))

    assert "Authorization Violation" in told
    assert stranger.seed not in told


# --- JWT ------------------------------------------------------------------------------------------


async def test_credentials_of_an_account_are_accepted(tmp_path: Path) -> None:
    operator = Operator()
    creds = written(tmp_path / "user.creds", operator.credentials(Key.user()))
    with serving(tmp_path, operator.config()) as url:
        assert await greeted(Address(url=url, creds_file=creds))


@pytest.mark.parametrize("wrong", ["another operator's", "expired", "another seed"])
async def test_invalid_credentials_are_named_in_the_error(wrong: str, tmp_path: Path) -> None:
    operator, user = Operator(), Key.user()
    made = {
        "another operator's": Operator().credentials(user),
        "expired": operator.credentials(user, exp=int(time.time()) - 10),
        "another seed": operator.credentials(user, Key.user().seed),
    }
    creds = written(tmp_path / "user.creds", made[wrong])
    with serving(tmp_path, operator.config()) as url:
        told = await complaint(Address(url=url, creds_file=creds))

    assert "authorization violation" in told.lower()


# --- an end in time -----------------------------------------------------------------------------


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[Address]:
    """A broker that refuses this address."""
    operator = Operator()
    creds = written(tmp_path / "user.creds", operator.credentials(Key.user(), Key.user().seed))
    with serving(tmp_path, operator.config()) as url:
        yield Address(url=url, creds_file=creds)


async def test_opening_a_connection_fails_in_time_whenever_its_patience_ends(
    refused: Address,
) -> None:
    patience = [0.05 + 0.003 * number for number in range(200)]
    async with asyncio.timeout(60):
        ends = await asyncio.gather(
            *(Connection.open(refused, "test", seconds) for seconds in patience),
            return_exceptions=True,
        )
    assert {type(end) for end in ends} == {Unreachable}


async def test_opening_a_connection_ends_whenever_it_is_cancelled(refused: Address) -> None:
    opening = [asyncio.create_task(Connection.open(refused, "test", 60)) for _ in range(200)]
    await asyncio.sleep(0.05)
    for one in opening:
        one.cancel()
        await asyncio.sleep(0.003)
    done, pending = await asyncio.wait(opening, timeout=60)
    assert not pending
    assert all(one.cancelled() for one in done)


# --- what the settings say ------------------------------------------------------------------------


def mistakes(**environ: str) -> str:
    source = Source.of(**environ)
    source.load(BusSettings)
    with pytest.raises(SettingsError) as caught:
        source.finish()
    return str(caught.value)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"NATS_USER": "joe", "NATS_CREDS_FILE": "{seed}"}, "NATS_USER and NATS_CREDS_FILE: give"),
        ({"NATS_USER": "joe", "NATS_CREDS_FILE": "{creds}"}, "CREDS_FILE: give only one"),
        ({"NATS_PASSWORD": "hunter2"}, "NATS_PASSWORD without NATS_USER"),
        ({"NATS_CERT_FILE": "{seed}"}, "NATS_CERT_FILE and NATS_KEY_FILE: one is of no use"),
        ({"NATS_KEY_FILE": "{seed}"}, "NATS_CERT_FILE and NATS_KEY_FILE: one is of no use"),
        ({"NATS_CA_FILE": "/nowhere/ca.pem"}, "NATS_CA_FILE='/nowhere/ca.pem'"),
        ({"NATS_CREDS_FILE": "/nowhere/user.nk"}, "No such file or directory"),
        ({"NATS_CREDS_FILE": "/"}, "Is a directory"),
        ({"NATS_INBOX": "_INBOX.>"}, "not a subject without wildcards"),
        ({"NATS_REPLICAS": "0"}, "a whole number from 1 to 5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_contradicting_or_missing_credentials_fail_before_the_start(
    environ: dict[str, str], told: str, tmp_path: Path
) -> None:
    seed = written(tmp_path / "user.nk", Key.user().seed)
    creds = written(tmp_path / "user.creds", Operator().credentials(Key.user()))
    meant = {name: value.format(seed=seed, creds=creds) for name, value in environ.items()}

    assert told in mistakes(**meant)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not an nkey seed"),
        ("hunter2", "not an nkey seed"),
        ("{account}", "not a user's"),
        ("{user}\n{user}", "not an nkey seed"),
        ("{mistyped}", "its checksum is wrong"),
    ],
)
def test_the_error_of_a_broken_seed_file_omits_its_content(
    content: str, told: str, tmp_path: Path
) -> None:
    user, account = Key.user().seed, Key.account().seed
    mistyped = user[:30] + ("A" if user[30] != "A" else "B") + user[31:]
    filled = content.format(user=user, account=account, mistyped=mistyped)
    message = mistakes(NATS_CREDS_FILE=written(tmp_path / "user.nk", filled))

    assert told in message
    assert not any(secret in message for secret in (user, account, mistyped, "hunter2"))


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        ("BEGIN NATS USER JWT", "BEGIN NATS USER JWT is missing"),
        ("BEGIN USER NKEY SEED", "BEGIN USER NKEY SEED is missing"),
        ("eyJ", "without a JWT"),
    ],
)
def test_the_error_of_a_broken_credentials_file_names_the_missing_part(
    cut: str, told: str, tmp_path: Path
) -> None:
    whole = Operator().credentials(Key.user())
    lines = [line for line in whole.splitlines(keepends=True) if cut not in line]

    assert told in mistakes(NATS_CREDS_FILE=written(tmp_path / "user.creds", "".join(lines)))


async def test_a_credentials_file_that_became_invalid_delays_no_connection(tmp_path: Path) -> None:
    creds = written(tmp_path / "user.creds", "nothing of the kind")

    assert "is missing" in await complaint(Address(url="nats://127.0.0.1:1", creds_file=creds))


@pytest.mark.parametrize("name", ["NATS_CREDS_FILE", "NATS_CA_FILE"])
def test_a_seed_in_place_of_a_path_is_never_shown(name: str) -> None:
    seed = Key.user().seed

    assert seed not in mistakes(**{name: seed})
