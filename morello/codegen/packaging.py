"""The files by which other projects build and find a library of emitted C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from morello.codegen.interface import COMMON_FLAGS


def cmake(name: str, flags: Mapping[str, Sequence[str]], parallel: bool) -> str:
    """Return CMakeLists.txt for a library of C files, each with `flags` of its own.

    The library is the target NAME, and NAME::NAME where it is found with find_package(NAME) after it was installed.
    """
    own = "".join(
        f'set_source_files_properties({file} PROPERTIES COMPILE_OPTIONS "{";".join(these)}")\n'
        for file, these in flags.items()
        if these
    )
    threads = " -pthread" * parallel
    return f"""\
# The library {name}, made by Morello.
cmake_minimum_required(VERSION 3.13)
project({name} LANGUAGES C)

add_library({name} {" ".join(flags)})
add_library({name}::{name} ALIAS {name})
set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON PUBLIC_HEADER {name}.h)
target_compile_options({name} PRIVATE {" ".join(COMMON_FLAGS)}{threads})
{own}target_include_directories(
    {name} PUBLIC $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}> $<INSTALL_INTERFACE:include>)
target_link_libraries({name} PUBLIC m{threads})

install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION lib LIBRARY DESTINATION lib PUBLIC_HEADER DESTINATION include)
install(EXPORT {name} FILE {name}-config.cmake NAMESPACE {name}:: DESTINATION lib/cmake/{name})
install(FILES {name}.pc DESTINATION lib/pkgconfig)
"""


def pkg_config(name: str, functions: Sequence[str], parallel: bool) -> str:
    """Return the file for pkg-config of a library that is installed in lib/, its header in include/."""
    return f"""\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: {name}
Description: {", ".join(functions)}, compiled by Morello
Version: 1.0
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -l{name} -lm{" -pthread" * parallel}
"""
