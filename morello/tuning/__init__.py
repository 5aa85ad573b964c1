"""Tuning: programs improved by edits of their schedules that a proposer plans, of which those stay that run faster.

    start ──> plans ──> edits ──> programs ──> measured ──> beam ──> plans ...

    menu       the optimizations that a plan may choose
    evaluate   builds programs, verifies them and times them against their parents
    beam       the search itself, its budgets and its trace
    proposers  what plans: rules, the model's k best programs, evolution, language models

Edits are made as `morello.plugins.edits` has it. Candidates are schedules, so a proposal may be refused or slow, but it
cannot be wrong ([Hong2025] edits code).
"""
