"""Compiles the part of the package that is written in C when a wheel, or an editable installation, is made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE, _BUILT = "src/anew/storage/rocks.c", "src/anew/storage/_rocks.so"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # untyped where mypy looks
    """See hatchling's ``BuildHookInterface``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what was made."""
        target = Path(self.root, _BUILT)
        fresh = target.with_suffix(f".{os.getpid()}")
        # What this library calls is Python's own executable's, which loads it.
        linked = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-ldl", "-lpthread")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        try:
            subprocess.run([*compiler, *_FLAGS, "-o", str(fresh), str(Path(self.root, _SOURCE)), *linked], check=True)
        except FileNotFoundError:
            raise SystemExit(
                f"anew: there is no C compiler; found: no {compiler[0]}; expected: one called cc, or named by CC;"
                " hint: Debian, Ubuntu: apt-get install gcc libc6-dev"
            ) from None
        # In one step: a process that has the one before open keeps it.
        fresh.replace(target)
        build_data["artifacts"].append(_BUILT)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
