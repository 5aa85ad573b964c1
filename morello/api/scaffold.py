"""Writes the distributions of new targets, and declarations of new microkernels, from the files in `templates`."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template
from typing import Any

from morello.atomic_write import write_file
from morello.errors import MorelloError, UnknownName, suggestion
from morello.kernels.target import Target
from morello.plugins.registry import Registry, installed
from morello.untrusted import parse_toml, read_file

_TEMPLATES = Path(__file__).with_name("templates")
#: The files of a distribution, by template; those of a derived target replace some.
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "product.spec": "product.spec",
    "test.yml": ".github/workflows/test.yml",
    "test_kernels.py": "tests/test_kernels.py",
}
#: The C of operations on single values, and on vectors where C has such operators.
_ARITHMETIC = {
    "Add": "{out} = {lhs} + {rhs};",
    "Sub": "{out} = {lhs} - {rhs};",
    "Mul": "{out} = {lhs} * {rhs};",
    "Div": "{out} = {lhs} / {rhs};",
}
_LINES = {
    **_ARITHMETIC,
    "Move": "{out} = {src};",
    "FillZero": "{out} = 0;",
    "MatmulAccum": "{out} += {lhs} * {rhs};",
    "SumAccum": "{out} += {src};",
    "Maximum": "{out} = {lhs} > {rhs} || {lhs} != {lhs} ? {lhs} : {rhs};",
    "Minimum": "{out} = {lhs} < {rhs} || {lhs} != {lhs} ? {lhs} : {rhs};",
    "MaxAccum": "{out} = {src} > {out} || {src} != {src} ? {src} : {out};",
    "Relu": "{out} = {src} < 0 ? 0 : {src};",
    "Exp": "{out} = __builtin_expf({src});",
    "Sigmoid": "{out} = 1 / (1 + __builtin_expf(-{src}));",
    "Silu": "{out} = {src} / (1 + __builtin_expf(-{src}));",
    "Tanh": "{out} = __builtin_tanhf({src});",
    "Rsqrt": "{out} = 1 / __builtin_sqrtf({src});",
}


def new_target(name: str, folder: str | Path = ".", *, base: str | None = None, triple: str = "") -> list[Path]:
    """Write the distribution of a target into a new folder called `name` in `folder`. Return its files.

    It is a small target in plain C, or one that derives from `base`; `triple` is the platform of another machine, such
    as `aarch64-linux-musl`. Raises MorelloError for a name that is taken or no identifier, or a folder that exists.
    """
    registry = installed()
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or name != name.lower():
        raise MorelloError(
            f"{name!r} is no name of a target", "it is a Python identifier in lower case, such as my_cpu"
        )
    if name in registry.names:
        raise MorelloError(f"a target {name} is installed already", "choose another name")
    root = Path(folder, name)
    if root.exists():
        raise MorelloError(f"{root} exists already", "choose another name, or remove it")
    kind = "derived" if base else "new"
    files = {**_FILES, f"{kind}_plugin.py": f"src/{name}/plugin.py", f"{kind}_kernels.py": f"src/{name}/kernels.py"}
    values = _values(name, registry.target(base, "base") if base else None, registry, triple)
    texts = {path: Template(_read(template)).substitute(values) for template, path in files.items()}
    texts[f"src/{name}/__init__.py"] = f'"""The Morello target {name}."""\n'
    written = []
    for path, text in texts.items():
        place = root / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MorelloError(f"cannot make {place.parent}: {error.strerror}", "choose another folder") from error
        write_file(place, text.encode())
        written.append(place)
    return written


def _read(template: str) -> str:
    return (_TEMPLATES / f"{template}.in").read_text(encoding="utf-8")


def _values(name: str, base: Target | None, registry: Registry, triple: str) -> dict[str, Any]:
    """Return the values of placeholders in templates."""
    needs, tools = ["morello"], ["pytest"]
    if base:
        owner = next(one for one in registry.plugins if one.name == registry.owner(base.name))
        needs += [owner.distribution] * bool(owner.distribution)
    emulator = triple.partition("-")[0]
    if triple:
        tools.append("ziglang")
    changed = [
        f'        "{level.name}": {{"capacity": {level.capacity}}},\n'
        for level in (base.levels if base else ())
        if not level.is_register
    ]
    fields = {"triple": triple, "compilers": (f"zig cc -target {triple}",), "runners": (f"qemu-{emulator}",)}
    indent = "    " if base else "        "
    return {
        "name": name,
        "distribution": name.replace("_", "-"),
        "description": f"{base.name} with other numbers" if base else "plain C, with vectors of 16 bytes",
        "declares": f"the differences from {base.name}" if base else "memory levels, layouts, weights, the emitter",
        "requires": ", ".join(f'"{one}"' for one in needs),
        "tools": ", ".join(f'"{one}"' for one in tools),
        "emulator": "      - run: sudo apt-get install -y qemu-user\n" if triple else "",
        "platform": "".join(f"{indent}{key}={value!r},\n" for key, value in fields.items()).replace("'", '"')
        if triple
        else "",
        "base": base.name if base else "",
        "memory": base.levels[-1].name if base else "GL",
        "levels": "".join(changed),
        "threads": base.weights.threads if base else 1,
    }


def new_kernel(
    name: str, operation: str, folder: str | Path = ".", *, registry: Registry | None = None
) -> tuple[str, Path]:
    """Add a microkernel for f32 to the distribution of a target in `folder`. Return the target, and the changed file.

    Raises MorelloError for an operation whose C is not known here, a name that is taken, and a folder without such a
    distribution, or whose target is not installed.
    """
    registry = registry or installed()
    target, file = _distribution(Path(folder), registry)
    if operation not in _LINES:
        listing = f"there is C for {', '.join(_LINES)}; docs/writing-a-target.md shows how to declare others"
        raise UnknownName(f"no C is known for {operation!r}", suggestion(operation, _LINES, listing))
    if not name.isidentifier() or name in target.kernels_by_name:
        raise MorelloError(f"{name!r} is no identifier, or {target.name} has a kernel of that name", "choose another")
    same = '        same=("layout",),\n' if operation in _ARITHMETIC else ""
    declared = f"""
KERNELS += (
    Microkernel(
        name="{name}",
        takes="{_takes(operation, target)}",
{same}        template="{_LINES[operation]}",
    ),
)
"""
    write_file(file, f"{read_file(file).rstrip()}\n{declared}".encode())
    return target.name, file


def _takes(operation: str, target: Target) -> str:
    """Return the pattern of a kernel: of vectors in registers where C has such operators, else of single values."""
    op = target.operations[operation]
    operands = op.operands(op.rank or 1)
    vector = next((level.name for level in target.levels if level.kind == "vector"), None)
    if vector and operation in _ARITHMETIC:
        return f"{operation}(n, {', '.join([f'f32 {vector}'] * len(operands))})"
    scalar = [level.name for level in target.levels if level.kind == "scalar"]
    near = next(level.name for level in target.levels if not level.is_register)
    return f"{operation}(1, {', '.join(['f32 ' + '/'.join((*scalar, near))] * len(operands))})"


def _distribution(folder: Path, registry: Registry) -> tuple[Target, Path]:
    """Return the target of a distribution that `new_target` wrote, and its file of kernels."""
    hint, project = "run this in the folder that `morello targets new` made", folder / "pyproject.toml"
    if not project.is_file():
        raise MorelloError(f"{project} does not exist", hint)
    try:
        (name, entry), *_ = parse_toml(read_file(project))["project"]["entry-points"]["morello"].items()
    except (KeyError, ValueError) as error:
        raise MorelloError(f"{project} has no entry point in the group morello", hint) from error
    file = folder / "src" / entry.partition(".")[0] / "kernels.py"
    if not file.is_file():
        raise MorelloError(f"{file} does not exist", hint)
    if name not in registry.names:
        raise registry.reason(name) or MorelloError(f"target {name} is not installed", f"pip install -e {folder}")
    return registry.target(name, "base"), file
