"""Checks that an entry was in a Joulie log when a head of it was signed. Uses no code of Joulie's.

    joulie prove 4711 > proof.json
    python3 check_proof.py proof.json --key head.pub

The log is a hash chain: hash = sha256(hash of the entry before + body). The proof holds the body
of the entry and of all that follow it up to the head; their hashes must lead to the head's, and
the head must be signed by the key that you trust, or by one that a handover leads to from there: a
handover is signed by the old key and the new one, and says at which entry the one ended and the
other began. --key takes one public key, or the log's ring of keys. Without --key, or without the
package `cryptography`, the signature is not checked, and that is said.
"""

import argparse
import base64
import hashlib
import json
import sys


def chain_end(prev: bytes, bodies: list[bytes]) -> bytes:
    for body in bodies:
        prev = hashlib.sha256(prev + body).digest()
    return prev


def statement(head: dict) -> bytes:
    """What was signed."""
    entry_hash = base64.b64decode(head["hash"]).hex()
    return f"joulie-head/1\n{head['pos']}\n{entry_hash}\n{head['signed_at']}\n".encode()


def handover_statement(said: dict) -> bytes:
    """What both keys signed: the old one signs heads up to this entry, the new one behind it."""
    entry_hash, old, new = (base64.b64decode(said[name]).hex() for name in ("hash", "old", "new"))
    text = f"{said['pos']}\n{entry_hash}\n{said['signed_at']}\n{old}\n{new}\n"
    return f"joulie-handover/1\n{text}".encode()


def key_id(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()[:9]).decode()


def trusted(key_file: str) -> tuple[bytes, list[dict], list[dict]]:
    """A key that you trust; from a ring, also how it was handed over, and keys that are retired."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )

    with open(key_file, "rb") as file:
        content = file.read()
    if not content.lstrip().startswith(b"{"):
        raw = load_pem_public_key(content).public_bytes(Encoding.Raw, PublicFormat.Raw)
        return raw, [], []
    ring = json.loads(content)
    return base64.b64decode(ring["first"]), ring["handovers"], ring["retirements"]


def ranges(known: bytes, handovers: list[dict], verify) -> dict[bytes, tuple[float, float]]:
    """Which heads each key may sign: behind which entry, and up to which one.

    From the key that you trust on, and back: every handover is signed by both its keys.
    """
    signs = {known: (0, float("inf"))}
    for said in [*handovers, *handovers[::-1]]:
        old, new = base64.b64decode(said["old"]), base64.b64decode(said["new"])
        for key, name in ((old, "old_signature"), (new, "new_signature")):
            verify(key, base64.b64decode(said[name]), handover_statement(said))
        if old in signs and new not in signs:
            signs[new] = (said["pos"], signs[old][1])
            signs[old] = (signs[old][0], said["pos"])
        elif new in signs and old not in signs:
            signs[old] = (0, said["pos"])
            signs[new] = (said["pos"], signs[new][1])
    return signs


def signature(head: dict, handovers: list[dict], key_file: str | None) -> str:
    """What can be said of it; nothing if no key signed it that it may be signed by."""
    if not key_file:
        return "whose signature was NOT checked (no --key)"
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return "whose signature was NOT checked (the package `cryptography` is missing)"

    def verify(key: bytes, signed: bytes, text: bytes) -> None:
        Ed25519PublicKey.from_public_bytes(key).verify(signed, text)

    known, own, retired = trusted(key_file)
    since = {said["key_id"]: said["since"] for said in sorted(retired, key=lambda r: -r["since"])}
    try:
        signs = ranges(known, own or handovers, verify)
        key = next(key for key in signs if key_id(key) == head["key_id"])
        verify(key, base64.b64decode(head["signature"]), statement(head))
    except (InvalidSignature, StopIteration, ValueError):
        return ""
    after, until = signs[key]
    if not after < head["pos"] <= min(until, since.get(key_id(key), until)):
        return ""
    return "signed by this key" if key == known else "signed by a key that this one leads to"


def main() -> str:
    parser = argparse.ArgumentParser()
    parser.add_argument("proof")
    parser.add_argument(
        "--key", help="the log's public key or ring (head.pub), from a source you trust"
    )
    args = parser.parse_args()
    with open(args.proof) as file:
        proof = json.load(file)
    bodies, head = [base64.b64decode(body) for body in proof["bodies"]], proof["head"]
    end = chain_end(base64.b64decode(proof["prev"]), bodies)
    fits = proof["position"] + len(bodies) - 1 == head["pos"]
    if not fits or end != base64.b64decode(head["hash"]):
        return "NOT proved: the bodies do not lead to the head"
    if not (signed := signature(head, proof.get("handovers", []), args.key)):
        return "NOT proved: the head is not signed by this key"
    return f"entry {proof['position']} stands before the head at {head['pos']}, {signed}"


if __name__ == "__main__":
    said = main()
    print(said)
    sys.exit(said.startswith("NOT"))
