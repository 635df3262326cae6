"""What all tests share: the plays that they run have the callbacks of molecule/shared/callback."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def packed_once(tmp_path_factory):
    os.environ.update({
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "molecule/shared/callback"),
        "MODELHOST_PACKED": str(tmp_path_factory.mktemp("packed"))})
