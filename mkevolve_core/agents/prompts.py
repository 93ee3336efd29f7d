"""Templates to prompts. A template has three blocks, `system`, `context` and `task`, sent in this order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, Template, TemplateError
from jinja2.meta import find_referenced_templates

from mkevolve_core.errors import ConfigError

SHIPPED = Path(__file__).resolve().parents[2] / "prompts"


@dataclass(frozen=True, slots=True)
class Rendered:
    system: str
    context: str
    task: str
    template: str  # "generate.j2 1f3a9c02"


class Prompts:
    def __init__(self, overrides: Path | None = None) -> None:
        """Templates in `overrides` stand before the shipped ones of the same name."""
        folders = [overrides, SHIPPED] if overrides else [SHIPPED]
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        self._environment.filters["fenced"] = fenced
        self._versions: dict[str, str] = {}

    def render(self, name: str, **variables: Any) -> Rendered:
        """Raises ConfigError naming the template that cannot be used."""
        try:
            template = self._environment.get_template(name)
            system, context, task = (_block(template, b, variables) for b in ("system", "context", "task"))
        except TemplateError as error:
            raise ConfigError(
                f"Prompt template {name}: {error}; correct it or remove the override."
            ) from None
        return Rendered(system, context, task, f"{name} {self._version(name)}")

    def _version(self, name: str) -> str:
        if name not in self._versions:
            digest = hashlib.sha256()
            for each in sorted(self._with_includes(name)):
                digest.update(self._source(each).encode())
            self._versions[name] = digest.hexdigest()[:8]
        return self._versions[name]

    def _with_includes(self, name: str) -> set[str]:
        """The template and all that it extends, includes or imports."""
        found, todo = set[str](), [name]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                parsed = self._environment.parse(self._source(one))
                todo += [ref for ref in find_referenced_templates(parsed) if ref]
        return found

    def _source(self, name: str) -> str:
        loader = self._environment.loader
        assert loader is not None
        return loader.get_source(self._environment, name)[0]


def fenced(text: str, name: str) -> str:
    """Code or messages as data: between markers that the text itself cannot contain by chance."""
    mark = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"<<<{name} {mark}\n{text.rstrip()}\n{mark} {name}>>>"


def _block(template: Template, name: str, variables: dict[str, Any]) -> str:
    if name not in template.blocks:
        raise TemplateError(f"it has no block '{name}'")
    return "".join(template.blocks[name](template.new_context(variables))).strip()
