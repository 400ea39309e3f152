"""The notebooks are tested in the environment of the tests, alone too."""

from tests import environment  # noqa: F401
