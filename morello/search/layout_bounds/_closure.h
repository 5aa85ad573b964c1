/* What Python and the compiled layout bounds share. Python reads this file too (`library.py`). */

/* Let `cost`, [matrices, count, count], be what any number of steps costs at least, given what one does. */
void closure_close(double *cost, int64_t matrices, int64_t count);

/* Lower bounds of copies, `values` [shapes, sources, destinations], by what their sources can become at a cost,
 * [shapes, from, to], or their destinations, [shapes, to, from]. */
void closure_lower_sources(double *values, const double *cost, int64_t shapes, int64_t sources, int64_t destinations);
void closure_lower_destinations(double *values, const double *cost, int64_t shapes, int64_t sources, int64_t destinations);
