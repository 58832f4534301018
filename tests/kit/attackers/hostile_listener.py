"""A program on loopback that accepts connections, each in a thread, until its test ends it."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod

PAUSE_S = 0.05  # between two bytes that trickle in


class HostileListener(ABC):
    def __init__(self) -> None:
        self.connections = 0
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PAUSE_S)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listening.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    @abstractmethod
    def _serve(self, connection: socket.socket) -> None: ...
