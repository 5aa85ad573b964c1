"""The cases of ONNX's backend tests: none is wrong, and the tables of the docs say which pass."""

from __future__ import annotations

import onnx
import pytest

from tools.onnx_backend import PAGE, Case, by_program, cases, failure, table, with_table

pytestmark = pytest.mark.slow

#: Cases that run as programs in C.
COMPILED = (
    "test_lstm_with_peepholes",
    "test_gru_with_initial_bias",
    "test_qlinearconv",
    "test_dynamicquantizelinear",
    "test_resize_upsample_sizes_cubic",
    "test_top_k_smallest",
    "test_gather_elements_0",
    "test_averagepool_1d_default",
    "test_convtranspose_output_shape",
    "test_attention_4d",
    "test_where_example",
)


@pytest.fixture(scope="module")
def all_cases() -> dict[str, Case]:
    return {case.name: case for case in cases()}


def test_reference(all_cases):
    found = {name: (case.operator, failure(case)) for name, case in all_cases.items()}
    assert [(name, why) for name, (_, why) in found.items() if why.startswith("wrong")] == []
    page = PAGE.read_text()
    if f"cases of onnx {onnx.__version__} pass" not in page:
        pytest.skip("the page is about the cases of another version of onnx")
    # Run python -m tools.onnx_backend.
    assert with_table(page, table(found)) == page


def test_programs(all_cases):
    run = by_program("x86_avx2")
    assert {name: failure(all_cases[name], run) for name in COMPILED} == dict.fromkeys(COMPILED, "")
