"""A base that a disk has damaged is never built upon and never served, and ``anew store repair`` brings it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anew.runtime.connect import connect
from tests.cluster.commands import Anew, Answer, write_people

_STORE = ("hybrid=true", "partitions=2", "rt_partitions=4", "replicas=2")


def _files(anew: Anew, name: str, pattern: str) -> list[Path]:
    """Files of the store's first version in the deep store, by path."""
    uid = anew.here("store", "show", name)["uid"]
    return sorted((anew.home / "deepstore" / "dc-0" / "stores" / uid / "v1").rglob(pattern))


def _base(anew: Anew, name: str) -> list[Path]:
    return _files(anew, name, "base/*.parquet")


def _flip(path: Path, at: int) -> None:
    """Turn one bit over in place; what has the file open sees it."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def _value(anew: Anew, name: str) -> str:
    path = _base(anew, name)[0]
    _flip(path, path.read_bytes().index(b"name ") + 3)
    return path.name


def _page_header(anew: Anew, name: str) -> str:
    path = _base(anew, name)[0]
    _flip(path, 6)
    return path.name


def _footer(anew: Anew, name: str) -> str:
    path = _base(anew, name)[1]
    _flip(path, path.stat().st_size - 40)
    return path.name


def _cut(anew: Anew, name: str) -> str:
    path = _base(anew, name)[0]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    return path.name


def _gone(anew: Anew, name: str) -> str:
    path = _base(anew, name)[0]
    path.unlink()
    return path.name


def _swapped(anew: Anew, name: str) -> tuple[str, str]:
    one, other = _base(anew, name)[:2]
    kept = one.with_name("kept")
    one.rename(kept)
    other.rename(one)
    kept.rename(other)
    return one.name, other.name


def _dictionary(anew: Anew, name: str) -> str:
    (path,) = _files(anew, name, "dictionary.zstd")
    _flip(path, path.stat().st_size // 2)
    return path.name


def _version_topic(anew: Anew, name: str) -> str:
    topic = f"{name}_v1"
    for path in sorted((anew.home / "log").rglob(f"{topic}/p-*.sqlite*")):
        content = path.read_bytes()
        if b"name " in content:
            _flip(path, content.index(b"name ") + 3)
            return topic
    raise AssertionError("no file of the version topic holds a value")


def _repush(anew: Anew, name: str) -> Answer:
    return anew.run_here("repush", name)


def _verify(anew: Anew, name: str) -> Answer:
    return anew.run_here("store", "verify", name)


@dataclass(frozen=True, slots=True)
class Damage:
    """One way to damage a base, and who meets it.

    Attributes:
        does: Damages the first version of a store; returns what an error must name: where tasks meet several damaged
            files at once, whichever of them fails first.
        meets: The command that reads the base: it must fail.
        settings: More settings of the store; ``changed``: settings after the push, so that a repush takes another path.
        overwritten: Whether writes take the place of rows of the base, so that no replica has it any more.
        codes: What the command may end with.
    """

    does: Callable[[Anew, str], str | tuple[str, ...]]
    meets: Callable[[Anew, str], Answer]
    settings: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    overwritten: bool = False
    code: str = "checksum_mismatch"


_DAMAGE = {
    "a value, co-partitioned": Damage(_value, _repush),
    "a value, general": Damage(_value, _repush, changed=("partitions=3",)),
    "a value, verified": Damage(_value, _verify, code="fingerprint_mismatch"),
    "a page's header, recoded": Damage(_page_header, _repush, changed=("compression=gzip",)),
    "a footer, general": Damage(_footer, _repush, changed=("partitions=1",)),
    "a footer, verified": Damage(_footer, _verify, code="fingerprint_mismatch"),
    "cut short": Damage(_cut, _repush),
    "gone": Damage(_gone, _verify, code="fingerprint_mismatch"),
    "two files swapped": Damage(_swapped, _repush),
    "a dictionary": Damage(_dictionary, _repush, settings=("compression=zstd_dict",)),
    "a version topic": Damage(_version_topic, _repush, settings=("transport=log",), code="log_corrupt"),
    "rows that were overwritten": Damage(_value, _repush, overwritten=True),
}


@pytest.mark.parametrize("kind", list(_DAMAGE))
def test_a_damaged_base_is_named_never_served_and_repaired(anew: Anew, tmp_path: Path, kind: str) -> None:
    """The command that reads it fails and names it, the version serves on, and after a repair all is as it was."""
    damage, name = _DAMAGE[kind], f"damaged{list(_DAMAGE).index(kind)}"
    people = write_people(tmp_path / "people.csv")
    anew.create(name, *_STORE, *damage.settings)
    anew.push(name, people)
    if damage.overwritten:
        anew.write(name, *({"key": f"p{n}", "value": {"name": f"newer {n}", "age": n}} for n in range(1, 16)))
    whole = anew.scan(name)
    for setting in damage.changed:
        anew.here("store", "update", name, "--set", setting)
    done = damage.does(anew, name)
    named = (done,) if isinstance(done, str) else done
    met = damage.meets(anew, name)
    assert met.code != 0
    assert met.error["code"] == damage.code, met.out
    assert any(one in met.out for one in named), met.out
    assert (anew.here("store", "show", name)["fabrics"]["dc-0"]["current"], anew.scan(name)) == (1, whole)
    said = anew.here("store", "repair", name, "--dry-run")
    assert said["restored"] == []
    assert all(one in json.dumps(said) for one in named)
    repaired = anew.here("store", "repair", name)
    rebuilt = damage.overwritten or damage.does is _version_topic
    assert (repaired["rebuild"] is not None, bool(repaired["restored"])) == (rebuilt, not rebuilt)
    assert anew.here("store", "verify", name)["equal"] is True
    assert anew.scan(name) == whole
    anew.here("repush", name)
    assert anew.scan(name) == whole
    assert anew.here("store", "repair", name)["damaged"] == []


def test_a_dataframe_of_a_damaged_store_is_not_given(anew: Anew, people: Path, spark: Any) -> None:
    """`Cluster.read_store` fails like a repush does, instead of giving another value."""
    anew.create("unread", *_STORE)
    anew.push("unread", people)
    named = _value(anew, "unread")
    with connect(home=str(anew.home)) as cluster, pytest.raises(Exception, match=named):
        cluster.read_store(spark, "unread").collect()
    anew.here("store", "repair", "unread")
    with connect(home=str(anew.home)) as cluster:
        assert cluster.read_store(spark, "unread").count() == 20
