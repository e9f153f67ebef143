from collections.abc import Iterator

import pytest

from tests.service.serving import Served, served


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with small limits, shared by tests that leave it as it is."""
    with served(tmp_path_factory.mktemp("service")) as service:
        yield service
