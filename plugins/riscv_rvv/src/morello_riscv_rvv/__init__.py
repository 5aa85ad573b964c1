"""Targets riscv_rvv128 and riscv_rvv256: RISC-V with vectors of at least 128 and 256 bits."""
