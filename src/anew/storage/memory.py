"""What all RocksDB instances of a node share: one block cache, one write-buffer budget, one file limit (rule R25)."""

from __future__ import annotations

import resource

from anew.core.errors import Failed
from anew.storage.rocks import LZ4, Cache, Options, TableOptions, WriteBuffers

MIB = 1024 * 1024
FILES_PER_INSTANCE = 8
"""Measured: 128 open instances take 774 descriptors; compaction takes some more for a while."""
FILES_BESIDES = 256
_BLOOM_BITS = 10.0
_WINDOW_BITS, _LZ4_ACCELERATION = -14, 10
"""RocksDB's default window, which LZ4 has no use for; and how fast LZ4 passes over bytes that do not compress. Values
come compressed by the version's codec, or are not to be: what is left is in the cells' headers. Measured with 96 random
bytes a value: a quarter less time per cell of a sorted file, 1.4 % more bytes."""
_WRITE_BUFFER_BYTES = 8 * MIB
_ARENA_BLOCK_BYTES = 16 * 1024
"""What a family takes of the write-buffer budget with its first write. RocksDB's own choice is an eighth of its write
buffer: fifty instances would use the budget up with a record each, and from then on each write would be a flush."""
_WAL_BYTES = 32 * MIB
_INFO_LOG_BYTES = MIB


class NodeMemory:
    """The budget of a node. Make one per process, and give it to each `anew.storage.replica.Replica`.

    Attributes:
        instance_limit: How many instances the process's limit on open files allows.
    """

    def __init__(self, cache_bytes: int = 256 * MIB, write_buffer_bytes: int = 64 * MIB) -> None:
        self._cache = Cache(cache_bytes)
        self._buffers = WriteBuffers(write_buffer_bytes, self._cache)
        self.instance_limit = _raise_file_limit()

    def check_room(self, instances: int) -> None:
        """Raise unless so many instances may be open at once.

        Raises:
            Failed: ``file_limit_too_low``.
        """
        if instances > self.instance_limit:
            raise Failed(
                "file_limit_too_low",
                f"{instances} replicas need more open files than this process may have",
                found=f"room for {self.instance_limit} replicas",
                expected=f"ulimit -n of at least {instances * FILES_PER_INSTANCE + FILES_BESIDES}",
                hint="raise the limit of open files, or add nodes",
            )

    def options(self) -> Options:
        """The options of an instance, and of its cells."""
        options = Options()
        options.set_tables(_tables(self._cache))
        _compress(options)
        options.set("write_buffer_manager", self._buffers)
        options.set("write_buffer_size", _WRITE_BUFFER_BYTES)
        options.set("arena_block_size", _ARENA_BLOCK_BYTES)
        options.set("create_if_missing", True)
        options.set("create_missing_column_families", True)
        # Data and positions must reach the disk together even when a power failure cuts the end of the log off (R5).
        options.set("atomic_flush", True)
        options.set("max_total_wal_size", _WAL_BYTES)
        options.set("keep_log_file_num", 2)
        options.set("max_log_file_size", _INFO_LOG_BYTES)
        options.set("stats_dump_period_sec", 0)
        return options

    def small_options(self) -> Options:
        """The options of a column family with a handful of keys."""
        options = Options()
        options.set("write_buffer_size", MIB)
        options.set("arena_block_size", _ARENA_BLOCK_BYTES)
        return options


def sst_options() -> Options:
    """The options of a sorted file made outside of any instance."""
    options = Options()
    options.set_tables(_tables(None))
    _compress(options)
    return options


def _compress(options: Options) -> None:
    options.set("compression", LZ4)
    # A negative level is LZ4's acceleration.
    options.set("compression_options", _WINDOW_BITS, -_LZ4_ACCELERATION, 0, 0)


def _tables(cache: Cache | None) -> TableOptions:
    tables = TableOptions()
    tables.set_bloom_filter(_BLOOM_BITS)
    tables.set("format_version", 5)
    if cache is not None:
        tables.set("block_cache", cache)
        tables.set("cache_index_and_filter_blocks", True)
    return tables


def _raise_file_limit() -> int:
    """Use all the descriptors that the process may have; how many instances they are enough for.

    Raises:
        Failed: ``file_limit_too_low``: not even one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    instances = (soft - FILES_BESIDES) // FILES_PER_INSTANCE
    if instances < 1:
        raise Failed(
            "file_limit_too_low",
            "this process may open too few files",
            found=soft,
            expected=f"at least {FILES_BESIDES + FILES_PER_INSTANCE}",
            hint="raise ulimit -n",
        )
    return instances
