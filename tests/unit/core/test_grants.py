"""Tokens as values: what they allow, how they are kept, and what a file of them may not be."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from anew.core.errors import AnewError, InvalidRequest, NotFound, Refused
from anew.core.grants import (
    MAX_TOKENS,
    Grant,
    NotAllowed,
    Right,
    check_token,
    find_grant,
    format_grants,
    parse_grants,
    token_hash,
    with_grant,
    without_grant,
)

READER = Grant("reader", Right.READ, token_hash("r"), frozenset({"people", 'odd "name"'}), 1_000)
CHIEF = Grant("chief@example", Right.OPERATE, token_hash("c"))


def _code(act: Any, kind: type[AnewError] = InvalidRequest) -> str:
    with pytest.raises(kind) as caught:
        act()
    return caught.value.code


def test_each_right_holds_those_before_it() -> None:
    """Submitting includes operating, that includes writing, and that reading; never the other way round."""
    rights = list(Right)
    assert rights == [Right.READ, Right.WRITE, Right.OPERATE, Right.SUBMIT]
    assert [[has.covers(needed) for needed in rights] for has in rights] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_a_token_for_some_stores_is_for_nothing_else() -> None:
    """What concerns another store or the whole cluster is refused, and the refusal names what it is for."""
    READER.check_store("people")
    for store in ("flights", None):
        with pytest.raises(NotAllowed) as caught:
            READER.check_store(store)
        assert (caught.value.code, caught.value.found) == ("not_allowed", 'odd "name", people')
    CHIEF.check_store(None)
    with pytest.raises(NotAllowed):
        READER.check_right(Right.WRITE)


def test_a_token_expires_at_its_time_and_not_before() -> None:
    """It is worth something up to the last ms before."""
    assert [READER.has_expired(at) for at in (999, 1_000)] == [False, True]
    assert not CHIEF.has_expired(2**62)


def test_grants_survive_the_file() -> None:
    """What is written is read again, signs in names included; no token is in the text."""
    text = format_grants((READER, CHIEF))
    assert parse_grants(text) == (READER, CHIEF)
    assert parse_grants("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "tokens = 3",
        "[other]",
        "[tokens.a]",
        "not toml",
        '[tokens.a]\nright = "king"\nsha256 = "' + "0" * 64 + '"',
        '[tokens.a]\nright = "read"\nsha256 = "' + "0" * 63 + '"',
        '[tokens.a]\nright = "read"\nsha256 = "' + "G" * 64 + '"',
        '[tokens.a]\nright = "read"\nstores = "people"\nsha256 = "' + "0" * 64 + '"',
        '[tokens.a]\nright = "read"\nstore = ["people"]\nsha256 = "' + "0" * 64 + '"',
        '[tokens.a]\nright = "read"\nexpires_at_ms = "never"\nsha256 = "' + "0" * 64 + '"',
        "\n".join(f'[tokens.{name}]\nright = "read"\nsha256 = "{"0" * 64}"' for name in "ab"),
    ],
)
def test_a_file_that_is_not_right_is_refused(text: str) -> None:
    """No entry is passed over: a slip of the pen must not widen what a token allows."""
    assert _code(lambda: parse_grants(text)) == "bad_tokens_file"


def test_a_file_holds_a_bounded_number_of_tokens() -> None:
    """One more than the limit is refused, when it is added and when it is read."""
    many = tuple(Grant(f"t{n}", Right.READ, token_hash(str(n))) for n in range(MAX_TOKENS))
    assert _code(lambda: with_grant(many, CHIEF)) == "bad_token"
    assert len(parse_grants(format_grants(many))) == MAX_TOKENS
    assert _code(lambda: parse_grants(format_grants((*many, CHIEF)))) == "bad_tokens_file"


def test_names_are_taken_once_and_fit_into_a_header() -> None:
    """A name that is taken, reserved, or holds odd signs is refused; an unknown one cannot be removed."""
    assert with_grant((READER,), CHIEF) == (READER, CHIEF)
    assert _code(lambda: with_grant((CHIEF,), CHIEF), Refused) == "token_exists"
    for name in ("", "cluster", "two words", "li\nne", "x" * 101, "ä"):
        assert _code(lambda name=name: with_grant((), Grant(name, Right.READ, token_hash("x")))) == "bad_token", name
    assert without_grant((READER, CHIEF), "reader") == (CHIEF,)
    with pytest.raises(NotFound) as caught:
        without_grant((READER,), "raeder")
    assert (caught.value.code, caught.value.hint) == ("unknown_token", "did you mean reader?")


def test_every_hash_is_compared_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first match does not end the search, and each comparison is the one that takes the same time always."""
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert find_grant((READER, CHIEF), token_hash("r")) == READER
    assert compared == [READER.sha256, CHIEF.sha256]
    assert find_grant((READER, CHIEF), token_hash("x")) is None


def test_what_cannot_be_a_token_is_refused_unseen() -> None:
    """A text with blanks or line ends is refused, and the error does not hold it."""
    check_token("anew_abc-DEF_123")
    for text in ("se cret", "secret\n", "secrät", "secret\x00"):
        with pytest.raises(InvalidRequest) as caught:
            check_token(text)
        assert "secr" not in str(caught.value)
