"""One S3 client for each process, and what to do when a request fails: again, not again, or nobody knows.

Each operation goes on, with growing pauses, until it succeeds, is refused, or has made no progress for its patience.
The client's own retries are off: it would retry behind our back, with other deadlines, and hide that an answer was
lost.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import botocore.config
import botocore.session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as NotConnectedError,
)
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Unreachable

Answer = TypeVar("Answer")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_CONNECT_SECONDS, _SILENCE_SECONDS = 5.0, 20.0
_CONNECTIONS = 32
_REGION = {"region": ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None)}
_DENIED = frozenset(
    {
        "401",
        "403",
        "AccessDenied",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_TRANSIENT = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"})
_NOT_SENT = frozenset({"ConnectTimeoutError", "EndpointConnectionError"})
_SAID_BY = {
    "CreateMultipartUpload": ("UploadId",),
    "GetObject": ("ContentLength",),
    "HeadObject": ("ContentLength", "LastModified"),
    "ListObjectsV2": ("IsTruncated",),
    "UploadPart": ("ETag",),
}
"""What a whole answer says at least."""
_NO_KEYS = (CredentialRetrievalError, NoCredentialsError, PartialCredentialsError)

RETRIED: tuple[type[Exception], ...] = (
    *_NO_KEYS,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    HTTPError,
    IncompleteReadError,
    NotConnectedError,
    OSError,
    ResponseParserError,
)
"""What `Attempts.failed` judges; anything else is a fault of the program's own."""


@dataclass(frozen=True, slots=True)
class S3Client:
    """A client and how long its operations go on without progress. Safe to use from several threads.

    Attributes:
        api: botocore's client.
        patience_seconds: Without progress for this long, an operation gives up.
    """

    api: Any
    patience_seconds: float
    _buckets: set[str] = field(default_factory=set)

    def attempts(self, path: str) -> Attempts:
        """A new operation on a path."""
        return Attempts(self, path, time.monotonic() + self.patience_seconds)

    def check_bucket(self, bucket: str) -> None:
        """Raise unless the bucket exists; a bucket once seen is not asked for again.

        Raises:
            Unreachable: ``deep_store_no_bucket``, ``deep_store_denied``, ``deep_store_unreachable``.
        """
        if bucket in self._buckets:
            return
        try:
            self.attempts(bucket).run(lambda: self.api.head_bucket(Bucket=bucket))
        except ClientError as error:
            if code_of(error) not in ("404", "NoSuchBucket"):
                raise
            raise _no_bucket(bucket) from None
        self._buckets.add(bucket)

    @property
    def endpoint(self) -> str:
        """Scheme, host and port, without whatever else an endpoint's URL may hold."""
        split = urlsplit(str(self.api.meta.endpoint_url))
        return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"


@dataclass(slots=True)
class Attempts:
    """The attempts of one operation.

    Attributes:
        client: Whose operation it is.
        path: What it is about, for errors.
        deadline: When it gives up, by the monotonic clock.
        ambiguous: Whether an attempt may have been carried out although its answer did not come.
    """

    client: S3Client
    path: str
    deadline: float
    ambiguous: bool = False
    _failures: int = 0

    def run(self, act: Callable[[], Answer]) -> Answer:
        """Act until it succeeds or is refused.

        Raises:
            ClientError: Refused in a way that only the caller understands, such as a missing object.
            Unreachable: ``deep_store_denied``, ``deep_store_no_bucket``, ``deep_store_unreachable``.
        """
        while True:
            try:
                return act()
            except RETRIED as error:
                self.failed(error)

    def failed(self, error: Exception) -> None:
        """Wait before the next attempt, or raise what `run` raises."""
        if isinstance(error, ClientError) and not _is_transient(error):
            refused = self._refused(error)
            if refused is None:
                raise error
            raise refused from None
        if isinstance(error, _NO_KEYS):
            raise self._denied("no keys") from None
        self.ambiguous = self.ambiguous or type(error).__name__ not in _NOT_SENT
        pause = self._pause_seconds()
        if time.monotonic() + pause > self.deadline:
            raise self._unreachable(error) from None
        threading.Event().wait(pause)

    def progress(self) -> None:
        """Something came through: the patience begins anew."""
        self.deadline = time.monotonic() + self.client.patience_seconds
        self._failures = 0

    def _pause_seconds(self) -> float:
        longest = backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._failures += 1
        # Tasks that were turned away together do not come back together.
        spread = zlib.crc32(f"{self.path} {os.getpid()} {self._failures}".encode()) / 2**32
        return float(longest * (0.5 + spread / 2))

    def _refused(self, error: ClientError) -> AnewError | None:
        code = code_of(error)
        if code in _DENIED:
            return self._denied(code)
        if code == "NoSuchBucket":
            return _no_bucket(str(error.response["Error"].get("BucketName", self.path)))
        return None

    def _denied(self, found: str) -> Unreachable:
        return Unreachable(
            "deep_store_denied",
            f"the deep store at {self.client.endpoint} does not let us in",
            found=f"{self.path}: {found}",
            expected="keys that may list, read, write and delete below the deep store's prefix",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a role) where this process runs; "
            "look at AWS_REGION and at the clock too",
        )

    def _unreachable(self, error: Exception) -> Unreachable:
        said = code_of(error) if isinstance(error, ClientError) else type(error).__name__
        return Unreachable(
            "deep_store_unreachable",
            f"the deep store at {self.client.endpoint} does not answer",
            found=f"{self.path}: {said}",
            expected=f"progress within {self.client.patience_seconds:g} s",
            hint="look at the server and the network, and at AWS_ENDPOINT_URL",
        )


def code_of(error: Exception) -> str:
    """S3's word for why it refused; of an answer without a body, its status; empty for other errors."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


@functools.cache
def s3_client(patience_seconds: float) -> S3Client:
    """This process's client; keys, region, endpoint and certificates are found as all AWS tools find them."""
    session = botocore.session.Session(session_vars=_REGION)
    common: dict[str, Any] = {
        "connect_timeout": min(_CONNECT_SECONDS, patience_seconds / 2),
        "read_timeout": min(_SILENCE_SECONDS, patience_seconds / 2),
        "max_pool_connections": _CONNECTIONS,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }
    region = session.get_config_variable("region") or "us-east-1"
    try:
        api = session.create_client("s3", region, config=botocore.config.Config(**common))
        host = urlsplit(api.meta.endpoint_url).hostname or ""
        if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")) and api.meta.config.s3 is None:
            # Other servers seldom have a name for each bucket.
            config = botocore.config.Config(**common, s3={"addressing_style": "path"})
            api = session.create_client("s3", region, config=config)
    except (BotoCoreError, ValueError) as error:
        # The library's own words may repeat what is configured.
        raise Unreachable(
            "deep_store_denied",
            "the configuration of S3 cannot be used",
            found=type(error).__name__,
            expected="AWS_… variables and files as the AWS tools take them",
            hint="look at AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE and AWS_CA_BUNDLE",
        ) from None
    # `Expect: 100-continue` costs a round trip, and a connection that ends within the answer to it hangs the library.
    api.meta.events.unregister("before-call.s3", add_expect_header)
    api.meta.events.register("after-call.s3", _check_whole)
    return S3Client(api, patience_seconds)


def _check_whole(http_response: Any, parsed: dict[str, Any], model: Any, **_: object) -> None:
    """Raise when an answer that says yes was cut: the library takes what came for the whole."""
    if http_response.status_code >= 300 or http_response.status_code == 204:
        return
    if any(name not in parsed for name in _SAID_BY.get(model.name, ())):
        raise IncompleteReadError(actual_bytes=0, expected_bytes=0)
    if model.has_streaming_output or model.http["method"] == "HEAD":
        return
    length = http_response.headers.get("content-length")
    if length is None and "transfer-encoding" in http_response.headers:
        return  # its end was seen, or reading would have failed
    if length is None or len(http_response.content) != int(length):
        raise IncompleteReadError(actual_bytes=len(http_response.content), expected_bytes=length)


# A forked process must not talk on its parent's connections.
os.register_at_fork(after_in_child=s3_client.cache_clear)


def _is_transient(error: ClientError) -> bool:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    # 500 and 503 are S3's words for "try again"; 501 is not.
    return status in (429, 500, 502, 503, 504) or code_of(error) in _TRANSIENT


def _no_bucket(found: str) -> Unreachable:
    return Unreachable(
        "deep_store_no_bucket",
        "the deep store's bucket does not exist",
        found=found,
        expected="a bucket; anew makes none",
        hint="make the bucket, or look at ANEW_DEEP_STORE, AWS_ENDPOINT_URL and AWS_REGION",
    )
