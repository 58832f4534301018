"""The wire format of protocol buffers, as tests write the kubelet's answers in it."""


def field(number: int, *values: bytes | str) -> bytes:
    raws = (value.encode() if isinstance(value, str) else value for value in values)
    return b"".join(bytes([number << 3 | 2]) + length(raw) + raw for raw in raws)


def length(raw: bytes) -> bytes:
    size, out = len(raw), b""
    while size > 0x7F:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    return out + bytes([size])
