"""Compiles the parts of the package that are written in C when a wheel, or an editable installation, is made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILT_OF = {
    "src/anew/core/_hashing.so": "src/anew/core/hashing.c",
    "src/anew/storage/_rocks.so": "src/anew/storage/rocks.c",
    "src/anew/log/kafka/_kafka.so": "src/anew/log/kafka/kafka.c",
}
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # untyped where mypy looks
    """See hatchling's ``BuildHookInterface``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what was made."""
        for built, source in _BUILT_OF.items():
            _compile(Path(self.root, source), Path(self.root, built))
            build_data["artifacts"].append(built)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compile(source: Path, target: Path) -> None:
    fresh = target.with_suffix(f".{os.getpid()}")
    # What this library calls is Python's own executable's, which loads it.
    linked = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-ldl", "-lpthread")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        subprocess.run([*compiler, *_FLAGS, "-o", str(fresh), str(source), *linked], check=True)
    except FileNotFoundError:
        raise SystemExit(
            f"anew: there is no C compiler; found: no {compiler[0]}; expected: one called cc, or named by CC;"
            " hint: Debian, Ubuntu: apt-get install gcc libc6-dev"
        ) from None
    # In one step: a process that has the one before open keeps it.
    fresh.replace(target)
