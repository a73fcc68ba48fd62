"""Compression: every codec, corrupt values, and what passes through untouched."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from anew.codec.compression import Codec, Compressor, compressor, recode, train_dictionary
from anew.core.errors import Failed, InvalidRequest

SAMPLES = [f"carrier=UA;flight={number};origin=EWR;dest=IAH;late={number % 2 == 0}".encode() for number in range(2000)]
DICTIONARY = train_dictionary(SAMPLES, 2048)


def each_codec() -> list[Compressor]:
    """One compressor per codec, and zstd_dict without a dictionary to speak of."""
    plain = [compressor(name) for name in ("none", "gzip", "zstd")]
    return [*plain, compressor("zstd_dict", DICTIONARY), compressor("zstd_dict", b"")]


@pytest.mark.parametrize("one", each_codec(), ids=lambda one: f"{one.codec}-{len(one.dictionary or b'')}")
def test_values_come_back_in_another_instance(one: Compressor) -> None:
    """What one instance wrote, its pickled copy reads and writes alike; nulls stay null."""
    other = pickle.loads(pickle.dumps(one))
    values = pa.array([b"", None, b"a", SAMPLES[3], bytes(100_000)], pa.binary())
    stored = one.compress_array(values)
    assert stored.equals(other.compress_array(values))
    assert stored.is_null().to_pylist() == values.is_null().to_pylist()
    assert other.decompress_array(stored).equals(values)
    assert other.decompress(one.compress(SAMPLES[5])) == SAMPLES[5]


@pytest.mark.case("stores:E1")
def test_a_tour_of_the_codecs_changes_no_value() -> None:
    """none → gzip → zstd → zstd_dict → none: every value is equal at every step."""
    values = pa.array(SAMPLES, pa.binary())
    tour = [compressor("none"), compressor("gzip"), compressor("zstd"), compressor("zstd_dict", DICTIONARY)]
    stored: pa.Array[Any] = values
    for source, target in zip(tour, [*tour[1:], tour[0]], strict=True):
        stored = recode(stored, source, target)
        assert target.decompress_array(stored).equals(values)
    assert stored.equals(values)


@pytest.mark.case("stores:E2")
def test_the_same_codec_passes_bytes_through() -> None:
    """Same codec and dictionary: the very same array, even of bytes that no codec could read."""
    garbage = pa.array([b"\x00garbage"], pa.binary())
    for one, again in zip(each_codec(), each_codec(), strict=True):
        assert recode(garbage, one, again) is garbage


@pytest.mark.case("stores:E4")
def test_too_little_to_train_on() -> None:
    """Training gives an empty dictionary, and zstd_dict then writes plain zstd frames."""
    assert train_dictionary([b"a"], 1024) == b""
    frame = compressor("zstd_dict", b"").compress(SAMPLES[0])
    assert frame == compressor("zstd").compress(SAMPLES[0])


def test_training_is_repeatable_and_pays() -> None:
    """The same samples give the same dictionary, which makes small values smaller."""
    assert train_dictionary(SAMPLES, 2048) == DICTIONARY
    with_dictionary = compressor("zstd_dict", DICTIONARY).compress(SAMPLES[7])
    assert len(with_dictionary) < len(compressor("zstd").compress(SAMPLES[7]))


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_corrupt_values_are_told_by_index(name: str) -> None:
    """Garbage, cut values and trailing bytes raise, naming the value; nothing is served as if it were one."""
    one = compressor(name)
    good = one.compress(SAMPLES[0])
    for bad in (b"", b"garbage", good[:-3], good + b"x"):
        with pytest.raises(Failed) as caught:
            one.decompress_array(pa.array([good, bad], pa.binary()))
        assert caught.value.code == "corrupt_value"
        assert "value 1 of 2" in caught.value.message


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_value_cannot_take_the_memory(name: str) -> None:
    """A value larger than allowed is refused; one of exactly that size is not."""
    bounded = compressor(name, max_output_bytes=1000)
    assert bounded.decompress(bounded.compress(bytes(1000))) == bytes(1000)
    with pytest.raises(Failed) as caught:
        bounded.decompress(bounded.compress(bytes(1001)))
    assert caught.value.code == "corrupt_value"


def test_a_frame_without_its_size_is_bounded_too() -> None:
    """A foreign frame that hides its size is read up to the limit."""
    hidden = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5000))
    assert compressor("zstd").decompress(hidden) == bytes(5000)
    with pytest.raises(Failed) as caught:
        compressor("zstd", max_output_bytes=4000).decompress(hidden)
    assert caught.value.code == "corrupt_value"


@pytest.mark.case("stores:E5")
def test_a_wrong_dictionary_is_never_garbage() -> None:
    """A frame of another dictionary is refused."""
    other = train_dictionary([sample[::-1] for sample in SAMPLES], 2048)
    frame = compressor("zstd_dict", DICTIONARY).compress(SAMPLES[0])
    for wrong in (compressor("zstd_dict", other), compressor("zstd")):
        with pytest.raises(Failed):
            wrong.decompress(frame)


@pytest.mark.parametrize(
    ("name", "dictionary", "code"),
    [
        ("snappy", None, "unknown_codec"),
        ("zstd_dict", None, "missing_dictionary"),
        ("gzip", b"x", "unexpected_dictionary"),
    ],
)
def test_what_no_compressor_can_be_made_of(name: str, dictionary: bytes | None, code: str) -> None:
    """Unknown names and dictionaries in the wrong place are refused."""
    with pytest.raises(InvalidRequest) as caught:
        compressor(name, dictionary)
    assert caught.value.code == code
    assert {codec.value for codec in Codec} == {"none", "gzip", "zstd", "zstd_dict"}
