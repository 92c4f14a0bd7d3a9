"""A stream on which both ends have proved a shared secret, and on which others read nothing.

Python's library has hashes and no cipher, so both are made of HMAC-SHA-256; the reasons and limits
are in docs/adr/0024-a-rendezvous-with-hmac-alone.md.

    client -> server   MAGIC, 32 random bytes
    server -> client   32 random bytes, proof of the server
    client -> server   proof of the client
    then records       length, ciphertext, tag; the first is the server's welcome

All keys come by HKDF from the secret and the random bytes of both: a proof for each side, and for
each direction a key that encrypts and one that authenticates. A record is XORed with
HMAC(encryption key, record number, block number) and then authenticated with its number and length,
so that none can be changed, dropped, repeated or turned around.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import struct
from typing import Any

MAGIC = b"tern rendezvous 1\n"
MIN_SECRET_BYTES = 16
_NONCE_BYTES = _DIGEST_BYTES = 32
_MAX_RECORD_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")
_WELCOME = {"kind": "welcome"}


class Stranger(Exception):
    """The other side has not proved the secret, or sent what no holder of it sends."""


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")


class _Keys:
    """What both sides derive, once both have sent their random bytes (HKDF, RFC 5869)."""

    def __init__(self, secret: bytes, client_nonce: bytes, server_nonce: bytes) -> None:
        self._extracted = _mac(client_nonce + server_nonce, secret)
        self.client_proof = self._expand(b"client proof")
        self.server_proof = self._expand(b"server proof")

    def _expand(self, label: bytes) -> bytes:
        return _mac(self._extracted, MAGIC + label + b"\x01")

    def direction(self, sender: bytes) -> _Direction:
        return _Direction(self._expand(sender + b" encrypts"), self._expand(sender + b" attests"))


class _Direction:
    """Records that go one way, in order."""

    def __init__(self, encryption_key: bytes, tag_key: bytes) -> None:
        self._encryption_key = encryption_key
        self._tag_key = tag_key
        self._number = 0

    def seal(self, plain: bytes) -> bytes:
        length = _LENGTH.pack(len(plain))
        hidden = self._xor(plain)
        return length + hidden + self._next_tag(length, hidden)

    def open(self, length: bytes, hidden: bytes, tag: bytes) -> bytes:
        plain = self._xor(hidden)
        if not hmac.compare_digest(tag, self._next_tag(length, hidden)):
            raise Stranger("a record was changed on its way")
        return plain

    def _xor(self, text: bytes) -> bytes:
        blocks = (_mac(self._encryption_key, struct.pack(">QQ", self._number, block))
                  for block in range(-(-len(text) // hashlib.sha256().digest_size)))
        stream = b"".join(blocks)[:len(text)]
        size = len(text)
        return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")

    def _next_tag(self, length: bytes, hidden: bytes) -> bytes:
        tag = _mac(self._tag_key, struct.pack(">Q", self._number), length, hidden)
        self._number += 1
        return tag


class Sealed:
    """Messages, JSON objects, to and from a peer that has proved itself. Thread: the loop's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 sends: _Direction, receives: _Direction) -> None:
        self._reader = reader
        self._writer = writer
        self._sends = sends
        self._receives = receives

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(self._sends.seal(json.dumps(message).encode()))
        await self._writer.drain()

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises Stranger, or OSError or EOFError when the connection ends."""
        length = await self._reader.readexactly(_LENGTH.size)
        size, = _LENGTH.unpack(length)
        if size > _MAX_RECORD_BYTES:
            raise Stranger(f"a record of {size} bytes")
        hidden = await self._reader.readexactly(size)
        tag = await self._reader.readexactly(_DIGEST_BYTES)
        message: dict[str, Any] = json.loads(self._receives.open(length, hidden, tag))
        return message

    @property
    def local_address(self) -> str:
        """This end's address, by which the other side can reach this node."""
        return str(self._writer.get_extra_info("sockname")[0])

    def close(self) -> None:
        self._writer.close()


async def as_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                    secret: bytes) -> Sealed:
    """Proves the secret to a server after the server has, and returns when the server has taken the
    proof. Raises Stranger if it is another server, OSError or EOFError if the connection ends."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    writer.write(MAGIC + nonce)
    server_nonce = await reader.readexactly(_NONCE_BYTES)
    keys = _Keys(secret, nonce, server_nonce)
    if not hmac.compare_digest(await reader.readexactly(_DIGEST_BYTES), keys.server_proof):
        raise Stranger("it has another secret, or is no rendezvous of Tern")
    writer.write(keys.client_proof)
    sealed = Sealed(reader, writer, keys.direction(b"client"), keys.direction(b"server"))
    if await sealed.receive() != _WELCOME:
        raise Stranger("it does not speak this version of the rendezvous's protocol")
    return sealed


async def as_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                    secret: bytes) -> Sealed:
    """Proves the secret to a client that has sent its part, and has it proved. Raises Stranger."""
    hello = await reader.readexactly(len(MAGIC) + _NONCE_BYTES)
    if not hello.startswith(MAGIC):
        raise Stranger("it does not speak the rendezvous's protocol")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    keys = _Keys(secret, hello[len(MAGIC):], nonce)
    writer.write(nonce + keys.server_proof)
    if not hmac.compare_digest(await reader.readexactly(_DIGEST_BYTES), keys.client_proof):
        raise Stranger("it has another secret")
    sealed = Sealed(reader, writer, keys.direction(b"server"), keys.direction(b"client"))
    await sealed.send(_WELCOME)
    return sealed
