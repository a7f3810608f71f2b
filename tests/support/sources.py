"""The project's own sources, read as trees."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from pathlib import Path

ROOT = Path(__file__).parents[2]
_READ = []
"""The sources with cached results."""


def kept(method):
    """Cache the results of a method, because many rules look at the same trees."""
    name = f"kept {method.__name__}"

    @wraps(method)
    def once(self):
        if name not in self.__dict__:
            _READ.append(self)
            self.__dict__[name] = tuple(method(self))
        return self.__dict__[name]

    return once


def forget():
    """Drop all trees. They are a million objects that Python's collector would visit again and again."""
    while _READ:
        source = _READ.pop()
        for name in [each for each in source.__dict__ if each not in ("path", "text")]:
            del source.__dict__[name]


def dotted(node):
    """The text of a dotted name; quicker than `ast.unparse`."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


@dataclass(frozen=True, eq=False)
class Source:
    """A file. Its tree is parsed when it is needed."""

    path: str
    text: str

    @cached_property
    def tree(self):
        _READ.append(self)
        return ast.parse(self.text)

    @cached_property
    def nodes(self):
        return tuple(ast.walk(self.tree))

    @property
    def package(self):
        """The dotted name of the package the module is in."""
        return ".".join(Path(self.path).parent.parts)

    @kept
    def imports(self):
        """Every module that is imported, by its full name, including imports for type checkers only."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                up = self.package.split(".")[: len(self.package.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*up, *([node.module] if node.module else [])])
                yield from (f"{module}.{each.name}" for each in node.names)

    @kept
    def functions(self):
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    @kept
    def names(self):
        """Every name that is used or reached for: `x`, and `a.x` as x."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Name):
                yield node.id

    @kept
    def calls(self):
        """Each call with the dotted name of what is called."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield dotted(node.func), node


@cache
def sources(folder="aiogroup"):
    """Every Python file below `folder`."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    return tuple(Source(str(path.relative_to(ROOT)), path.read_text()) for path in paths)


@cache
def committed_files():
    """Paths that git knows; none outside of a checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return tuple(ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file())
