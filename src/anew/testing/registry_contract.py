"""What every schema registry promises, as tests; see `anew.registry.interface`."""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from anew.core.errors import Refused
from anew.registry.interface import SchemaRegistry

_STRING = '"string"'
_SUBJECTS = itertools.count(1)
_FIELDS = [{"name": "name", "type": "string"}]


def person(*more: str) -> str:
    """A record's schema; each further field has a default."""
    fields = [*_FIELDS, *({"name": name, "type": "int", "default": 0} for name in more)]
    return json.dumps({"type": "record", "name": "Person", "fields": fields})


class RegistryContract(ABC):
    """The contract; every test has subjects of its own."""

    @abstractmethod
    def open_registry(self) -> SchemaRegistry:
        """Another handle on the registry."""

    @pytest.fixture
    def registry(self) -> Iterator[SchemaRegistry]:
        """A registry."""
        registry = self.open_registry()
        yield registry
        registry.close()

    @pytest.fixture
    def subject(self) -> str:
        """A subject that nobody has used."""
        return f"people-{next(_SUBJECTS)}_rt-value"

    def test_an_unknown_subject_has_nothing(self, registry: SchemaRegistry, subject: str) -> None:
        """That is no error."""
        assert registry.versions(subject) == []

    def test_what_is_registered_is_found(self, registry: SchemaRegistry, subject: str) -> None:
        """Oldest first, also through another handle."""
        texts = [person(), person("age"), person("age", "height")]
        ids = [registry.register(subject, text) for text in texts]
        assert len(set(ids)) == 3
        assert all(number > 0 for number in ids)
        other = self.open_registry()
        found = other.versions(subject)
        other.close()
        assert [one.id for one in found] == ids
        assert [json.loads(one.schema) for one in found] == [json.loads(text) for text in texts]

    def test_the_same_again_is_the_same(self, registry: SchemaRegistry, subject: str) -> None:
        """One schema has one id, under any subject."""
        first = registry.register(subject, person())
        registry.register(subject, person("age"))
        assert registry.register(subject, person()) == first
        assert registry.register(f"{subject}-too", person()) == first
        assert len(registry.versions(subject)) == 2
        assert [one.id for one in registry.versions(f"{subject}-too")] == [first]

    def test_a_plain_type_is_a_schema(self, registry: SchemaRegistry, subject: str) -> None:
        """Keys are often strings."""
        number = registry.register(subject, _STRING)
        (found,) = registry.versions(subject)
        assert (found.id, json.loads(found.schema)) == (number, "string")

    def test_what_the_rules_forbid_is_refused(self, registry: SchemaRegistry, subject: str) -> None:
        """The subject stays as it is."""
        registry.register(subject, person())
        bad = self.forbidden(registry, subject)
        with pytest.raises(Refused) as caught:
            registry.register(subject, bad)
        assert caught.value.code == "incompatible_schema"
        assert len(registry.versions(subject)) == 1

    @abstractmethod
    def forbidden(self, registry: SchemaRegistry, subject: str) -> str:
        """A schema that the registry does not take under a subject that has a `person`."""
