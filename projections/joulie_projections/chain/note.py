"""Signed notes of C2SP: checkpoints of the tree (`tlog-checkpoint`) and cosignatures of witnesses.

    joulie/3fQ2xPb1hK0A                              the origin: which log
    20852                                            entries in the tree
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     its root

    — joulie/3fQ2xPb1hK0A Az3grlgtzPICa5OS8np...     a signature: key id, signature

Lines after the root are extension lines (`head`). A verifier key is NAME+ID+KEY, as other programs
read and print it.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from joulie_projections.chain.signed import ed25519_of, has_signed

LOG_KEY, WITNESS_KEY = 1, 4  # the first byte of a verifier key: Ed25519, a cosignature
MAX_NOTE = 64 * 1024  # bytes
MAX_SIGNATURES = 100
_DASH = "— "
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_BAD_NAME = re.compile(r"[\s+\x00-\x1f\x7f]")


class NotANote(ValueError):
    """Not a signed note or a verifier key of this form."""


def require_name(name: str) -> None:
    """Raises NotANote for a name that no verifier key can have."""
    if _BAD_NAME.search(name):
        raise NotANote("a name has neither spaces nor a plus sign")


class VerifierKey(NamedTuple):
    name: str
    kind: int
    raw: bytes

    @property
    def hash(self) -> bytes:
        text = self.name.encode() + b"\n" + bytes([self.kind]) + self.raw
        return hashlib.sha256(text).digest()[:4]

    def __str__(self) -> str:
        key = base64.b64encode(bytes([self.kind]) + self.raw).decode()
        return f"{self.name}+{self.hash.hex()}+{key}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        name, _, rest = text.partition("+")
        stated, _, key = rest.partition("+")
        content = unpacked(key)
        if not name or _BAD_NAME.search(name) or len(content) != 33:
            raise NotANote("not a verifier key, which is NAME+ID+KEY")
        made = cls(name, content[0], content[1:])
        if made.hash.hex() != stated or made.kind not in (LOG_KEY, WITNESS_KEY):
            raise NotANote("the id of the verifier key does not belong to its name and key")
        return made


class Signature(NamedTuple):
    name: str
    hash: bytes
    content: bytes

    def __str__(self) -> str:
        return f"{_DASH}{self.name} {base64.b64encode(self.hash + self.content).decode()}"


class LogCheckpoint(NamedTuple):
    """A signed note about the tree of a log; extension lines are kept in `text`."""

    origin: str
    size: int
    root: bytes
    text: bytes  # what is signed
    signatures: tuple[Signature, ...] = ()

    @property
    def extensions(self) -> list[str]:
        """The lines after the root."""
        return self.text.decode().split("\n")[3:-1]

    @property
    def note(self) -> bytes:
        return self.text + b"\n" + "".join(f"{each}\n" for each in self.signatures).encode()

    def with_signatures(self, more: Iterable[Signature]) -> "LogCheckpoint":
        return self._replace(signatures=tuple(dict.fromkeys([*self.signatures, *more])))

    def is_signed_by(self, key: VerifierKey) -> bool:
        return any(_holds(key, self.text, each) for each in self.signatures)

    def cosigned_at(self, witness: VerifierKey) -> int | None:
        """The newest time (s) of a valid cosignature of the witness; None if there is none."""
        own = [each for each in self.signatures if _holds(witness, self.text, each)]
        return max((int.from_bytes(each.content[:8], "big") for each in own), default=None)


def checkpoint_of(
    origin: str, size: int, root: bytes, extensions: Iterable[str] = ()
) -> LogCheckpoint:
    lines = (origin, str(size), base64.b64encode(root).decode(), *extensions)
    text = "".join(f"{line}\n" for line in lines)
    return LogCheckpoint(origin, size, root, text.encode())


def parse_checkpoint(note: bytes) -> LogCheckpoint:
    """Raises NotANote. Signatures are not checked."""
    if len(note) > MAX_NOTE:
        raise NotANote(f"longer than {MAX_NOTE} bytes")
    text, blank, lines = note.rpartition(b"\n\n")
    try:
        origin, size, root, *_ = text.decode().split("\n")
        signatures = parse_signatures(lines.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise NotANote(f"not a checkpoint ({error})") from None
    content = unpacked(root)
    if not blank or not origin or not _SIZE.fullmatch(size) or len(content) != 32:
        raise NotANote("not a checkpoint: an origin, a size and a root are expected")
    return LogCheckpoint(origin, int(size), content, text + b"\n", tuple(signatures))


def parse_signatures(lines: str) -> list[Signature]:
    if not lines.endswith("\n"):
        raise NotANote("the last line of a signed note does not end")
    found = list(map(_signature_in, lines[:-1].split("\n")))
    if len(found) > MAX_SIGNATURES:
        raise NotANote(f"more than {MAX_SIGNATURES} signatures")
    return found


def _signature_in(line: str) -> Signature:
    name, _, content = line.removeprefix(_DASH).partition(" ")
    signature = unpacked(content)
    if not line.startswith(_DASH) or not name or len(signature) < 5:
        raise NotANote("not a line of a signature")
    return Signature(name, signature[:4], signature[4:])


def unpacked(text: str) -> bytes:
    """Standard base64 only: several texts for the same bytes would be several notes."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotANote(f"{text[:100]!r} is not base64") from None
    if base64.b64encode(content).decode() != text:
        raise NotANote(f"{text[:100]!r} is not canonical base64")
    return content


def _holds(key: VerifierKey, text: bytes, signature: Signature) -> bool:
    if (signature.name, signature.hash) != (key.name, key.hash):
        return False
    if key.kind == LOG_KEY:
        return has_signed(ed25519_of(key.raw), signature.content, text)
    time, content = int.from_bytes(signature.content[:8], "big"), signature.content[8:]
    return has_signed(ed25519_of(key.raw), content, cosigned_text(text, time))


def cosigned_text(text: bytes, time: int) -> bytes:
    """What a witness signs; `time` in seconds."""
    return b"cosignature/v1\ntime %d\n" % time + text


def cosignature(key: VerifierKey, time: int, signed: bytes) -> Signature:
    return Signature(key.name, key.hash, time.to_bytes(8, "big") + signed)


# --- a submission to a witness, and a proof -------------------------------------------------------

PROOF = "c2sp.org/tlog-proof@v1"
MAX_PROOF_LINES = 63


class Submission(NamedTuple):
    """The body of `POST /add-checkpoint`."""

    old: int
    proof: Sequence[bytes]
    checkpoint: LogCheckpoint

    @property
    def body(self) -> bytes:
        return f"old {self.old}\n{_lines(self.proof)}\n".encode() + self.checkpoint.note

    @classmethod
    def parse(cls, body: bytes) -> "Submission":
        head, _, note = body.partition(b"\n\n")
        first, *hashes = head.decode("utf-8", "replace").split("\n")
        size = first.removeprefix("old ")
        if not first.startswith("old ") or not _SIZE.fullmatch(size):
            raise NotANote("the first line is not `old` and a size")
        if len(hashes) > MAX_PROOF_LINES:
            raise NotANote(f"more than {MAX_PROOF_LINES} lines of proof")
        return cls(int(size), _hashes(hashes), parse_checkpoint(note))


class InclusionProof(NamedTuple):
    """`tlog-proof`: `extra` holds what the leaf is computed from."""

    at: int  # its index among the leaves
    extra: bytes
    path: Sequence[bytes]
    checkpoint: LogCheckpoint

    @property
    def text(self) -> str:
        extra = base64.b64encode(self.extra).decode()
        head = f"{PROOF}\nextra {extra}\nindex {self.at}\n{_lines(self.path)}\n"
        return head + self.checkpoint.note.decode()


def _lines(hashes: Iterable[bytes]) -> str:
    return "".join(base64.b64encode(each).decode() + "\n" for each in hashes)


def _hashes(lines: Iterable[str]) -> list[bytes]:
    found = list(map(unpacked, lines))
    if any(len(each) != 32 for each in found):
        raise NotANote("a line of the proof is not a hash")
    return found
