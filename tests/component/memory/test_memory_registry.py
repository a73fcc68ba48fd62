"""The registry in memory keeps the contract of schema registries."""

from __future__ import annotations

import pytest

from anew.registry.interface import SchemaRegistry
from anew.testing.memory.registry import MemoryRegistry
from anew.testing.registry_contract import RegistryContract, person


class TestMemoryRegistry(RegistryContract):
    """`RegistryContract`; all handles are one."""

    @pytest.fixture(autouse=True)
    def _alone(self) -> None:
        self._registry = MemoryRegistry()

    def open_registry(self) -> SchemaRegistry:
        """The registry itself."""
        return self._registry

    def forbidden(self, registry: SchemaRegistry, subject: str) -> str:
        """Any schema, once it is said to be."""
        self._registry.refuses.add(person("forbidden"))
        return person("forbidden")
