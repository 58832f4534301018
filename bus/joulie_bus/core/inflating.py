"""Inflates what zlib compressed, up to a size: a thousand bytes may come of one."""

import zlib


def inflated(content: bytes, most_bytes: int) -> bytes:
    """Raises zlib.error, also for content that ends early or inflates to more."""
    inflating = zlib.decompressobj()
    found = inflating.decompress(content, most_bytes)
    if not inflating.eof:
        raise zlib.error(f"it ends early, or inflates to more than {most_bytes >> 20} MiB")
    return found
