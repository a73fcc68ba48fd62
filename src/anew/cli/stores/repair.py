"""``store repair``: a damaged base comes back from the replicas that serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anew.api.rebuilds import RebuildView
from anew.cli.display import TerminalObserver
from anew.cli.options import Conf, Master
from anew.cli.output import Json, out, print_json, print_table
from anew.cli.running import exit_code, print_outcome, spark_choice
from anew.cli.session import cluster
from anew.cli.stores.commands import stores_app
from anew.core.errors import Failed

if TYPE_CHECKING:
    from anew.rebuild.stores.damage import BaseDamage, Restored


def add_to(_app: typer.Typer) -> None:
    """The command of this module is one of ``store``'s: importing it adds it."""


@stores_app.command()
def repair(
    name: str,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is damaged; change nothing.")] = False,
    master: Master = None,
    conf: Conf = None,
    json_output: Json = False,
) -> int:
    """Read the base of the current version; bring back what is damaged from replicas, as it was or by a rebuild."""
    with cluster() as connected:
        damage = connected.find_damage(name)
        restored = view = still = None
        if damage.found and not dry_run:
            restored = connected.restore_base(name, damage)
            if restored.left:
                plan = connected.plan_repair_of_store(name, restored.left)
                with TerminalObserver() as observer:
                    view = connected.run_plan(plan, spark_choice(master, conf, None), observer, None)
            else:
                still = connected.find_damage(name)  # what a damaged dictionary hid, or the disk damaged again
    if still is not None and still.found:
        raise Failed(
            "still_damaged",
            f"the base of {name} was read again and is not as it was written",
            found=", ".join(damaged.part.path for damaged in still.parts) or str(still.dictionary),
            expected="what the manifest says",
            hint=f"repair again: anew store repair {name}; where that does not help, make a new version from its input",
        )
    if json_output:
        wrong = [damaged.to_json() for damaged in damage.parts]
        dictionary = None if damage.dictionary is None else damage.dictionary.to_json()
        paths = [] if restored is None else list(restored.paths)
        print_json({"store": name, "damaged": wrong, "dictionary": dictionary, "restored": paths, "rebuild": view})
    else:
        _print_repair(name, damage, restored, view)
    return 0 if view is None else exit_code(view)


def _print_repair(name: str, damage: BaseDamage, restored: Restored | None, view: RebuildView | None) -> None:
    if not damage.found:
        out().print(f"nothing of the base of {name} is damaged")
        return
    if damage.dictionary is not None:
        out().print(f"the dictionary is damaged: {damage.dictionary}", markup=False)
    rows = [(d.partition, d.sub_partition, d.part.path, d.error.message) for d in damage.parts]
    print_table(["partition", "sub", "damaged", "why"], rows)
    if restored is None:
        out().print(f"to bring it back: anew store repair {name}")
        return
    for path in restored.paths:
        out().print(f"{path} is back as it was written", markup=False)
    if view is not None:
        out().print(f"{len(restored.left)} parts came from replicas:")
        print_outcome(view, as_json=False)
