"""Checks that an entry was in a Joulie log when a checkpoint of it was signed. Uses no Joulie code.

    joulie prove 4711 > entry.tlog-proof
    python3 check_proof.py entry.tlog-proof --key head.pub --witness w1.example+8d3a6f6c+BKz...

The proof has the form of C2SP's tlog-proof: `extra` holds the hash of the entry before and the body
of the entry, whose sha256 is the leaf of a Merkle tree (RFC 6962); the path of hashes must lead to
the root in the checkpoint, and the checkpoint must be signed by a key of the log that you trust.
--key takes the log's public key or its ring of keys; each --witness demands a cosignature of that
witness, or with --quorum N, of N of them. Without --key, or without the package `cryptography`, the
signature is not checked: the output states it, and the exit code is 2.
"""

import argparse
import base64
import hashlib
import json
import struct
import sys
from itertools import pairwise

FORMAT = "c2sp.org/tlog-proof@v1"
NOT_CHECKED = "whose signature was NOT checked"


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def is_included(leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    found, at, last = sha(b"\0" + leaf), index, size - 1
    if not 0 <= index < size:
        return False
    for node in path:
        if last == 0:
            return False
        if at % 2 or at == last:
            found = sha(b"\1" + node + found)
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            found = sha(b"\1" + found + node)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def signatures(note: str) -> list[tuple[str, bytes]]:
    """The name, and the id of the key with the signature, of each line after the text."""
    lines = [line.removeprefix("\u2014 ").split(" ") for line in note.rstrip("\n").split("\n")]
    return [(name, base64.b64decode(content)) for name, content in lines]


def ranges(key_file: str) -> list[tuple[bytes, int, float]]:
    """Keys of the log, and which entries they may sign: behind which one, and up to which one."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )

    with open(key_file, "rb") as file:
        content = file.read()
    if not content.lstrip().startswith(b"{"):
        raw = load_pem_public_key(content).public_bytes(Encoding.Raw, PublicFormat.Raw)
        return [(raw, 0, float("inf"))]
    ring = json.loads(content)
    keys = [base64.b64decode(ring["first"])]
    keys += [base64.b64decode(each["new"]) for each in ring["handovers"]]
    ends = [0, *(each["pos"] for each in ring["handovers"]), float("inf")]
    since = {each["key_id"]: each["since"] for each in ring["retirements"]}
    ids = [base64.urlsafe_b64encode(sha(key)[:9]).decode() for key in keys]
    return [
        (key, after, min(until, since.get(name, until)))
        for key, name, (after, until) in zip(keys, ids, pairwise(ends), strict=True)
    ]


def signed(text: str, last: int, lines: list[tuple[str, bytes]], key_file: str | None) -> str:
    """What can be said of the log's signature; nothing if none of its keys made one."""
    if not key_file:
        return f"{NOT_CHECKED} (no --key)"
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return f"{NOT_CHECKED} (the package `cryptography` is missing)"
    for raw, after, until in ranges(key_file):
        origin = text.partition("\n")[0]
        key_hash = sha(origin.encode() + b"\n\1" + raw)[:4]
        for name, content in lines:
            if (name, content[:4]) != (origin, key_hash) or not after < last <= until:
                continue
            try:
                Ed25519PublicKey.from_public_bytes(raw).verify(content[4:], text.encode())
            except InvalidSignature:
                continue
            return "signed by this key"
    return ""


def witnessed(text: str, lines: list[tuple[str, bytes]], witnesses: list[str]) -> int:
    """How many of the witnesses cosigned: the signature is about a time and the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    valid = set()
    for name, key_hash, key in (witness.split("+", 2) for witness in witnesses):
        raw = base64.b64decode(key)[1:]
        for found, content in lines:
            if (found, content[:4].hex()) != (name, key_hash):
                continue
            time = int.from_bytes(content[4:12], "big")
            cosigned = f"cosignature/v1\ntime {time}\n{text}".encode()
            try:
                Ed25519PublicKey.from_public_bytes(raw).verify(content[12:], cosigned)
                valid.add(raw)
            except InvalidSignature:
                continue
    return len(valid)


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


def checked(args: argparse.Namespace) -> str:
    with open(args.proof, encoding="utf-8") as file:
        head, text, lines = file.read().split("\n\n")
    form, extra, index, *path = head.split("\n")
    if form != FORMAT:
        raise ValueError(f"its first line is not {FORMAT}")
    origin, size, root, *_ = text.split("\n")
    data, at = base64.b64decode(extra.split(" ")[1]), int(index.split(" ")[1])
    nodes = [base64.b64decode(node) for node in path]
    if not is_included(sha(data), at, int(size), nodes, base64.b64decode(root)):
        return "NOT proved: the path does not lead from the entry to the root of the checkpoint"
    text, found = f"{text}\n", signatures(lines)
    if not (by := signed(text, int(size), found, args.key)):
        return "NOT proved: the checkpoint is not signed by this key"
    entry = f"entry {at + 1}{content(data[32:])}"
    proved = f"{entry} is one of the {size} of {origin}, {by}"
    if not args.witness:
        return proved
    quorum = args.quorum or len(args.witness)
    count = witnessed(text, found, args.witness)
    if count < quorum:
        return f"NOT proved: {count} of {len(args.witness)} witnesses cosigned, not {quorum}"
    return f"{proved}, and cosigned by {count} of {len(args.witness)} witnesses"


def main() -> int:
    """0: proved; 1: not proved; 2: the signature, or the file, was not checked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("proof")
    parser.add_argument(
        "--key", help="the log's public key or ring (head.pub), from a source you trust"
    )
    parser.add_argument("--witness", action="append", default=[], help="key of a witness")
    parser.add_argument("--quorum", type=int, default=0, help="how many witnesses (all)")
    args = parser.parse_args()
    try:
        said = checked(args)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError) as error:
        what = f"{type(error).__name__}: {error}"
        files = args.proof + (f" or {args.key}" if args.key else "")
        print(f"NOT checked: {files} cannot be read as a proof and its key ({what})")
        return 2
    print(said)
    return 1 if said.startswith("NOT") else 2 if NOT_CHECKED in said else 0


if __name__ == "__main__":
    sys.exit(main())
