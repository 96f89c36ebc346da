"""Much sent to a SuperLink without a key: shared by the tests and by benchmarks/large_requests.py."""

import socket
import ssl
import time
from typing import Any

import psutil

HEAD = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n"
WAYS = {  # what is sent first, what follows again and again, the status of the answer
    "a body": (HEAD + b"Content-Length: 629145600\r\n\r\n", b"\0" * 2**16, b"413"),
    "a body in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"\0" * 2**16 + b"\r\n", b"411"),
    "headers": (HEAD, b"a: " + b"b" * 2**16 + b"\r\n", b"400"),
    "one header": (HEAD + b"a: ", b"b" * 2**16, b"400"),
    "an address": (b"POST /", b"b" * 2**16, b"400"),
}


def memory() -> int:
    """Resident bytes of the processes that this one started."""
    return sum(p.memory_info().rss for p in psutil.Process().children(recursive=True))


def send(link: Any, head: bytes, part: bytes, total: int) -> tuple[bytes, int]:
    """(the answer, the highest memory) while `head` and then so many bytes of `part` are sent."""
    host, port = link.address.split(":")
    context = ssl.create_default_context(cadata=link.ca.decode())
    highest = memory()
    with context.wrap_socket(socket.create_connection((host, int(port)), 30), server_hostname=host) as connection:
        connection.settimeout(30)
        try:
            connection.sendall(head)
            for number in range(total // len(part)):
                connection.sendall(part)
                highest = memory() if number % 100 == 0 and memory() > highest else highest
        except OSError:
            pass  # closed while we were sending
        time.sleep(0.2)
        return _answer(connection), max(highest, memory())


def _answer(connection: ssl.SSLSocket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError as error:
        return f"nothing {type(error).__name__}".encode()
