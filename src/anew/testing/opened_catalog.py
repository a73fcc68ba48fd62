"""The catalog that the contracts of catalogs are tried on: who inherits says once how it is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from anew.catalog.interface import Catalog


class OpenedCatalog(ABC):
    """Inherit and provide `open_catalog`."""

    @abstractmethod
    def open_catalog(self, directory: Path) -> Catalog:
        """A handle on the catalog that belongs to a test's directory, made on the first call."""

    @pytest.fixture
    def catalog(self, tmp_path: Path) -> Iterator[Catalog]:
        """A new, empty catalog."""
        catalog = self.open_catalog(tmp_path)
        yield catalog
        catalog.close()
