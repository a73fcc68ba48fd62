"""The deep store below a prefix of an S3 bucket."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from botocore.exceptions import ClientError

from anew.deepstore.copies import copy_checked
from anew.deepstore.failures import file_missing, path_taken
from anew.deepstore.interface import StoredFile
from anew.deepstore.paths import check_path
from anew.deepstore.s3client import Attempts, S3Client, code_of
from anew.deepstore.s3read import MISSING, RangedFile, chunks
from anew.deepstore.s3write import Place, Upload, create
from anew.deepstore.uri import Root

_Objects = list[Any]
_AT_ONCE = 1_000
"""How many objects one request lists or deletes; S3 takes no more."""
_FETCHERS = 8


class S3DeepStore:
    """`anew.deepstore.interface.DeepStore` below a prefix of a bucket."""

    def __init__(self, root: Root, client: S3Client) -> None:
        """Use a prefix of a bucket; nothing is asked of it yet.

        Args:
            root: Bucket and prefix.
            client: How they are reached.
        """
        self._root = root
        self._client = client

    @property
    def root_uri(self) -> str:
        """See `DeepStore.root_uri`."""
        return self._root.uri

    def check(self) -> None:
        """See `DeepStore.check`: the bucket is there, and what lies below the prefix may be listed."""
        self._client.check_bucket(self._root.bucket)
        self._attempts("").run(
            lambda: self._client.api.list_objects_v2(Bucket=self._root.bucket, Prefix=f"{self._root.path}/", MaxKeys=1)
        )

    def absolute(self, path: str) -> str:
        """See `DeepStore.absolute`."""
        check_path(path)
        return f"{self._root.uri}/{path}"

    @contextmanager
    def write(self, path: str) -> Iterator[pa.NativeFile]:
        """See `DeepStore.write`."""
        place = self._place(path)
        if self._head(place) is not None:
            raise path_taken(path)
        upload = Upload(place)
        try:
            yield pa.PythonFile(upload, mode="w")
            upload.finish()
        except BaseException:
            upload.abandon()
            raise

    def put(self, path: str, content: bytes) -> None:
        """See `DeepStore.put`."""
        create(self._place(path), content)

    def open(self, path: str) -> pa.NativeFile:
        """See `DeepStore.open`."""
        place = self._place(path)
        found = self._head(place)
        if found is None:
            raise file_missing(path)
        return pa.PythonFile(RangedFile(place, int(found["ContentLength"]), _fetchers()), mode="r")

    def get(self, path: str) -> bytes:
        """See `DeepStore.get`."""
        return b"".join(chunks(self._place(path)))

    def stat(self, path: str) -> StoredFile | None:
        """See `DeepStore.stat`."""
        found = self._head(self._place(path))
        return None if found is None else _stored(path, found["ContentLength"], found["LastModified"])

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """See `DeepStore.list`; an empty prefix means the whole store."""
        # S3 lists in the order of the keys' UTF-8, which is that of their code points.
        return iter([_stored(self._relative(o["Key"]), o["Size"], o["LastModified"]) for o in self._objects(prefix)])

    def checksum(self, path: str) -> str:
        """See `DeepStore.checksum`."""
        digest = hashlib.sha256()
        for chunk in chunks(self._place(path)):
            digest.update(chunk)
        return digest.hexdigest()

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """See `DeepStore.download`. Local errors of the target are raised as they are."""
        copy_checked(path, chunks(self._place(path)), target, expected_checksum)

    def delete(self, path: str) -> None:
        """See `DeepStore.delete`."""
        place = self._place(path)
        self._attempts(path).run(lambda: self._client.api.delete_object(**place.names))

    def delete_tree(self, prefix: str) -> int:
        """See `DeepStore.delete_tree`; uploads that are under way there end too, uncounted."""
        check_path(prefix)
        self._abort_uploads(prefix)
        keys, count = [found["Key"] for found in self._objects(prefix)], 0
        for first in range(0, len(keys), _AT_ONCE):
            count += self._delete_all(prefix, keys[first : first + _AT_ONCE])
        return count

    def _delete_all(self, prefix: str, keys: _Objects) -> int:
        count, attempts = len(keys), self._attempts(prefix)
        while keys:
            wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            answer = attempts.run(
                functools.partial(self._client.api.delete_objects, Bucket=self._root.bucket, Delete=wanted)
            )
            left = answer.get("Errors", [])
            keys = [str(entry["Key"]) for entry in left]
            if keys:
                # One by one they failed as a whole request may: judged by the first.
                status = 403 if left[0]["Code"] == "AccessDenied" else 503
                body: Any = {"Error": left[0], "ResponseMetadata": {"HTTPStatusCode": status}}
                attempts.failed(ClientError(body, "DeleteObjects"))
        return count

    def _abort_uploads(self, prefix: str) -> None:
        below = f"{self._root.path}/{prefix}/"
        pages = self._client.api.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._root.bucket, Prefix=below
        )
        found = self._attempts(prefix).run(lambda: [u for page in pages for u in page.get("Uploads", [])])
        for upload in found:
            try:
                self._attempts(prefix).run(
                    functools.partial(
                        self._client.api.abort_multipart_upload,
                        Bucket=self._root.bucket,
                        Key=upload["Key"],
                        UploadId=upload["UploadId"],
                    )
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":  # it ended meanwhile
                    raise

    def _objects(self, prefix: str) -> _Objects:
        if prefix:
            check_path(prefix.rstrip("/"))
        below = f"{self._root.path}/{prefix.rstrip('/')}/" if prefix else f"{self._root.path}/"
        found: _Objects = []
        wanted: dict[str, Any] = {"Bucket": self._root.bucket, "Prefix": below, "MaxKeys": _AT_ONCE}
        while True:
            attempts = self._attempts(prefix)
            page = attempts.run(functools.partial(self._client.api.list_objects_v2, **wanted))
            # Some tools make empty objects with a slash at the end, to look like directories.
            found += [entry for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
            if not page.get("IsTruncated"):
                return found
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def _head(self, place: Place) -> Any:
        """What S3 says of an object, None when there is none."""
        try:
            return place.attempts().run(lambda: self._client.api.head_object(**place.names))
        except ClientError as error:
            if code_of(error) not in MISSING:
                raise
        # The answer to HEAD does not say what is missing, and no bucket must not look like no file.
        self._client.check_bucket(self._root.bucket)
        return None

    def _same(self, path: str, checksum: str) -> bool:
        return self.stat(path) is not None and self.checksum(path) == checksum

    def _place(self, path: str) -> Place:
        check_path(path)
        key = f"{self._root.path}/{path}"
        return Place(self._client, self._root.bucket, key, path, functools.partial(self._same, path))

    def _attempts(self, path: str) -> Attempts:
        return self._client.attempts(path)

    def _relative(self, key: str) -> str:
        return key.removeprefix(f"{self._root.path}/")


@functools.cache
def _fetchers() -> ThreadPoolExecutor:
    """Who reads ahead, for all open files of this process."""
    return ThreadPoolExecutor(_FETCHERS, thread_name_prefix="anew-fetch")


# Threads do not come along into a forked process.
os.register_at_fork(after_in_child=_fetchers.cache_clear)


def _stored(path: str, size: Any, modified: Any) -> StoredFile:
    return StoredFile(path, int(size), int(modified.timestamp() * 1_000))
