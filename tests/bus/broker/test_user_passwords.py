"""nats-server knows the passwords that lie in files, whatever characters they hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from joulie_bus.broker.callout import Issuer
from joulie_bus.jetstream.connection import Address, Connection
from nats_trust import serving
from one_broker import anyio_backend

__all__ = ["anyio_backend"]  # a fixture
pytestmark = pytest.mark.anyio

PASSWORDS = {
    "DIGITS": "1234567890",
    "SIZE": "32GB",
    "TRUTH": "yes",
    "QUOTES": "a'b\"c\\d\\n",
    "SYNTAX": "$NATS_DIGITS # { } ; , = include",
    "BCRYPT_LIKE": "$2b$nothing",
    "WORDS": "Zoë's Straße",
}


def write(place: Path, *issuer: str) -> subprocess.CompletedProcess[str]:
    files = [str(place), str(place / "users.conf"), *issuer]
    words = ["-m", "joulie_bus.broker.user_passwords", *files]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


async def test_a_user_connects_with_the_password_in_its_file(tmp_path: Path) -> None:
    for name, password in PASSWORDS.items():
        (tmp_path / f"NATS_{name}").write_text(f"{password}\n")
    done = write(tmp_path)
    users = ",".join(f"{{user: {name}, password: $NATS_{name}}}" for name in PASSWORDS)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "users.conf").stat().st_mode & 0o077 == 0
    with serving(tmp_path, f"include users.conf\nauthorization {{ users: [{users}] }}") as url:
        for name, password in PASSWORDS.items():
            connection = await Connection.open(Address(url=url, user=name, password=password), name)
            await connection.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "NATS_ADMIN: it is empty"),
        (b"two\nlines", "NATS_ADMIN: a password of printable characters is expected"),
        (b"\xff\xfe", "NATS_ADMIN: it is no text"),
    ],
)
def test_what_is_no_password_is_named_and_nothing_is_written(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "NATS_ADMIN").write_bytes(content)
    done = write(tmp_path)

    assert done.returncode == 1
    assert why in done.stderr
    assert not (tmp_path / "users.conf").exists()


def test_a_directory_without_passwords_is_named(tmp_path: Path) -> None:
    assert "holds no file named NATS_ROLE" in write(tmp_path).stderr


def test_the_password_of_the_callout_is_written_only_with_its_issuer(tmp_path: Path) -> None:
    """nats-server does not start with a variable that nothing uses."""
    issuer = Issuer.new()
    for name in ("NATS_ADMIN", "NATS_CALLOUT"):
        (tmp_path / name).write_text("secret")
    key = tmp_path / "issuer.key"
    key.write_text(issuer.seed)

    assert write(tmp_path).returncode == 0
    without = (tmp_path / "users.conf").read_text()
    assert write(tmp_path, str(key)).returncode == 0
    using = (tmp_path / "users.conf").read_text()

    assert without == 'NATS_ADMIN: "secret"\n'
    assert using == f'{without}NATS_CALLOUT: "secret"\nNATS_ISSUER: "{issuer.public}"\n'
    assert issuer.seed not in using


def test_what_is_no_key_of_an_issuer_is_named(tmp_path: Path) -> None:
    (tmp_path / "NATS_ADMIN").write_text("secret")
    (tmp_path / "issuer.key").write_text("SUA")
    done = write(tmp_path, str(tmp_path / "issuer.key"))

    assert done.returncode == 1
    assert "issuer.key: an nkey seed" in done.stderr
    assert not (tmp_path / "users.conf").exists()
