"""An object store that speaks S3's protocol, on this machine: moto's server.

Import the fixture `object_store` where a test needs one.  The credentials are dummies, and only in
the environment of the test.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from moto.backends import get_backend
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from trainperf.core.paths import path_of


BUCKET = "records"


class ObjectStore:
    """A running server with an empty bucket: one of a process, for all its tests."""

    def __init__(self) -> None:
        self.bucket = path_of(f"s3://{BUCKET}")
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        self._stopped = False
        self.address = self._server.get_host_and_port()

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return "http://{}:{}".format(*self.address)

    def stop(self) -> None:
        """Let nobody reach it; what it holds stays."""
        listening = self._server._server
        self._server.stop()
        if listening is not None:
            listening.server_close()  # otherwise the system still takes connections
        self._stopped = True

    def restart(self) -> None:
        """Answer again where it did."""
        if self._stopped:
            self._server = ThreadedMotoServer(*self.address, verbose=False)
            self._server.start()
            self._stopped = False


_store = cache(ObjectStore)


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, bucket: str = BUCKET) -> Iterator[ObjectStore]:
    """A server that this process and those it starts reach as `s3://`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = _store()
    store.bucket = path_of(f"s3://{bucket}")
    for name, value in (
        ("AWS_ENDPOINT_URL", store.endpoint),
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ):
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()  # those of earlier tests know another address
    S3FileSystem().mkdir(bucket)
    try:
        yield store
    finally:
        store.restart()
        get_backend("s3").reset()
        S3FileSystem.clear_instance_cache()


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """One for a test."""
    with serving(monkeypatch) as store:
        yield store
