"""Writes the public key of a signing key, for a pod that checks signatures and must not sign.

python -m joulie_projections.decision_log.public_half head.key head.pub
"""

import sys
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)


def main(key: str, public: str) -> None:
    """The files of a Secret are links, which `Signer.of` does not follow."""
    private = load_pem_private_key(Path(key).read_bytes(), password=None)
    half = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    Path(public).write_bytes(half)


if __name__ == "__main__":
    main(*sys.argv[1:])
