"""What passes between a node and its loader process about a segment, and the work itself: fetch, check, make again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Build
from anew.deepstore.open import open_deep_store
from anew.node.tables.copies import Copy, file_name, read_copy, write_copy
from anew.segments.tables.rebuild import RebuildJob, rebuild_file


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """A copy to be made.

    Attributes:
        deep_store: The root to open.
        build: Of which build.
        directory: Where it is made; what lies there already and is whole is not fetched again.
        wanted: The configuration to make it again with; None: it is served as it is.
        reload: The reload that it then has followed.
    """

    deep_store: str
    build: Build
    directory: str
    wanted: SegmentConfig | None
    reload: int

    @property
    def name(self) -> str:
        """The build's path."""
        return self.build.path

    def run(self) -> Copy:
        """Fetch and check the file, unless it is there; make it again, where asked.

        A copy is always made from the build's own bytes, which are fetched again where they are not there, or no longer
        right: what is served depends on the build and on the configuration, not on the disk, nor on the configurations
        in between, which may have had fewer columns.

        Raises:
            Failed: ``checksum_mismatch``, ``file_missing``; what `rebuild_file` raises.
            Unreachable: The deep store does not answer.
        """
        directory = Path(self.directory)
        directory.mkdir(parents=True, exist_ok=True)
        found = read_copy(directory)
        copy = self._fetched(directory, 0) if found is None else found
        if found is None:
            # It counts from here on: what fails below is tried again without another download.
            write_copy(directory, copy)
        if self.wanted is None and copy.contents.rows < self.build.contents.rows:
            # A row filter, which may be another now, took rows out of what was made again.
            copy = self._fetched(directory, copy.number + 1)
        rebuilt_rows = copy.rebuilt_rows
        if self.wanted is not None and self.wanted.hash != copy.config_hash:
            if found is not None and not self._is_the_build(found, directory):
                copy = self._fetched(directory, found.number + 1)
            if self.wanted.hash != copy.config_hash:
                copy = self._made_again(directory, copy, self.wanted)
                rebuilt_rows += copy.rebuilt_rows
        copy = copy.model_copy(update={"reload": self.reload, "rebuilt_rows": rebuilt_rows})
        write_copy(directory, copy)
        return copy

    def _is_the_build(self, copy: Copy, directory: Path) -> bool:
        """Whether a copy's file has the bytes of the build, also after all that its disk did to it."""
        if not copy.original:
            return False
        with (directory / copy.file).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.build.sha256

    def _fetched(self, directory: Path, number: int) -> Copy:
        file = directory / file_name(number, None)
        file.unlink(missing_ok=True)
        open_deep_store(self.deep_store).download(self.build.path, file, self.build.sha256)
        file.chmod(0o444)
        return Copy(
            build=self.build.id,
            file=file.name,
            bytes=self.build.bytes,
            number=number,
            original=True,
            config_hash=self.build.served_hash,
            contents=self.build.contents,
        )

    def _made_again(self, directory: Path, original: Copy, wanted: SegmentConfig) -> Copy:
        number = original.number + 1
        target = directory / file_name(number, wanted.hash)
        target.unlink(missing_ok=True)
        rebuilt = rebuild_file(directory / original.file, target, RebuildJob(wanted, known=original.contents))
        return Copy(
            build=original.build,
            file=target.name,
            bytes=rebuilt.bytes,
            number=number,
            original=False,
            config_hash=wanted.hash,
            rebuilt_rows=rebuilt.rows_read,
            contents=rebuilt.contents,
        )
