"""The entry of a detached supervisor: ``python -m anew.runtime.supervise CLUSTER`` with the planned cluster as JSON."""

from __future__ import annotations

import sys

from anew.runtime.home import Home, cluster_from_json
from anew.runtime.logs import log_to_file
from anew.runtime.security import keep_files_private
from anew.runtime.settings import resolve
from anew.runtime.supervisor import Supervisor

if __name__ == "__main__":
    keep_files_private()
    settings = resolve({})
    home = Home(settings.home)
    log_to_file(home.log_file("supervisor"), "supervisor", settings.text("log_level"))
    Supervisor(settings, cluster_from_json(sys.argv[1]), home).run()
