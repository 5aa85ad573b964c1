"""An extension of the Morello target x86_avx2."""
