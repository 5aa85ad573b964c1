/* What Python and the compiled layout bounds share. Python reads this file too (`library.py`). */

/* Lower `rows`, [matrices, height, width], to what `others`, [matrices, through, width], have for so much `more`,
 * [matrices, height, through]. Arrays may be the same: what is lowered counts from then on. */
void closure_lower(double *rows, const double *more, const double *others, int64_t matrices, int64_t height,
                   int64_t through, int64_t width);
