"""Places of the tensors of a program: in registers, on the stack, in the workspace or in a managed memory."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from morello.codegen.memories import Memories
from morello.codegen.site_printer import SitePrinter
from morello.codegen.style import CStyle
from morello.ir.layout import row_major
from morello.ir.tensor import TensorSpec
from morello.kernels.buffers import ALIGNMENT, Buffer, View, strides_of
from morello.kernels.target import Target

#: Larger buffers go to the workspace, so that a call needs little stack.
MAX_STACK_BYTES = 4096
_DECLARED_PER_LINE = 8


class Storage(SitePrinter):
    """Prints the declarations of new tensors."""

    def __init__(self, emitter: CStyle, target: Target, taken: Iterable[str]):
        super().__init__(emitter, taken)
        self.target = target
        #: The operand that each buffer is named after.
        self._stems: dict[str, str] = {}
        self.workspace_name = self.names.fresh("workspace")
        self._memories = Memories(emitter.memories)

    def _on_stack(self, tensor: TensorSpec) -> bool:
        """Return True for a tensor in registers, and for a small one outside managed memories."""
        level = tensor.state.level
        return self.target.level(level).is_register or (
            level not in self._memories and int(tensor.bytes) <= MAX_STACK_BYTES
        )

    def _in_workspace(self, tensor: TensorSpec) -> bool:
        return not self._on_stack(tensor) and tensor.state.level not in self._memories

    @contextmanager
    def _storage(self, tensor: TensorSpec, name: str) -> Generator[View]:
        """Yield a new tensor in registers, on the stack or in the workspace, allocated within the context."""
        if self.target.level(tensor.state.level).is_register:
            registers = self._registers(tensor, name)
            # A stride may skip loaded values, e.g. of an image.
            with self.writer.variables(registers.variables or ()):
                yield View.whole(registers)
            return
        if tensor.state.level in self._memories:
            with self.names.scope(), self.writer.block(), self._placed(tensor, name) as placed:
                yield placed
            return
        size = 0 if self._on_stack(tensor) else int(tensor.bytes)
        with self.names.scope(), self.writer.block(), self._function.holding(size) as held:
            view = self._fresh(tensor, name)
            if not size:
                kind = tensor.state.dtype.c_name
                self.writer.line(f"_Alignas({ALIGNMENT}) {kind} {view.buffer.name}[{tensor.volume}];")
            else:
                self._point(view, held)
            yield view

    @contextmanager
    def _placed(self, tensor: TensorSpec, name: str) -> Generator[View]:
        """Yield a new tensor in a managed memory, allocated within the context."""
        fresh = self._fresh(tensor, name)
        with self._memories.place(tensor, fresh.buffer.name, self.target) as declaration:
            self.writer.line(declaration)
            yield fresh

    def _fresh(self, tensor: TensorSpec, name: str) -> View:
        """Return a new tensor in memory, named after the operand `name`."""
        fresh = self.names.fresh(f"{name}_{tensor.state.level.lower()}")
        self._stems[fresh] = name
        return View.whole(Buffer(fresh, tensor, strides_of(tensor)))

    def _point(self, view: View, start: int) -> None:
        """Declare the pointer to a tensor in the workspace, `start` bytes from its start."""
        self.uses([self.workspace_name])
        where = f"(char *){self.workspace_name} + {start}" if start else self.workspace_name
        c_type = view.tensor.state.dtype.c_name
        self.writer.line(f"{c_type} *restrict const {view.buffer.name} = ({c_type} *)({where});")

    def _registers(self, tensor: TensorSpec, name: str) -> Buffer:
        """Declare a variable for each register, named by the coordinates of its first value."""
        state = tensor.state
        layout = state.layout or row_major(len(tensor.shape))
        shape = tuple(int(size) for size in tensor.shape)
        variables: list[str] = []
        for position in range(0, int(tensor.volume), state.vector or 1):
            point = layout.point(position, shape)
            coordinates = [str(at) for at, size in zip(point, shape, strict=True) if size > 1]
            variables.append(self.names.fresh("_".join([name, *(coordinates or ["0"])])))
        kind = state.dtype.c_name if state.vector is None else self.vector(state.dtype, state.vector)
        for start in range(0, len(variables), _DECLARED_PER_LINE):
            self.writer.line(f"{kind} {', '.join(variables[start : start + _DECLARED_PER_LINE])};")
        return Buffer(name, tensor, strides_of(tensor), tuple(variables))
