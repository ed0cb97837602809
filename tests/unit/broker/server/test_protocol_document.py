"""docs/protocol.md says what the registry says."""

from __future__ import annotations

from tools.generate_protocol_docs import DOCUMENT, document


def test_the_document_is_up_to_date() -> None:
    hint = "run python -m tools.generate_protocol_docs"
    assert DOCUMENT.read_text(encoding="utf-8") == document(), hint
