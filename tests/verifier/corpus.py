"""The fixtures of this folder, read without running them."""

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fixture:
    name: str
    source: str
    problem: str  # source of its base problem
    expected: frozenset[str]


def load_fixtures(folder: str) -> list[Fixture]:
    return [_load(path) for path in sorted((HERE / folder).glob("*.py"))]


def load_fixture(folder: str, name: str) -> Fixture:
    return _load(HERE / folder / f"{name}.py")


def _load(path: Path) -> Fixture:
    source = path.read_text()
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("PROBLEM", "EXPECTED")
    }
    problem = (HERE / "bases" / f"{constants['PROBLEM']}.py").read_text()
    return Fixture(path.stem, source, problem, frozenset(constants["EXPECTED"]))
