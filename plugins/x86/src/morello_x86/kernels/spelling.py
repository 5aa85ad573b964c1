"""The spelling of Intel's intrinsics and types, by bytes of a vector."""

#: How intrinsics begin.
PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}
#: The type of a vector of integers, and how the intrinsics' names for it end.
INTEGER_VECTOR = {16: "__m128i", 32: "__m256i", 64: "__m512i"}
SUFFIX = {16: "si128", 32: "si256", 64: "si512"}
