"""Keys of an apt repository: none is written unless it is the expected one. The keys were made for this test."""

from __future__ import annotations

import base64
import io
import stat

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import openpgp
from ansible_collections.modelhost.vllm.plugins.modules import apt_keyring

URL = "https://mirror.example.org/cuda/debian13/x86_64/8793F200.pub"
ONE, TWO = "9CF5B464F422B6632E4C24ABAAEA26C4A7F6441A", "A314E583A91DF441A827010A54272E0B09D9C41C"
ARMOURED_ONE = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----
Comment: a header

mDMEaw12LhYJKwYBBAHaRw8BAQdACXqasNWnK+qzfE5V2eTHESV0fJ2NXn0X+5CV
m3jFNC+0H1Rlc3Qga2V5IG9uZSA8dGVzdEBleGFtcGxlLm9yZz6IkAQTFggAOBYh
BJz1tGT0IrZjLkwkq6rqJsSn9kQaBQJrDXYuAhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEKrqJsSn9kQaOYkA/RjA8dM6iUL9GTy0bH40pg2m5jmHQyv1nxWJ
Vs1fK5SIAP4lWQAqFUZlf9bo9yd/trtko4eGsftfc9cse219mGpiBg==
=TfOl
-----END PGP PUBLIC KEY BLOCK-----
"""
ARMOURED_TWO = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw12LhYJKwYBBAHaRw8BAQdASHlz0EDrkQH3ykNBKolxaOmFzVhP30k1cK+P
Y7t5S9e0H1Rlc3Qga2V5IHR3byA8dGVzdEBleGFtcGxlLm9yZz6IkAQTFggAOBYh
BKMU5YOpHfRBqCcBClQnLgsJ2cQcBQJrDXYuAhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEFQnLgsJ2cQcn1YA/3QbEnGPa1/WNYpCNS8EzkRb8bzPUJ4DWCAY
0HANM+F+AP4xOWavk73e3E2xtE+tgK89NavnK6auQrR9h2v46TkcBQ==
=PJB2
-----END PGP PUBLIC KEY BLOCK-----
"""
PACKETS_ONE = openpgp.dearmor(ARMOURED_ONE)
# RFC 9580, 4.2: the same body behind each kind of header
BODY = PACKETS_ONE[2:2 + PACKETS_ONE[1]]


def test_what_gpg_says_too():
    assert openpgp.fingerprints(PACKETS_ONE) == [ONE]
    assert openpgp.fingerprints(openpgp.dearmor(ARMOURED_ONE + ARMOURED_TWO)) == [ONE, TWO]
    assert openpgp.fingerprints(openpgp.dearmor(ARMOURED_TWO.replace(b"\n", b"\r\n"))) == [TWO]


@pytest.mark.parametrize("header", [
    b"\x98\x33", b"\x99\x00\x33", b"\x9a\x00\x00\x00\x33", b"\xc6\x33", b"\xc6\xff\x00\x00\x00\x33",
])
def test_every_kind_of_header(header):
    assert len(BODY) == 0x33
    assert openpgp.fingerprints(header + BODY) == [ONE]


def test_a_long_body_in_the_new_format():
    body = b"\x04" + bytes(299)
    assert openpgp.fingerprints(b"\xc6\xc0\x6c" + body) == openpgp.fingerprints(b"\x99\x01\x2c" + body)


@pytest.mark.parametrize(("data", "sentence"), [
    (b"\x98\x34" + BODY, "the last OpenPGP packet is cut off"),
    (b"<html>", "byte 0 begins no OpenPGP packet"),
    (PACKETS_ONE + b"x", f"byte {len(PACKETS_ONE)} begins no OpenPGP packet"),
    (b"\x9b" + BODY, "byte 0 begins an OpenPGP packet without a length"),
    (b"\xc6\xe1" + BODY, "byte 0 begins an OpenPGP packet in parts, which a key never is"),
    (b"\x98\x33\x06" + BODY[1:], "a public key is of version 6, only version 4 is known here"),
    (b"\x98\x00", "a public key is of version none, only version 4 is known here"),
])
def test_what_is_no_key(data, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        openpgp.fingerprints(data)


def test_an_armour_that_says_nothing():
    with pytest.raises(ValueError, match="^no line says BEGIN PGP PUBLIC KEY BLOCK$"):
        openpgp.dearmor(b"404 page not found")
    with pytest.raises(ValueError):
        openpgp.dearmor(ARMOURED_ONE.replace(b"mDME", b"mD<E"))


@pytest.fixture
def server(monkeypatch):
    """What the repository answers; and which addresses were asked."""
    class Server:
        answer, status, asked = ARMOURED_ONE, 200, []

    def fetch_url(module, url, timeout):
        Server.asked.append(url)
        return io.BytesIO(Server.answer), {"status": Server.status, "msg": "HTTP Error 404: Not Found"}

    Server.asked = []
    monkeypatch.setattr(apt_keyring, "fetch_url", fetch_url)
    return Server


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keyrings/nvidia.gpg"


def test_the_expected_key(call, server, path):
    spaced = "9cf5 b464 f422 b663 2e4c  24ab aaea 26c4 a7f6 441a"
    assert call(apt_keyring, url=URL, fingerprint=spaced, path=str(path)) == {
        "changed": True, "fingerprints": [ONE], "diff": {"before": {"fingerprints": []}, "after": {"fingerprints": [ONE]}}}
    assert path.read_bytes() == PACKETS_ONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert server.asked == [URL]
    assert call(apt_keyring, url=URL, fingerprint=ONE, path=str(path))["changed"] is False
    assert server.asked == [URL]  # not asked a second time


def test_another_key_in_its_place_is_replaced(call, server, path):
    path.parent.mkdir()
    path.write_bytes(openpgp.dearmor(ARMOURED_TWO))
    result = call(apt_keyring, url=URL, fingerprint=ONE, path=str(path))
    assert result["diff"] == {"before": {"fingerprints": [TWO]}, "after": {"fingerprints": [ONE]}}
    assert path.read_bytes() == PACKETS_ONE


@pytest.mark.parametrize(("answer", "said"), [
    (ARMOURED_TWO, f"{URL} holds {TWO}, and {ONE} is expected. Nothing was written."),
    (ARMOURED_ONE + ARMOURED_TWO, f"{URL} holds {ONE}, {TWO}, and {ONE} is expected. Nothing was written."),
    (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.b64encode(b"\xcd\x01a") + b"\n-----END PGP PUBLIC KEY BLOCK-----\n",
     f"{URL} holds no key, and {ONE} is expected. Nothing was written."),
    (b"<html>sign in</html>", f"{URL} is no OpenPGP key: no line says BEGIN PGP PUBLIC KEY BLOCK"),
])
def test_anything_else_is_refused_and_not_written(call, server, path, answer, said):
    server.answer = answer
    result = call(apt_keyring, url=URL, fingerprint=ONE, path=str(path))
    assert result["failed"] and result["msg"] == said
    assert not path.exists()


def test_no_answer(call, server, path):
    server.status = 404
    result = call(apt_keyring, url=URL, fingerprint=ONE, path=str(path))
    assert result["msg"] == f"The key was not fetched from {URL}: HTTP Error 404: Not Found"
    assert not path.exists()


def test_check_mode_judges_and_writes_nothing(call, server, path):
    assert call(apt_keyring, check_mode=True, url=URL, fingerprint=ONE, path=str(path))["changed"] is True
    assert call(apt_keyring, check_mode=True, url=URL, fingerprint=TWO, path=str(path))["failed"]
    assert not path.parent.exists()
