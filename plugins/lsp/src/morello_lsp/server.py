"""The server: it translates between the protocol and `document`."""

from __future__ import annotations

from importlib.metadata import version

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from morello import api
from morello.errors import MorelloError
from morello_lsp.document import definition, describe, error_place, find_error, words


def server() -> LanguageServer:
    """Return a server that answers about the files that an editor opens."""
    made = LanguageServer("morello", version("morello-lsp"))

    def document(uri: str) -> TextDocument:
        return made.workspace.get_text_document(uri)

    def publish(uri: str) -> None:
        text = document(uri)
        error = find_error(text.source, text.filename or "<text>")
        found = [_diagnostic(error)] if error else []
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, text.version))

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _(params: types.DidOpenTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _(params: types.DidChangeTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def _(params: types.HoverParams) -> types.Hover | None:
        text = document(params.text_document.uri)
        found = describe(text.source, text.word_at_position(params.position))
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, found)) if found else None

    @made.feature(types.TEXT_DOCUMENT_COMPLETION)
    def _(params: types.CompletionParams) -> list[types.CompletionItem]:
        text = document(params.text_document.uri)
        return [types.CompletionItem(word) for word in words(text.source, text.offset_at_position(params.position))]

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    def _(params: types.DefinitionParams) -> types.Location | None:
        text = document(params.text_document.uri)
        offset = definition(text.source, text.word_at_position(params.position))
        return None if offset is None else types.Location(text.uri, _range(text, offset, offset))

    @made.feature(types.TEXT_DOCUMENT_FORMATTING)
    def _(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        text = document(params.text_document.uri)
        try:
            usual = api.format_text(text.source)
        except MorelloError:
            return []  # a diagnostic shows it
        return [types.TextEdit(_range(text, 0, len(text.source)), usual)]

    return made


def _range(text: TextDocument, start: int, end: int) -> types.Range:
    """Return the range of two offsets."""
    return types.Range(text.client_position_at_offset(start), text.client_position_at_offset(end))


def _diagnostic(error: MorelloError) -> types.Diagnostic:
    line, first, last = error_place(error)
    place = types.Range(types.Position(line, first), types.Position(line, last))
    said = f"{error.message}\n{error.hint}" if error.hint else error.message
    return types.Diagnostic(place, said, types.DiagnosticSeverity.Error, source="morello")
