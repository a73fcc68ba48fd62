"""A program with a Spark session of its own, in which commands run one after another: ``python notebook.py CONF``.

CONF is a JSON object of Spark's settings. Each line of standard input is an order: a JSON object with the arguments of
a command, variables for its environment, the Python that tasks run in, and whether the package is sent to it. Each line
of standard output is the answer: the exit code and what was printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from pyspark.sql import SparkSession

from anew.cli.main import run_command


def main(conf: str) -> None:
    """Obey until the end of the orders."""
    builder = SparkSession.Builder().appName("notebook")
    for name, value in json.loads(conf).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    context = session.sparkContext
    context.setLogLevel("OFF")
    python, includes = context.pythonExec, list(context._python_includes or [])
    for line in sys.stdin:
        order = json.loads(line)
        # Both belong to a context, so that for another choice it would take another one, and its executors.
        context.pythonExec = order.get("python", python)
        context._python_includes = includes if order.get("sent", True) else []
        printed, before = io.StringIO(), dict(os.environ)
        os.environ.update(order.get("environment", {}))
        with contextlib.redirect_stdout(printed):
            code = run_command([*order["arguments"], "--json"])
        os.environ.clear()
        os.environ.update(before)
        sys.stdout.write(json.dumps({"code": code, "out": printed.getvalue()}) + "\n")
        sys.stdout.flush()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
