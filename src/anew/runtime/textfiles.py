"""Files that people write and name: read whole, as text."""

from __future__ import annotations

from pathlib import Path

from anew.core.errors import NotFound


def text_in(path: Path, expected: str) -> str:
    """What a file says.

    Args:
        path: The file; ``~`` is the user's home.
        expected: What it should be, in an error's words.

    Raises:
        NotFound: ``no_input``: there is no such file, it cannot be read, or it is no text in UTF-8.
    """
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = f"{path}: {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}"
        raise NotFound("no_input", "the file cannot be read", found=found, expected=expected) from error
