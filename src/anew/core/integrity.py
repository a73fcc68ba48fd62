"""Codes of errors that are a base's own: whoever reads it meets them."""

from __future__ import annotations

NOT_AS_PROMISED = frozenset(
    {
        "checksum_mismatch",
        "fingerprint_mismatch",
        "unsorted_base_file",
        "file_missing",
        "foreign_records",
        "offset_out_of_range",
        "topic_lost",
    }
)
"""What a load says of a base that is not what its manifest promises: once it may have been the way here (case G2)."""
OF_THE_BASE = NOT_AS_PROMISED | {"missing_dictionary", "bad_manifest", "corrupt_value"}
"""What a node says of a replica that no other node could make either."""
OF_THE_LOG = frozenset({"log_corrupt", "offset_out_of_range", "topic_lost"})
"""What a node says of a replica that no other node could read further either."""
