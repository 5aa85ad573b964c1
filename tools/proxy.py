"""A network in between, which may be slow, lose all that is sent, or end connections."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards connections from `port` to another port on loopback.

    Each piece of data takes `delay` seconds; with `lost`, none arrives any more, and no error is reported.
    """

    def __init__(self, to: int):
        self.delay, self.lost = 0.0, False
        self._to, self._open = to, set[socket.socket]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """End all connections as a router that restarts does."""
        for one in [*self._open]:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RD)
            one.close()
        self._open.clear()

    def close(self) -> None:
        """Accept no connection any more, and end all."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.reset()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                self._open |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                if not self.lost:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy(to: int) -> Iterator[Proxy]:
    """Yield a proxy of a port."""
    one = Proxy(to)
    try:
        yield one
    finally:
        one.close()
