"""A server with the API of S3, which checks signatures, rights and conditions (moto, in .s3).

S3_SERVER may name the directory of its environment.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_bus.s3.bucket import Bucket, BucketSettings, bucket_place

ROOT = Path(__file__).parents[3]
USERS = Path(__file__).with_name("s3_users.py")
BUCKET = "kept-heads"
POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:GetObject", "s3:ListBucket"],
            "Resource": ["arn:aws:s3:::kept-heads", "arn:aws:s3:::kept-heads/*"],
        }
    ],
}
EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}
SET_UP = 7  # calls without a check of their signature: a bucket and two users


class S3Server(NamedTuple):
    url: str  # of the bucket
    settings: BucketSettings  # of a user with the rights that the documentation names
    owner: BucketSettings

    def bucket(self, prefix: str = "cluster-a") -> Bucket:
        return Bucket(bucket_place(f"{self.url}/{prefix}"), self.settings)

    def remove(self, bucket: Bucket, name: str) -> None:
        """As the administrator of the bucket can."""
        status, answer = Bucket(bucket.place, self.owner)._asked("DELETE", name)
        assert status == 204, answer

    def environ(self, directory: Path) -> dict[str, str]:
        """The settings of a process, with the credentials in files."""
        for name in ("access_key", "secret_key"):
            (directory / name).write_text(f"{getattr(self.settings, name)}\n")
        return {
            "S3_ACCESS_KEY_FILE": str(directory / "access_key"),
            "S3_SECRET_KEY_FILE": str(directory / "secret_key"),
            "S3_CA_FILE": self.settings.ca_file,
        }


@contextlib.contextmanager
def serving_s3(directory: Path, tls: Sequence[Path] = ()) -> Generator[S3Server]:
    """With `tls`, the certificate, the key and the authority, the server speaks TLS."""
    programs = Path(os.environ.get("S3_SERVER") or ROOT / ".s3") / "bin"
    if not (programs / "moto_server").exists():
        pytest.skip("no server with the API of S3 is here; `make .s3/.ready` installs one")
    port, log = free_port(), directory / "s3.log"
    words = ["-c", str(tls[0]), "-k", str(tls[1])] if tls else []
    command = [str(programs / "moto_server"), "-H", "127.0.0.1", "-p", str(port), *words]
    environ = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(SET_UP)}
    with log.open("wb") as file, subprocess.Popen(command, env=environ, stderr=file) as server:
        try:
            _wait_for(server, log)
            endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            users = _users(programs, endpoint, BucketSettings(ca_file=str(tls[2]) if tls else ""))
            yield S3Server(f"{endpoint}/{BUCKET}", users["projector"], users["owner"])
        finally:
            server.kill()


def _wait_for(server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while "Running on" not in log.read_text():
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def _users(programs: Path, endpoint: str, settings: BucketSettings) -> dict[str, BucketSettings]:
    policies = {"projector": POLICY, "owner": EVERYTHING}
    named = [f"{name}={json.dumps(policy)}" for name, policy in policies.items()]
    command = [str(programs / "python"), str(USERS), endpoint, BUCKET, settings.ca_file, *named]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {
        name: replace(settings, access_key=access_key, secret_key=secret_key)
        for name, (access_key, secret_key) in json.loads(done.stdout).items()
    }
