"""What passes between a node and its loader process about a segment, and the work itself: fetch, check, make again."""

from __future__ import annotations

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

        Raises:
            Failed: ``checksum_mismatch``, ``file_missing``; what `rebuild_file` raises.
            Unreachable: The deep store does not answer.
        """
        directory = Path(self.directory)
        directory.mkdir(parents=True, exist_ok=True)
        copy = read_copy(directory)
        if copy is None:
            copy = self._fetched(directory)
        if self.wanted is not None and self.wanted.hash != copy.config_hash:
            copy = self._made_again(directory, copy, self.wanted)
        copy = copy.model_copy(update={"reload": self.reload})
        write_copy(directory, copy)
        return copy

    def _fetched(self, directory: Path) -> Copy:
        file = directory / file_name(None)
        file.unlink(missing_ok=True)
        open_deep_store(self.deep_store).download(self.build.path, file, self.build.sha256)
        file.chmod(0o444)
        return Copy(
            build=self.build.id,
            file=file.name,
            bytes=self.build.bytes,
            config_hash=self.build.served_hash,
            contents=self.build.contents,
        )

    def _made_again(self, directory: Path, copy: Copy, wanted: SegmentConfig) -> Copy:
        target = directory / file_name(wanted.hash)
        target.unlink(missing_ok=True)
        rebuilt = rebuild_file(directory / copy.file, target, RebuildJob(wanted, filled=copy.contents.filled))
        return copy.model_copy(
            update={
                "file": target.name,
                "bytes": rebuilt.bytes,
                "config_hash": wanted.hash,
                "contents": rebuilt.contents,
                "rebuilt_rows": copy.rebuilt_rows + rebuilt.rows_read,
            }
        )
