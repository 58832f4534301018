"""The key of a witness, and its cosignatures."""

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from joulie_bus.errors import KeyMismatch
from joulie_bus.runtime.own_files import read_own
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.chain.note import (
    WITNESS_KEY,
    LogCheckpoint,
    Signature,
    VerifierKey,
    cosignature,
    cosigned_text,
    require_name,
)
from joulie_projections.chain.signed import raw_of

KEY, NAME = "witness.key", "witness.name"


class Witness(NamedTuple):
    private: Ed25519PrivateKey
    key: VerifierKey


def witness_of(directory: Path, name: str = "") -> Witness:
    """The witness of a directory; creates its key if there is none. Its name stays the first.

    Raises NotANote for a name that no key can have."""
    file, named = directory / KEY, directory / NAME
    if not named.exists():
        require_name(name)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        made = Ed25519PrivateKey.generate()
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        keep_private(file, pem.decode())
    keep_private(named, name or f"joulie-witness/{directory.name}")
    loaded = load_pem_private_key(read_own(file), password=None)
    if not isinstance(loaded, Ed25519PrivateKey):
        raise KeyMismatch(str(file), "ed25519", type(loaded).__name__)
    key = VerifierKey(read_own(named).decode(), WITNESS_KEY, raw_of(loaded.public_key()))
    return Witness(loaded, VerifierKey.parse(str(key)))


def cosigned_by(witness: Witness, checkpoint: LogCheckpoint, time: int) -> Signature:
    signed = witness.private.sign(cosigned_text(checkpoint.text, time))
    return cosignature(witness.key, time, signed)
