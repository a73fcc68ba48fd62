"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="A store setting; may be repeated.")]
Properties = Annotated[Path | None, typer.Option("--properties", help="A .properties file with the guide's keys.")]
Defines = Annotated[list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="One key of the guide.")]
RequestId = Annotated[
    str | None, typer.Option("--request-id", help="Repeating a request with the same id returns the first result.")
]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master, e.g. local[4] or spark://…")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A Spark setting; may be repeated.")]
Jars = Annotated[str | None, typer.Option("--jars", help="JAR,…: jars for Spark.")]
Detach = Annotated[bool, typer.Option("--detach", help="Run in a process of its own; return once it has begun.")]
Fabrics = Annotated[list[str] | None, typer.Option("--fabric", help="A fabric; may be repeated.")]
