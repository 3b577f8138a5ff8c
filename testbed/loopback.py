"""RocketMQ's servers without a setting for their address, changed to listen on 127.0.0.1.

Its gRPC proxy, the proxy's port for the older protocol and the broker's replication bind to every interface: the address
is in their code. A class file keeps such a word in its table of constants, and each entry has its length. So a word can be
replaced without any other change of the file. The changed copies precede RocketMQ's jars on the class path. The jars are
pinned by hash, so the constants never move.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delayq.embedded.processes import LOCALHOST
from testbed.errors import ServerError

#: The address that all of them derive from a port, and its replacement.
_ANYWHERE: Final = "java/net/InetSocketAddress"
_HERE: Final = "delayq/Loopback"
#: The class, the constant in it and its replacement, by the beginning of a jar's name.
CLASSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "grpc-netty-shaded": ("io/grpc/netty/shaded/io/grpc/netty/NettyServerBuilder", _ANYWHERE, _HERE),
    "rocketmq-store": ("org/apache/rocketmq/store/ha/DefaultHAService$AcceptSocketService", _ANYWHERE, _HERE),
    "rocketmq-remoting": ("org/apache/rocketmq/remoting/netty/NettyServerConfig", "0.0.0.0", LOCALHOST),
}


def write(folder: Path, jars: Path) -> Path:
    """Write the classes into a folder, which is to be the first on the class path. Raises ServerError."""
    _put(folder, _HERE, _loopback())
    for jar, (name, constant, instead) in CLASSES.items():
        (file,) = jars.glob(f"{jar}-[0-9]*.jar")
        with zipfile.ZipFile(file) as opened:
            _put(folder, name, replaced(opened.read(f"{name}.class"), constant, instead))
    return folder


def replaced(code: bytes, constant: str, instead: str) -> bytes:
    """A class with a constant replaced; raises ServerError unless it is there, once."""
    before, after = _text(constant), _text(instead)
    if code.count(before) != 1:
        raise ServerError(f"a class of RocketMQ has {constant!r} {code.count(before)} times: it is of another version")
    return code.replace(before, after)


def _put(folder: Path, name: str, code: bytes) -> None:
    file = folder / f"{name}.class"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(code)


def _text(text: str) -> bytes:
    """A text among the constants."""
    return b"\x01" + struct.pack(">H", len(text)) + text.encode()


def _loopback() -> bytes:
    """`class Loopback extends InetSocketAddress { public Loopback(int port) { super("127.0.0.1", port); } }`, compiled."""
    constants = [
        _text(_HERE), b"\x07\x00\x01",  # 1, 2: this class
        _text(_ANYWHERE), b"\x07\x00\x03",  # 3, 4: the one above it
        _text("<init>"), _text("(I)V"), _text("(Ljava/lang/String;I)V"),  # 5, 6, 7
        b"\x0c\x00\x05\x00\x07", b"\x0a\x00\x04\x00\x08",  # 8, 9: its constructor that takes a name
        _text("Code"), _text(LOCALHOST), b"\x08\x00\x0b",  # 10, 11, 12
    ]  # fmt: skip
    steps = bytes.fromhex("2a 12 0c 1b b7 0009 b1")  # aload_0, ldc, iload_1, invokespecial, return
    body = struct.pack(">HHI", 3, 2, len(steps)) + steps + bytes(4)
    constructor = struct.pack(">HHHHHI", 1, 5, 6, 1, 10, len(body)) + body
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, 49, len(constants) + 1)
    return head + b"".join(constants) + struct.pack(">HHHHHH", 0x21, 2, 4, 0, 0, 1) + constructor + bytes(2)
