"""The one step of the build that pyproject.toml cannot say: what the library reads under ``data/`` goes into the wheel.

They are committed once, under ``data/``, and a checkout reads them there (`flashtrace_lib.files.data_folder`).
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# What the embedded models and AT2 need at run time; training logs and stored answers stay in the repository.
CARRIED = (
    *(
        f"data/{adapter}/{name}"
        for adapter in ("adapter", "adapter_notation")
        for name in ("README.md", "adapter_config.json", "adapter_model.safetensors")
    ),
    "data/at2/README.md",
    "data/at2/embedded.json",
)


class BuildWithData(build_py):
    """Copies the files into the package and leaves the book out; an sdist takes both where they stand."""

    def run(self):
        """Build the library, then copy; an editable install reads the checkout and needs neither."""
        if not self.editable_mode:
            self.packages = [name for name in self.packages if not name.startswith("flashtrace_book")]
            vars(self).pop("data_files", None)  # of the packages that were
        super().run()
        for name in () if self.editable_mode else CARRIED:
            copy = Path(self.build_lib, "flashtrace_lib", name)
            self.mkpath(str(copy.parent))
            self.copy_file(name, str(copy))

    def get_source_files(self):
        """What an sdist holds."""
        return [*super().get_source_files(), *CARRIED]


setup(cmdclass={"build_py": BuildWithData})
