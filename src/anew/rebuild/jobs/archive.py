"""The code of a job as one file: its modules, and the files that it was given, the same bytes for the same contents."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import platform
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from anew.core.errors import InvalidRequest, NotFound
from anew.core.jobs.code import Environment, JobCode, check_params, parse_entry

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILES_FOLDER = "files"
_CODE_FOLDER = "code"
_MOST_BYTES = 256 << 20


def environment_here() -> Environment:
    """What this process runs in."""
    return Environment(python=".".join(platform.python_version_tuple()[:2]), pyspark=version("pyspark"))


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive, and what its code is known by; `JobCode.path` is where it is to lie."""

    code: JobCode
    content: bytes


def pack(entry: str, files: Mapping[str, Path], params: Mapping[str, str], folder: str) -> Packed:
    """The archive of a function: its module, the modules beside it, and the given files.

    Of a file its whole folder belongs to it, of a module in a package the whole package; what else it imports is the
    environment's.

    Args:
        entry: ``module:function`` or ``file.py:function``.
        files: Name → path, of what the function is given beside its frames.
        params: What it is called with.
        folder: Where in the deep store archives of the job lie.

    Raises:
        InvalidRequest: ``bad_entry``, ``bad_param``, ``code_too_large``.
        NotFound: ``unknown_module``, ``no_input``.
    """
    parsed = parse_entry(entry)
    check_params(params)
    if parsed.is_file:
        source = Path(parsed.where).expanduser().resolve()
        if not source.is_file():
            raise NotFound("unknown_module", "there is no such file", found=str(source), expected="a Python file")
        module, modules = source.stem, list(_modules_of(source.parent, source.parent))
    else:
        module, modules = parsed.where, _modules_named(parsed.where)
    named = sorted({**{f"{_CODE_FOLDER}/{name}": path for name, path in modules}, **_given(files)}.items())
    contents = {name: path.read_bytes() for name, path in named}
    size = sum(map(len, contents.values()))
    if size > _MOST_BYTES:
        raise InvalidRequest(
            "code_too_large",
            "the code of a job and its files are kept with each generation",
            found=f"{size} bytes",
            expected=f"at most {_MOST_BYTES}",
            hint="read larger files from a deep store in the function",
        )
    content = _zipped(contents)
    digest = hashlib.sha256(content).hexdigest()
    code = JobCode(
        module=module,
        function=parsed.function,
        archive=digest,
        path=f"{folder}/{digest}.zip",
        files={name: hashlib.sha256(contents[f"{_FILES_FOLDER}/{name}"]).hexdigest() for name in sorted(files)},
        params=dict(sorted(params.items())),
        **environment_here().model_dump(),
    )
    return Packed(code, content)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An archive on this machine: the folder that is to be in ``sys.path``, and its files by name."""

    modules: Path
    files: dict[str, Path]


def unpack(code: JobCode, content: bytes, folder: Path) -> Unpacked:
    """Write out an archive, after its bytes were proved.

    Raises:
        InvalidRequest: ``code_damaged``: it is not the archive that the code names.
    """
    found = hashlib.sha256(content).hexdigest()
    if found != code.archive:
        raise InvalidRequest(
            "code_damaged",
            f"the archive {code.path} is not what was submitted",
            found=f"SHA-256 {found}",
            expected=code.archive,
            hint="name the function again: anew job rewind JOB FUNCTION",
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    modules = folder / _CODE_FOLDER
    return Unpacked(modules, {name: folder / _FILES_FOLDER / name for name in code.files})


def changed_files(before: bytes, after: bytes) -> dict[str, str]:
    """Module or file → ``changed``, ``added`` or ``removed``, between two archives; those alike are left out."""
    old, new = _digests(before), _digests(after)
    words = {(True, True): "changed", (False, True): "added", (True, False): "removed"}
    differs = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return {name.partition("/")[2]: words[name in old, name in new] for name in differs}


def _digests(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def python_files(content: bytes) -> bytes:
    """The modules alone, as a zip that executors import from."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        prefix = f"{_CODE_FOLDER}/"
        names = [name for name in archive.namelist() if name.startswith(prefix)]
        return _zipped({name.removeprefix(prefix): archive.read(name) for name in names})


def _given(files: Mapping[str, Path]) -> dict[str, Path]:
    for name, path in files.items():
        if "/" in name or name in ("", ".", ".."):
            raise InvalidRequest("bad_param", "a file's name is one part of a path", found=name, expected="model.bin")
        if not path.is_file():
            raise NotFound("no_input", "there is no such file", found=str(path), expected="a file that can be read")
    return {f"{_FILES_FOLDER}/{name}": path for name, path in files.items()}


def _modules_named(name: str) -> list[tuple[str, Path]]:
    top = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFound(
            "unknown_module",
            "there is no such module",
            found=name,
            expected="a module of Python files that this interpreter imports, or the path of a file",
            hint="for a file write its path: jobs/delays.py:delay_class",
        )
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return list(_modules_of(origin.parent, origin.parent))
    return list(_modules_of(origin.parent, origin.parent.parent, deep=True))


def _modules_of(folder: Path, root: Path, *, deep: bool = False) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("**/*.py" if deep else "*.py")):
        # Editors leave links that lead nowhere: ``.#module.py``.
        if path.name.startswith(".") or not path.is_file():
            continue
        yield path.relative_to(root).as_posix(), path
    if not deep:
        for package in sorted(folder.glob("*/__init__.py")):
            yield from _modules_of(package.parent, root, deep=True)


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip whose bytes depend on names and contents alone."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            archive.writestr(info, content)
    return out.getvalue()
