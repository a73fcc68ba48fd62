"""What two archives of code differ in."""

from __future__ import annotations

from pathlib import Path

from anew.rebuild.jobs.archive import changed_files, pack


def _packed(folder: Path, modules: dict[str, str], files: dict[str, str]) -> bytes:
    folder.mkdir()
    for name, text in {**modules, **files}.items():
        (folder / name).write_text(text)
    return pack(f"{folder / 'job.py'}:run", {name: folder / name for name in files}, {}, "code").content


def test_modules_and_files_that_differ_are_named(tmp_path: Path) -> None:
    """Those alike are not, nor is what alone the folder knows."""
    before = _packed(tmp_path / "a", {"job.py": "1", "same.py": "s", "old.py": "o"}, {"model.bin": "m"})
    after = _packed(tmp_path / "b", {"job.py": "2", "same.py": "s", "new.py": "n"}, {"model.bin": "m2"})
    assert changed_files(before, after) == {
        "job.py": "changed",
        "old.py": "removed",
        "new.py": "added",
        "model.bin": "changed",
    }
    assert changed_files(before, before) == {}
