"""Whether Python and the packages are what this version was written for. Imports none of them."""

import platform
import shlex
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING

from tielab.doctor.findings import FAIL, OK, WARN, Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NAME = "tielab"
DEVELOPMENT = ("dev", "docs")
"""Extras of those who change the project."""


def check_python() -> Iterator[Finding]:
    """The version of Python, against what the package declares."""
    from packaging.specifiers import SpecifierSet

    version = platform.python_version()
    wanted = str(metadata.metadata(NAME)["Requires-Python"] or "")
    if SpecifierSet(wanted).contains(version, prereleases=True):
        yield Finding("python", OK, f"{version} (wanted {wanted or 'any'})")
    else:
        yield Finding("python", FAIL, f"{version}, wanted {wanted}", "make an environment of such a Python")


def check_packages() -> Iterator[Finding]:
    """Every required package, and which extras are there."""
    wanted = _requirements("")
    problems = {str(requirement): _problem(requirement) for requirement in wanted}
    wrong = {requirement: problem for requirement, problem in problems.items() if problem is not None}
    if wrong:
        remedy = shlex.join(["pip", "install", *(name.partition(";")[0].strip() for name in wrong)])
        yield Finding("packages", FAIL, "; ".join(wrong.values()), remedy)
    else:
        main = ("torch", "lightning", "hydra-core", "wandb")
        versions = ", ".join(f"{name} {metadata.version(name)}" for name in main)
        yield Finding("packages", OK, f"all {len(wanted)} as required: {versions}")
    yield from _check_extras()


def _check_extras() -> Iterator[Finding]:
    present, absent = [], []
    for extra in metadata.metadata(NAME).get_all("Provides-Extra") or ():
        if extra in DEVELOPMENT:
            continue
        wanted = _requirements(extra)
        found = [requirement for requirement in wanted if _version(requirement.name) is not None]
        wrong = [problem for requirement in found if (problem := _problem(requirement))]
        if wrong:
            yield Finding(f"extra {extra}", WARN, "; ".join(wrong), f"pip install 'tielab[{extra}]'")
        elif len(found) == len(wanted):
            present.append(extra)
        else:
            absent.append(extra)
    others = f"; not installed: {', '.join(absent)}, with pip install 'tielab[NAME]'" if absent else ""
    yield Finding("extras", OK, f"installed: {', '.join(present) or 'none'}{others}")


def _requirements(extra: str) -> list["Requirement"]:
    """What the package requires; of an extra what it adds."""
    from packaging.requirements import Requirement

    parsed = [Requirement(text) for text in metadata.requires(NAME) or ()]
    if not extra:
        return [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [
        r
        for r in parsed
        if r.marker is not None
        and r.marker.evaluate({"extra": extra})
        and not r.marker.evaluate({"extra": ""})
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _problem(requirement: "Requirement") -> str | None:
    version = _version(requirement.name)
    if version is None:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}, wanted {requirement.specifier}"
    return None
