"""Explanations of kernels as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence

from morello.api.kernel import Kernel
from morello.errors import MorelloError
from morello.report.explanation import Explanation
from morello.report.page import KernelPage, Page, page_html
from morello.report.rooflines import Roofline, roofline
from morello.report.steps import PageStep


def explanation_page(
    title: str, explained: Sequence[tuple[Kernel, Explanation]], steps: tuple[PageStep, ...] = ()
) -> str:
    """Return a page of kernels with their explanations, and of a model's steps, that needs no other file."""
    pages = (KernelPage(one, kernel.program, kernel.proof, _roofline(kernel)) for kernel, one in explained)
    return page_html(Page(title, tuple(pages), steps))


def _roofline(kernel: Kernel) -> Roofline | None:
    try:
        return roofline(kernel.impl, kernel.target)
    except MorelloError:
        return None
