"""Examples of edits for prompts, each shown where a plan has words that ask for it."""

TILE = """\
Larger tiles of columns for a product of 512×512 matrices, so that each part of the second matrix is read for more
rows. Before:
    tile [0, 0, 0, 64]
    move 1 to L2
    synthesize
After, with tiles of 128 columns:
    tile [0, 0, 0, 128]
    move 1 to L2
    synthesize"""

REORDER = """\
Loops over rows and columns exchanged, so that rows stay while columns go by. Before:
    tile [0, 64, 0, 0]
    tile [0, 0, 0, 128]
    synthesize
After:
    tile [0, 0, 0, 128]
    tile [0, 64, 0, 0]
    synthesize"""

MOVE = """\
The second matrix moved to L2 once for all rows, not for each tile of them. Before:
    tile [0, 64, 0, 0]
    move 1 to L2
    synthesize
After:
    move 1 to L2
    tile [0, 64, 0, 0]
    synthesize"""

PACK = """\
The second matrix packed into strips of 16 columns outside of the loop over rows. Before:
    tile [0, 64, 0, 0]
    synthesize
After:
    move 1 to GL as col_major[2:16]
    tile [0, 64, 0, 0]
    synthesize"""
