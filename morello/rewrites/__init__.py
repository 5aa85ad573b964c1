"""Rewrites: semantics-preserving steps from a Spec to a node over smaller Specs, one family a file.

Every class in a file of this package that has an `order` is a standard rewrite.
"""

import importlib
import pkgutil

from morello.rewrites.base import Example, Rewrite, RewriteCase, Vector, Word, argument

__all__ = ["STANDARD", "Example", "Rewrite", "RewriteCase", "Vector", "Word", "argument"]

#: The rewrites of [Kaufman2025] and more, which a target for dense linear algebra wants, in tie-break order.
STANDARD: tuple[type[Rewrite], ...] = tuple(
    sorted(
        (
            one
            for module in pkgutil.iter_modules(__path__)
            for one in vars(importlib.import_module(f"{__name__}.{module.name}")).values()
            if isinstance(one, type) and issubclass(one, Rewrite) and one.__module__ == f"{__name__}.{module.name}"
            if "order" in vars(one) and one is not Rewrite
        ),
        key=lambda one: one.order,
    )
)
