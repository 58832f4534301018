"""Certificates for 127.0.0.1 and addresses that are named, for tests that speak TLS."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEAR = datetime.timedelta(days=365)


class Authority(NamedTuple):
    """Issues certificates for 127.0.0.1, of the server and of clients."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path

    @classmethod
    def made(cls, directory: Path, name: str) -> "Authority":
        key, subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
        made = cls(subject, key, directory / f"{name}.pem")
        made.file.write_bytes(made._signed(subject, key))
        return made

    def issue(self, directory: Path, name: str, *addresses: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        cert, secret = directory / f"{name}.crt", directory / f"{name}.key"
        cert.write_bytes(self._signed(_named(name), key, addresses))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert, secret

    def trusted(self) -> ssl.SSLContext:
        """For a client that believes it and has no certificate."""
        return ssl.create_default_context(cafile=str(self.file))

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        addresses: Sequence[str] | None = None,
    ) -> bytes:
        """A certificate of an authority, where no addresses are given."""
        now = datetime.datetime.now(datetime.UTC)
        named = ["127.0.0.1", *(addresses or ())]
        here = [x509.IPAddress(ipaddress.ip_address(address)) for address in named]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - YEAR)
            .not_valid_after(now + YEAR)
            .add_extension(x509.BasicConstraints(addresses is None, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(here), critical=False)
            .add_extension(_usage(is_ca=addresses is None), critical=True)  # for Python 3.13
            .add_extension(_ski(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
            .sign(self.key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    signs = {"key_cert_sign": is_ca, "crl_sign": is_ca, "digital_signature": True}
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        **signs, **dict.fromkeys(others, False), encipher_only=False, decipher_only=False
    )


def _ski(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
