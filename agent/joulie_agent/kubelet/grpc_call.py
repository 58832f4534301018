"""One unary call of gRPC over a Unix socket, by grpclib, which the extra `agent` installs."""

from pathlib import Path
from typing import Any

from grpclib.client import Channel, Stream
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase

HEAD = 5  # bytes before a message: whether it is compressed, and its length


class CallFailed(Exception):
    """The server refused the call, the connection failed, or the reply is none."""


class RawBytes(CodecBase):
    """Messages stay bytes; `wire` reads them."""

    @property
    def __content_subtype__(self) -> str:
        return "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


async def call(socket: Path, method: str, request: bytes, most_bytes: int) -> bytes:
    """The reply. Raises CallFailed."""
    channel = Channel(path=str(socket), codec=RawBytes())
    try:
        async with channel.request(method, Cardinality.UNARY_UNARY, bytes, bytes) as stream:
            await stream.send_message(request, end=True)
            await stream.recv_initial_metadata()
            return await _reply(stream, most_bytes)
    except CallFailed:
        raise
    except Exception as error:  # grpclib also raises KeyError and AssertionError for bad frames
        raise CallFailed(str(error) or type(error).__name__) from error
    finally:
        channel.close()


async def _reply(stream: Stream[bytes, bytes], most_bytes: int) -> bytes:
    """grpclib itself reads a message of any length."""
    frames = stream._stream
    head = await frames.recv_data(HEAD)
    size = int.from_bytes(head[1:], "big")
    if not head or head[0]:
        raise CallFailed("the reply is compressed" if head else "the reply has no message")
    if size > most_bytes:
        raise CallFailed(f"the reply has {size:,} bytes, more than {most_bytes:,}")
    return await frames.recv_data(size)
