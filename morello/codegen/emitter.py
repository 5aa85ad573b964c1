"""Prints programs as C functions, with the functions that pack their constants: the base of emitters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from morello.codegen.emission import Emission
from morello.codegen.interface import pack_name, pack_signature
from morello.codegen.reserved import check_name
from morello.codegen.style import CStyle
from morello.ir.impl import Impl
from morello.ir.program import Program
from morello.ir.signature import Signature
from morello.kernels.target import Target
from morello.rewrites.pack import packed


class CEmitter(CStyle):
    """Base of emitters. Subclasses give the compiler flags, includes and vector types."""

    def emit(
        self,
        impl: Impl,
        target: Target,
        name: str,
        signature: Signature | None = None,
        packs: Mapping[int, Impl] = MappingProxyType({}),
    ) -> Program:
        """Return `impl` as a C function called `name`; `signature` gives names and order of its parameters.

        It takes constants packed; `packs` are the programs that pack them, by operand. Holes become comments, and the C
        has an `#error` that lists them.
        """
        check_name(name)
        impl = packed(impl)
        named = signature or Signature.of(impl.spec.logical)
        beside = {
            operand: self._emission(
                one, target, pack_name(name, named, operand, packs), pack_signature(named, operand), {}
            )
            for operand, one in sorted(packs.items())
        }
        return self._emission(impl, target, name, named, beside).program

    def _emission(
        self, impl: Impl, target: Target, name: str, named: Signature, packs: Mapping[int, Emission]
    ) -> Emission:
        plain = Signature.of(impl.spec.logical)
        emission = Emission(self, impl, target, name, plain, (), packs)
        _ = emission.program
        if named == plain:
            return emission
        # Parameters must not hide functions and types, whose names are known from the first emission.
        return Emission(self, impl, target, name, named, emission.names_of_others, packs)
