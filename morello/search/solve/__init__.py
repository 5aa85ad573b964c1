"""Search itself: cells, the steps on them, and their costs within budgets that grow."""
