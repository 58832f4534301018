"""Checks that an entry was in a Joulie log when a head of it was signed. Uses no code of Joulie's.

    joulie prove 4711 > proof.json
    python3 check_proof.py proof.json --key head.pub

The log is a hash chain: hash = sha256(hash of the entry before + body). The proof holds the body
of the entry and of all that follow it up to the head; their hashes must lead to the head's, and
the head must be signed by the key that you trust, or by one that a handover leads to from there: a
handover is signed by the old key and the new one, and says at which entry the one ended and the
other began. --key takes one public key, or the log's ring of keys. Without --key, or without the
package `cryptography`, the signature is not checked: the output states it, and the exit code is 2.
"""

import argparse
import base64
import hashlib
import json
import struct
import sys

NOT_CHECKED = "whose signature was NOT checked"


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
        return f"{NOT_CHECKED} (no --key)"
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return f"{NOT_CHECKED} (the package `cryptography` is missing)"

    def verify(key: bytes, signed: bytes, text: bytes) -> None:
        Ed25519PublicKey.from_public_bytes(key).verify(signed, text)

    known, own, retired = trusted(key_file)
    since = {said["key_id"]: said["since"] for said in sorted(retired, key=lambda r: -r["since"])}
    try:
        signs = ranges(known, own or handovers, verify)
        key = next(key for key in signs if key_id(key) == head["key_id"])
        verify(key, base64.b64decode(head["signature"]), statement(head))
    except (InvalidSignature, StopIteration, ValueError, LookupError, TypeError):
        return ""
    after, until = signs[key]
    if not after < head["pos"] <= min(until, since.get(key_id(key), until)):
        return ""
    return "signed by this key" if key == known else "signed by a key that this one leads to"


def unpacked(data: bytes, at: int = 0) -> tuple[object, int]:
    """The value of MessagePack at an offset, and the offset after it."""
    kind, at = data[at], at + 1
    if kind < 0x80 or kind >= 0xE0:
        return kind - (kind >= 0xE0) * 256, at
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if kind in (0xCA, 0xCB):
        size = 4 if kind == 0xCA else 8
        return struct.unpack(">f" if size == 4 else ">d", data[at : at + size])[0], at + size
    if 0xCC <= kind <= 0xD3:
        size = 1 << (kind & 3)
        return int.from_bytes(data[at : at + size], "big", signed=kind >= 0xD0), at + size
    return sized(data, kind, at)


def sized(data: bytes, kind: int, at: int) -> tuple[object, int]:
    """A text, bytes, a list or a map, whose size is in its first byte or after it."""
    if kind < 0xC0:
        what = "map" if kind < 0x90 else "list" if kind < 0xA0 else "text"
        size = kind & (0x1F if what == "text" else 0x0F)
    else:
        what, width = SIZED[kind]
        size, at = int.from_bytes(data[at : at + width], "big"), at + width
    if what in ("text", "bytes"):
        part = data[at : at + size]
        return part.decode() if what == "text" else part, at + size
    items = []
    for _ in range(size * 2 if what == "map" else size):
        item, at = unpacked(data, at)
        items.append(item)
    return dict(zip(items[::2], items[1::2], strict=True)) if what == "map" else items, at


# The first byte: what follows, and how many bytes its size has.
SIZED = {
    **{0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4)},
    **{0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4)},
    **{0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)},
}


def content(body: bytes) -> str:
    """The pod, the node and the score in an entry; empty if it is about something else."""
    try:
        envelope, _ = unpacked(body.partition(b"\n")[2] if body.startswith(b"@") else body)
        told = envelope["data"]
        pod = told.get("pod", told)
        best = told.get("top") or [told]
        node, score = best[0].get("node", ""), best[0].get("score")
        name = f"pod {pod['namespace']}/{pod['name']}"
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError, struct.error):
        return ""
    at = f", node {node}" if node else ""
    return f" ({name}{at}{'' if score is None else f', score {score:.1f}'})"


def checked(file_name: str, key_file: str | None) -> str:
    with open(file_name) as file:
        proof = json.load(file)
    bodies, head = [base64.b64decode(body) for body in proof["bodies"]], proof["head"]
    end = chain_end(base64.b64decode(proof["prev"]), bodies)
    fits = proof["position"] + len(bodies) - 1 == head["pos"]
    if not bodies or not fits or end != base64.b64decode(head["hash"]):
        return "NOT proved: the bodies do not lead to the head"
    if not (signed := signature(head, proof.get("handovers", []), key_file)):
        return "NOT proved: the head is not signed by this key"
    entry = f"entry {proof['position']}{content(bodies[0])}"
    return f"{entry} stands before the head at {head['pos']}, {signed}"


def main() -> int:
    """0: proved; 1: not proved; 2: the signature, or the file, was not checked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("proof")
    parser.add_argument(
        "--key", help="the log's public key or ring (head.pub), from a source you trust"
    )
    args = parser.parse_args()
    try:
        said = checked(args.proof, args.key)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        files = args.proof + (f" or {args.key}" if args.key else "")
        print(f"NOT checked: {files} cannot be read as a proof and its key ({what})")
        return 2
    print(said)
    return 1 if said.startswith("NOT") else 2 if NOT_CHECKED in said else 0


if __name__ == "__main__":
    sys.exit(main())
