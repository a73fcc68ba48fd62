"""What this release rebuilds. A wing is added here, and nowhere else."""

from __future__ import annotations

from anew.controller.engine.outputs import Outputs
from anew.controller.engine.subjects import Subjects
from anew.controller.jobs.subject import JobSubject
from anew.controller.stores.output import StoreOutput
from anew.controller.stores.subject import StoreSubject
from anew.controller.tables.subject import TableSubject
from anew.controller.topics.output import TopicOutput

OUTPUTS = Outputs((StoreOutput(), TopicOutput()))
"""What jobs can write into."""

SUBJECTS = Subjects((StoreSubject(), TableSubject(), JobSubject()))
