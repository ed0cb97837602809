"""The readable page of an OpenAPI description: every path, what it takes and says. Loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code, b.method {{ font-family: ui-monospace, monospace }} b.method {{ display: inline-block; width: 3.5rem }}
table {{ border-collapse: collapse; margin: .3rem 0 1rem }}
td {{ padding: .1rem .8rem .1rem 0; vertical-align: top }}
h2 {{ margin-top: 2rem; border-bottom: 1px solid #ccc }} summary {{ cursor: pointer }}
</style><h1>{title}</h1><p>{summary} The same for machines: <a href="openapi.json">openapi.json</a>.</p>"""


def page_of(api: Mapping[str, Any]) -> str:
    """HTML."""
    info = api["info"]
    parts = [_HEAD.format(title=escape(info["title"]), summary=escape(info.get("summary", "")))]
    by_tag: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    for tag, operations in by_tag.items():
        parts += [f"<h2>{escape(tag)}</h2>", *operations]
    parts.append("<h2>what is said and taken</h2>")
    parts += [_schema(name, schema) for name, schema in api["components"]["schemas"].items()]
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    text = operation.get("description") or operation.get("summary", "")
    takes = [f"<code>{escape(one['name'])}</code>" for one in operation.get("parameters", ())]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        takes.append(f"body {_type(body)}")
    answer = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
    return (
        f"<details><summary><b class=method>{method.upper()}</b> <code>{escape(path)}</code></summary>"
        f"<p>{escape(text)}</p><p>takes {', '.join(takes) or 'nothing'}; answers {_type(answer)}</p>"
        "</details>"
    )


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(key)}</code><td>{_type(value)}<td>{escape(value.get('description', ''))}"
        for key, value in schema.get("properties", {}).items()
    )
    text = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{text}</p><table>{rows}</table>'


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
