"""A server at the socket of a kubelet that answers each call with the same bytes."""

from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from joulie_agent.kubelet.pod_resources import LIST


class Kubelet:
    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    async def list(self, stream: "Stream[bytes, bytes]") -> None:
        await stream.recv_message()
        await stream.send_message(self._reply)

    def __mapping__(self) -> dict[str, Handler]:
        return {LIST: Handler(self.list, Cardinality.UNARY_UNARY, bytes, bytes)}
