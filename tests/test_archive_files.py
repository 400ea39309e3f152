"""What archives read says the same everywhere, and as pyproject.toml does."""

import json
import tomllib

import yaml

from flashtrace_lib import __version__
from tests.environment import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
ZENODO = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
CODEMETA = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))


def test_one_title_and_one_description():
    assert CITATION["title"] == ZENODO["title"] == CODEMETA["name"]
    assert PROJECT["description"] == CITATION["abstract"] == ZENODO["description"] == CODEMETA["description"]
    assert CITATION["keywords"] == ZENODO["keywords"] == CODEMETA["keywords"]
    assert CODEMETA["identifier"] == PROJECT["name"]


def test_one_version():
    assert PROJECT["dynamic"] == ["version"]
    assert __version__ == CITATION["version"] == ZENODO["version"] == CODEMETA["version"]


def test_one_licence():
    assert PROJECT["license"] == CITATION["license"] == ZENODO["license"] == "MIT"
    assert CODEMETA["license"] == f"https://spdx.org/licenses/{PROJECT['license']}"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_the_same_authors():
    authors = [author["name"] for author in PROJECT["authors"]]
    for others in (CITATION["authors"], ZENODO["creators"], CODEMETA["author"]):
        assert [author["name"] for author in others] == authors
    assert all(name in (ROOT / "LICENSE").read_text() for name in authors)


def test_the_paper_is_named_alike():
    paper, cited = CODEMETA["referencePublication"], CITATION["preferred-citation"]
    assert paper["name"] == cited["title"] and int(paper["datePublished"]) == cited["year"]
    assert [(author["familyName"], author["givenName"]) for author in paper["author"]] == [
        (author["family-names"], author["given-names"]) for author in cited["authors"]
    ]
    (reference,) = ZENODO["references"]
    assert cited["title"] in reference and str(cited["year"]) in reference
    assert all(f"{author['family-names']}, {author['given-names']}" in reference for author in cited["authors"])


def test_the_pythons_are_those_of_the_project():
    assert CODEMETA["runtimePlatform"] == "Python 3.11 to 3.13" and PROJECT["requires-python"] == ">=3.11,<3.14"


def test_each_file_has_what_its_readers_require():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["message"] and CITATION["type"] == "software"
    assert ZENODO["upload_type"] == "software" and ZENODO["access_right"] == "open"
    assert CODEMETA["@context"] == "https://w3id.org/codemeta/3.0" and CODEMETA["@type"] == "SoftwareSourceCode"
