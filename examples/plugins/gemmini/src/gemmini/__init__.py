"""The Morello targets gemmini and gemmini_fp32."""
