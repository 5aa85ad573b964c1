"""`morello lsp` over the protocol, as an editor speaks it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

pytestmark = pytest.mark.slow

TEXT = "target x86_avx2\nspec sums = Add(4x8, L1, L1, L1, serial)\nschedule sums { tile [1, 8] }\n"


async def _session(uri: str) -> None:
    client = LanguageClient("editor", "1")
    published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: types.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    await client.start_io(sys.executable, "-P", "-m", "morello", "lsp")
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "morello", 1, TEXT)))
    assert not (await published.get()).diagnostics

    here, place = types.TextDocumentIdentifier(uri), types.Position(2, 10)
    hover = await client.text_document_hover_async(types.HoverParams(here, place))
    assert hover
    assert isinstance(hover.contents, types.MarkupContent)
    assert "4×8" in hover.contents.value
    found = await client.text_document_definition_async(types.DefinitionParams(here, place))
    assert isinstance(found, types.Location)
    assert found.range.start == types.Position(1, 5)
    completed = await client.text_document_completion_async(types.CompletionParams(here, types.Position(2, 16)))
    assert isinstance(completed, list)
    assert "select" in [one.label for one in completed]
    options = types.FormattingOptions(4, True)
    edits = await client.text_document_formatting_async(types.DocumentFormattingParams(here, options))
    assert edits
    assert edits[0].new_text == TEXT.replace("4x8", "4×8")

    changed = types.TextDocumentContentChangeWholeDocument(TEXT.replace("Add", "Ad"))
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(2, uri), [changed])
    )
    (error,) = (await published.get()).diagnostics
    assert error.range == types.Range(types.Position(1, 12), types.Position(1, 14))
    assert "unknown operation" in error.message
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


def test_an_editor(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_session((tmp_path / "a.spec").as_uri()), 100))
