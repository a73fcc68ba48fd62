"""``token make|list|remove``: who may do what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anew.cli.output import Json, err, out, print_json, print_table
from anew.core.grants import Grant, Right
from anew.runtime.clock import now_ms
from anew.runtime.settings import resolve
from anew.runtime.tokens import list_tokens, make_token, remove_token

_DAY_MS = 86_400_000

tokens_app = typer.Typer(help="Who may do what: tokens that servers accept.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(tokens_app, name="token")


@tokens_app.command("make")
def make(
    name: str,
    *,
    right: Annotated[Right, typer.Option("--right", help="What it allows; each right holds those before it.")],
    store: Annotated[list[str] | None, typer.Option("--store", help="Only for this store; may be repeated.")] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, max=36_500, help="It expires after so many.")] = None,
    json_output: Json = False,
) -> None:
    """Make a token and print it, once: only its hash is kept. It acts within a second."""
    expires = None if days is None else now_ms() + days * _DAY_MS
    token, grant = make_token(
        resolve({}), name, right, stores=tuple(store if store is not None else ()), expires_at_ms=expires
    )
    if json_output:
        print_json({**_shape(grant), "token": token})
        return
    err().print(f"{grant.name} may {grant.right.value} {_stores(grant)}; this is shown once:")
    out().print(token, markup=False)


@tokens_app.command("list")
def list_all(*, json_output: Json = False) -> None:
    """All tokens: name, right, stores, expiry; never the tokens themselves."""
    grants = list_tokens(resolve({}))
    if json_output:
        print_json([_shape(grant) for grant in grants])
        return
    now = now_ms()
    rows = [(g.name, g.right.value, _stores(g), g.expires_at_ms, "yes" if g.has_expired(now) else "") for g in grants]
    print_table(["name", "right", "stores", "expires at (ms)", "expired"], rows)


@tokens_app.command("remove")
def remove(name: str, *, json_output: Json = False) -> None:
    """Take a token out; servers turn it away within a second."""
    remove_token(resolve({}), name)
    if json_output:
        print_json({"removed": name})
    else:
        out().print(f"{name} is removed")


def _shape(grant: Grant) -> dict[str, Any]:
    stores = None if grant.stores is None else sorted(grant.stores)
    return {"name": grant.name, "right": grant.right.value, "stores": stores, "expires_at_ms": grant.expires_at_ms}


def _stores(grant: Grant) -> str:
    return "all stores" if grant.stores is None else ", ".join(sorted(grant.stores))
