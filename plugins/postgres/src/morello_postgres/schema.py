"""The tables of a server, made at the first use by a role that may do so."""

from typing import LiteralString

#: The version of the tables. Another one is an error: there are no migrations yet.
FORMAT = 1

#: A rectangle is a cube, as for R-trees: the number of its table, then sizes and limits. A step is an index of `steps`,
#: which only grows. `written` is the transaction that wrote a row: rows since a snapshot are at least its xmin.
STATEMENTS: tuple[LiteralString, ...] = (
    "CREATE EXTENSION IF NOT EXISTS cube",
    """CREATE TABLE morello_meta (
    format integer NOT NULL,
    identity uuid NOT NULL DEFAULT gen_random_uuid())""",
    """CREATE TABLE morello_tables (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    fingerprint text NOT NULL,
    target text NOT NULL,
    levels text NOT NULL,
    labels text NOT NULL,
    steps text[] NOT NULL DEFAULT '{}')""",
    "CREATE INDEX ON morello_tables (fingerprint)",
    """CREATE TABLE morello_boxes (
    number integer NOT NULL REFERENCES morello_tables ON DELETE CASCADE,
    box cube NOT NULL,
    kind smallint NOT NULL,
    numerator bigint NOT NULL,
    denominator bigint NOT NULL,
    step integer NOT NULL,
    unverified boolean NOT NULL,
    written xid8 NOT NULL DEFAULT pg_current_xact_id())""",
    "CREATE INDEX ON morello_boxes USING gist (box)",
    "CREATE INDEX ON morello_boxes (number, written)",
    """CREATE TABLE morello_programs (
    digest bytea PRIMARY KEY,
    fingerprint text NOT NULL,
    target text NOT NULL,
    spec text NOT NULL,
    machine text NOT NULL,
    schedule text NOT NULL,
    record text NOT NULL)""",
    "CREATE INDEX ON morello_programs USING hash (spec)",
)
