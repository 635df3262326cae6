# GNU General Public License v3.0+ (see LICENSE)
"""OpenPGP public keys (RFC 4880, RFC 9580), as far as it takes to say whose they are, without gpg on the host."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Iterator

_BLOCK = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
_PUBLIC_KEY = 6


def dearmor(data: bytes) -> bytes:
    """The packets of all blocks in an armoured file. Raises ValueError where there is none."""
    blocks = _BLOCK.findall(data)
    if not blocks:
        raise ValueError("no line says BEGIN PGP PUBLIC KEY BLOCK")
    return b"".join(_decode(block) for block in blocks)


def _decode(block: bytes) -> bytes:
    """Base64 between the headers, which end at an empty line, and the checksum, which begins with '='."""
    lines = [line.strip() for line in block.splitlines()]
    start = lines.index(b"") + 1 if b"" in lines else 0
    return base64.b64decode(b"".join(line for line in lines[start:] if not line.startswith(b"=")), validate=True)


def fingerprints(packets: bytes) -> list[str]:
    """Fingerprints of the primary keys, in 40 upper-case hexadecimal digits. Raises ValueError for what is no sequence of packets."""
    return [_fingerprint(body) for tag, body in _packets(packets) if tag == _PUBLIC_KEY]


def _fingerprint(body: bytes) -> str:
    if body[:1] != b"\x04":
        raise ValueError("a public key is of version %s, only version 4 is known here" % (body[0] if body else "none"))
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and body of each packet."""
    at = 0
    while at < len(data):
        first = data[at]
        if not first & 0x80:
            raise ValueError("byte %d begins no OpenPGP packet" % at)
        tag, size, at = (_new if first & 0x40 else _old)(data, at)
        if at + size > len(data):
            raise ValueError("the last OpenPGP packet is cut off")
        yield tag, data[at:at + size]
        at += size


def _old(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, size of the body and where it begins, of a header in the old format."""
    kind = data[at] & 3
    if kind == 3:
        raise ValueError("byte %d begins an OpenPGP packet without a length" % at)
    end = at + 1 + (1 << kind)
    return data[at] >> 2 & 0x0F, int.from_bytes(data[at + 1:end], "big"), end


def _new(data: bytes, at: int) -> tuple[int, int, int]:
    """The same of a header in the new format."""
    first = data[at + 1] if at + 1 < len(data) else 0
    if first < 192:
        size, end = first, at + 2
    elif first < 224:
        size, end = (first - 192 << 8) + int.from_bytes(data[at + 2:at + 3], "big") + 192, at + 3
    elif first == 255:
        size, end = int.from_bytes(data[at + 2:at + 6], "big"), at + 6
    else:
        raise ValueError("byte %d begins an OpenPGP packet in parts, which a key never is" % at)
    return data[at] & 0x3F, size, end
