"""Checks that an entry was in a Joulie log when a head of it was signed. Uses no code of Joulie's.

    joulie prove 4711 > proof.json
    python3 check_proof.py proof.json --key head.pub

The log is a hash chain: hash = sha256(hash of the entry before + body). The proof holds the body
of the entry and of all that follow it up to the head; their hashes must lead to the head's, and
the head must be signed by the key that you trust. Without --key, or without the package
`cryptography`, the signature is not checked, and that is said.
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


def signature(head: dict, key_file: str | None) -> str:
    """What can be said of it; nothing if it is another key's."""
    if not key_file:
        return "whose signature was NOT checked (no --key)"
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        return "whose signature was NOT checked (the package `cryptography` is missing)"
    with open(key_file, "rb") as file:
        key = load_pem_public_key(file.read())
    try:
        key.verify(base64.b64decode(head["signature"]), statement(head))
    except InvalidSignature:
        return ""
    return "signed by this key"


def main() -> str:
    parser = argparse.ArgumentParser()
    parser.add_argument("proof")
    parser.add_argument("--key", help="the log's public key (head.pub), from a source you trust")
    args = parser.parse_args()
    with open(args.proof) as file:
        proof = json.load(file)
    bodies, head = [base64.b64decode(body) for body in proof["bodies"]], proof["head"]
    end = chain_end(base64.b64decode(proof["prev"]), bodies)
    fits = proof["position"] + len(bodies) - 1 == head["pos"]
    if not fits or end != base64.b64decode(head["hash"]):
        return "NOT proved: the bodies do not lead to the head"
    if not (signed := signature(head, args.key)):
        return "NOT proved: the head is not signed by this key"
    return f"entry {proof['position']} stands before the head at {head['pos']}, {signed}"


if __name__ == "__main__":
    said = main()
    print(said)
    sys.exit(said.startswith("NOT"))
