"""What figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("anew", "pyspark", "pyarrow", "numpy", "rocksdict")


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory, and the versions of everything that decides."""
    return {
        "cpu": _line_of("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int((_line_of("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "java": _java(),
            **{name: version(name) for name in _PACKAGES},
        },
    }


def peak_rss_bytes(process: int) -> int:
    """The most memory that a process ever held, since it began or since `forget_peak`."""
    return int((_line_of(f"/proc/{process}/status", "VmHWM") or "0 kB").split()[0]) * 1024


def forget_peak(process: int) -> None:
    """Let a process's peak begin anew."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def _line_of(path: str, name: str) -> str | None:
    file = Path(path)
    for line in file.read_text().splitlines() if file.exists() else []:
        if line.split(":")[0].strip() == name:
            return line.partition(":")[2].strip()
    return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    told = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True)
    lines = told.stderr.splitlines()
    return lines[0] if lines else "unknown"
