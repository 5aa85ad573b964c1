"""Databases of solved Specs on a PostgreSQL server, with a local file for each."""

from morello_postgres.store import PostgresStore


def open_store(address: str, tolerant: bool = False) -> PostgresStore:
    """Return the database at an address such as postgresql://USER@HOST/NAME. Raises MorelloError."""
    return PostgresStore(address, tolerant=tolerant)
