"""Bytes from outside, drawn and bent by Hypothesis: each parser takes them, or refuses them in this project's way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from anew.api.stores.node_wire import decode_keys
from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.feed import PositionMap
from anew.core.stamp import Origin
from tests.fuzz.targets import TARGETS, run
from tests.needs import missing

_ROOT = Path(__file__).parents[3]
_LIMITS = ("--seconds", "2", "--runs", "20000")
"""Of each target in the suite; `make fuzz` takes longer."""


@st.composite
def bent(draw: DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Bytes that a parser takes, with some of them changed, left out, said again or put in."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        piece = draw(st.binary(max_size=8))
        match draw(st.sampled_from(("change", "leave out", "say again", "put in"))):
            case "change":
                content[at : at + len(piece)] = piece
            case "leave out":
                del content[at : at + draw(st.integers(1, 16))]
            case "say again":
                content[at:at] = content[at : at + draw(st.integers(1, 64))]
            case _:
                content[at:at] = piece
    return bytes(content)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_a_parser_takes_is_what_it_should(name: str) -> None:
    """The texts from which the search begins are understood; else it would find nothing but refusals."""
    for content in TARGETS[name].seeds:
        TARGETS[name].take(content)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_bytes_break_a_parser(name: str) -> None:
    """Any bytes, and bytes that are nearly right, are understood or refused; nothing else comes out."""

    @settings(max_examples=120, deadline=None)
    @given(st.binary(max_size=200) | bent(TARGETS[name].seeds))
    def feed(content: bytes) -> None:
        run(name, content)

    feed()


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_atheris_finds_nothing_either() -> None:
    """Guided by the branches that bytes reach, a short search for each parser ends without a find."""
    try:
        import atheris  # noqa: F401  # whether it is there
    except ImportError:
        missing("atheris", f"it has no wheel for Python {sys.version_info[0]}.{sys.version_info[1]}")
    command = [sys.executable, "-m", "tests.fuzz", *_LIMITS]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, (done.stdout[-300:], done.stderr[-3_000:])
    assert f"{len(TARGETS)} targets, failed: none" in done.stdout


def test_only_the_projects_own_refusals_are_excused() -> None:
    """A parser that breaks in any other way is a find, though it refuses most bytes."""

    def broken(content: bytes) -> None:
        if content[:1] == b"x":
            raise IndexError("found")

    take: Callable[[bytes], None] = TARGETS["cell"].take
    object.__setattr__(TARGETS["cell"], "take", broken)
    try:
        run("cell", b"y")
        with pytest.raises(IndexError):
            run("cell", b"x")
    finally:
        object.__setattr__(TARGETS["cell"], "take", take)


@pytest.mark.parametrize(
    "said",
    [
        {"feed": 1},
        {"feed": {"0": 1.5}},
        {"feed": {"0": True}},
        {"feed": {"0": "1"}},
        {"feed": {"0": 2**63}},
        {"feed": {"zero": 1}},
        ["feed"],
        None,
    ],
)
def test_what_is_no_position_is_a_value_error(said: object) -> None:
    """Another shape, or an offset that is no whole number of 64 bits, is refused, and never rounded."""
    with pytest.raises(ValueError, match=r".+"):
        PositionMap.from_json(said)


def test_a_cell_whose_origin_is_cut_off_is_refused() -> None:
    """A cell that ends within its origin is not taken for one with a shorter origin."""
    (whole, _) = TARGETS["cell"].seeds
    for length in range(len(whole) - len(b"value")):
        with pytest.raises(AnewError):
            TARGETS["cell"].take(whole[:length])


def test_an_origin_without_its_nul_is_none() -> None:
    """A job's name ends with NUL; what has another byte there is not read as a shorter name."""
    with pytest.raises(ValueError, match="not an origin"):
        Origin.decode(b"\x01job$" + b"\x00" * 8)


def test_a_block_whose_offsets_run_backwards_is_refused() -> None:
    """Arrow itself looks at no offset before it is used, and then too late."""
    (rows,) = TARGETS["block"].seeds
    broken = rows.replace(b"\x01\x00\x00\x00\x02\x00\x00\x00", b"\xff\xff\xff\xff\x02\x00\x00\x00")
    assert broken != rows
    with pytest.raises(Failed) as caught:
        TARGETS["block"].take(broken)
    assert caught.value.code == "corrupt_block"


@pytest.mark.parametrize("block", [b"\x02\x00", b"\x01\x02\x00"], ids=["plain", "with its length"])
def test_a_batch_in_many_blocks_is_counted_before_it_is_made(block: bytes) -> None:
    """A small body of very many empty keys is refused by their number."""
    with pytest.raises(InvalidRequest) as caught:
        decode_keys(block * 20_000 + b"\x00")
    assert (caught.value.code, caught.value.found) == ("bad_batch", 10_001)
    assert decode_keys(block * 10_000 + b"\x00") == [b""] * 10_000


def test_a_block_whose_head_holds_no_row_is_refused() -> None:
    """A stream that ends after its schema is no head of a block."""
    (head,) = TARGETS["block-head"].seeds
    schema = pa.ipc.open_stream(head).schema
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    with pytest.raises(Failed) as caught:
        TARGETS["block-head"].take(sink.getvalue().to_pybytes())
    assert caught.value.code == "corrupt_block"
