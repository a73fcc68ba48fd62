"""A real S3 server for tests: MinIO, built once into a cache, in a directory of its own, and never left behind.

``python -m tests.minio`` builds it and says where it is.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.guarded import PortServer
from tests.needs import cache_folder, made_once, missing

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
_MODULE = f"github.com/minio/minio@{VERSION}"
_GO = "go 1.24 or newer (from 1.21 on, GOTOOLCHAIN=auto fetches it)"
_BUILD_SECONDS = 1_500
OF_OTHERS = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3")
"""Variables that would lead past the server."""


class MinioServer(PortServer):
    """A server in a directory of its own. `start` and `stop` as often as a test likes."""

    def __init__(self, binary: Path) -> None:
        """Choose keys; nothing runs yet."""
        super().__init__("minio")
        self._binary = binary
        self.access_key = f"anew{secrets.token_hex(6)}"
        self.secret_key = secrets.token_hex(20)
        self._names = itertools.count(1)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, url: str | None = None) -> dict[str, str]:
        """What a process needs in its environment to use the server, or another way to it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.url if url is None else url,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """An S3 client of the test's own."""
        return botocore.session.Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def new_bucket(self) -> str:
        """Make an empty bucket; its name."""
        name = f"bucket-{next(self._names)}"
        self.client().create_bucket(Bucket=name)
        return name

    def _command(self) -> list[str]:
        return [str(self._binary), "server", str(self.directory / "data"), "--address", f"127.0.0.1:{self.port}"]

    def _environment(self) -> dict[str, str]:
        own = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key}
        return {**os.environ, **own, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}

    def _answers(self) -> bool:
        try:
            self.client().list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True


def cached_binary() -> Path:
    """Where the server is, once it was built."""
    return cache_folder() / f"minio-{VERSION}" / "minio"


def build() -> str:
    """Build the server into the cache, unless it is there; empty, or one line that says why that cannot be."""
    binary = cached_binary()
    if binary.exists():
        return ""
    go = shutil.which("go")
    if go is None:
        return f"install {_GO}"

    def compile_in(folder: Path) -> str:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
        try:
            done = subprocess.run(
                [go, "install", "-trimpath", "-ldflags", "-s -w", _MODULE],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it was not built within {_BUILD_SECONDS} s"
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            return f"it cannot be built with {_GO}: {lines[-1] if lines else 'go says nothing'}"
        (folder / "minio").rename(folder / "made")
        return ""

    return made_once(binary, compile_in)


@contextmanager
def running_minio() -> Iterator[MinioServer]:
    """A running server; the test is skipped, or fails where none may be, when the machine cannot build it."""
    reason = build()
    if reason:
        missing("MinIO", reason)
    server = MinioServer(cached_binary())
    try:
        server.start()
        yield server
    finally:
        server.remove()


if __name__ == "__main__":
    said = build()
    print(said or cached_binary())
    sys.exit(1 if said else 0)
