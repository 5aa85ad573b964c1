"""Estimate a database for many users: Specs that models ask for, caches, refills, and what an answer takes.

    python benchmarks/scale.py requests [--exponent 1.0] [--lengths powers|any] [--requests 100000] [--seed 0]
    python benchmarks/scale.py sample [--goals 24] [--seed 0]
    python benchmarks/scale.py tables [--most 100000]

Layers and their numbers follow from the definitions of public models (`harness/models.py`). The popularity of models,
sizes, data types and targets is assumed: that of rank r is proportional to r^-exponent in each of these, drawn
independently. `requests` simulates users who compile whole models; `sample` searches for Specs drawn in this way;
`tables` measures a file with as many answers in one table as it says. Times are seconds of CPU.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import attrs
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from harness.models import IMAGES, MODELS, Builder, Transformer, layers_of
from morello.db.answers import AnswerBlock, AnswerKind
from morello.db.database_cache import DatabaseCache
from morello.db.store import SpecStore
from morello.frontend.parser import parse_spec
from morello.ir.impl import walk
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget
from morello.search.library import library
from morello.search.session import SearchSession

TARGET = "x86_avx512"
#: Fingerprints in use at once: six targets with five profiles each.
FINGERPRINTS = 30
DTYPES = ("f32", "bf16", "u8")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
PIXELS = (224, 256, 384, 192, 320, 512)
POWERS = (128, 512, 256, 1024, 2048, 64, 32)
#: The longest sequence, of any length.
LONGEST = 2048
#: Models of users' own: their number, and their share of requests.
OWN, OWN_SHARE = 100_000, 0.1
CACHES = (1_000, 10_000, 100_000)


# Requests.


class Ranks:
    """Draws ranks from 0 on, the first one most often: that of rank r in proportion to (r + 1)^-exponent."""

    def __init__(self, count: int, exponent: float):
        self._ends = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))

    def draw(self, draws: random.Random) -> int:
        return bisect.bisect(self._ends, draws.random() * self._ends[-1])


def own_model(number: int) -> Transformer:
    """Return a model that a user has made: a stack of blocks of sizes that are multiples of 64."""
    draws = random.Random(number)
    width = 64 * draws.randint(2, 96)
    inner = 64 * draws.randint(width // 32, width // 16)
    return Transformer(layers=draws.randint(2, 48), width=width, heads=width // 64, inner=inner)


@attrs.frozen
class Traffic:
    """Requests for all Specs of a model on a target, drawn from assumed popularities."""

    exponent: float
    any_length: bool
    seed: int
    draws: random.Random = attrs.field(init=False)
    numbers: dict[str, int] = attrs.field(init=False, factory=dict)
    _layers: dict[tuple[int | str, int, int, str], list[int]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "draws", random.Random(self.seed))

    @property
    def models(self) -> list[str]:
        """Return the models, the most popular first: an order drawn at random."""
        return random.Random(self.seed).sample(sorted(MODELS), len(MODELS))

    def requests(self, count: int) -> Iterator[list[int]]:
        """Yield the numbers of the Specs of each request; the fingerprint is a number modulo FINGERPRINTS."""
        models = self.models
        sizes = (len(models), OWN, FINGERPRINTS, len(DTYPES), len(BATCHES), len(PIXELS))
        by_rank = [Ranks(size, self.exponent) for size in sizes]
        lengths = Ranks(len(POWERS), self.exponent)
        for _ in range(count):
            name, own, target, dtype, batch, pixels = (ranks.draw(self.draws) for ranks in by_rank)
            model: int | str = own if self.draws.random() < OWN_SHARE else models[name]
            length = self.draws.randint(1, LONGEST) if self.any_length else POWERS[lengths.draw(self.draws)]
            size = PIXELS[pixels] if model in IMAGES else length
            specs = self._specs(model, BATCHES[batch], size, DTYPES[dtype])
            yield [spec * FINGERPRINTS + target for spec in specs]

    def _specs(self, model: int | str, batch: int, size: int, dtype: str) -> list[int]:
        key = model, batch, size, dtype
        if key not in self._layers:
            self._layers[key] = [self.numbers.setdefault(text, len(self.numbers)) for text in self.layers(*key)]
        return self._layers[key]

    @staticmethod
    def layers(model: int | str, batch: int, size: int, dtype: str) -> Counter[str]:
        """Return the layers of a public model or of a user's own."""
        if isinstance(model, str):
            return layers_of(model, batch, size, dtype)
        build = Builder(dtype)
        own_model(model)(build, batch, size)
        return build.layers


class Lru:
    """A cache of the Specs used last; counts hits."""

    def __init__(self, size: float):
        self._size = size
        self._kept: OrderedDict[int, None] = OrderedDict()

    def hit(self, spec: int) -> bool:
        """Return whether a Spec is in the cache, and keep it from now on."""
        known = spec in self._kept
        self._kept[spec] = None
        self._kept.move_to_end(spec)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return known

    def drop(self, fingerprint: int) -> set[int]:
        """Drop all Specs of a fingerprint and return them."""
        gone = {spec for spec in self._kept if spec % FINGERPRINTS == fingerprint}
        for spec in gone:
            del self._kept[spec]
        return gone

    def __len__(self) -> int:
        return len(self._kept)


@attrs.frozen
class Growth:
    """Distinct Specs after each number of requests, and hit rates of look-ups from one of these to the next."""

    requests: list[int]
    distinct: list[int]
    hits: list[float]
    looked_up: int

    @cached_property
    def slope(self) -> float:
        """Return how distinct Specs grow at the end: their power of the number of requests."""
        (one, two), (before, after) = self.requests[-2:], self.distinct[-2:]
        return math.log(after / before) / math.log(two / one)

    def requests_until(self, distinct: float) -> float:
        """Return the extrapolated number of requests after which there are as many distinct Specs."""
        return self.requests[-1] * (distinct / self.distinct[-1]) ** (1 / self.slope)


def growth(requests: Sequence[Sequence[int]]) -> Growth:
    """Return the growth of an unbounded cache."""
    every = Lru(math.inf)
    marks = [count for count in (10, 100, 1_000, 10_000, 100_000, 1_000_000) if count < len(requests)] + [len(requests)]
    found = Growth(marks, [], [], sum(map(len, requests)))
    for start, end in itertools.pairwise([0, *marks]):
        hits = [every.hit(spec) for request in requests[start:end] for spec in request]
        found.hits.append(sum(hits) / len(hits))
        found.distinct.append(len(every))
    return found


def hit_rates(requests: Sequence[Sequence[int]], size: int) -> tuple[float, float]:
    """Return hit rates in the second half: of the Specs used last, and of those most frequent in the first half."""
    half = len(requests) // 2
    cache = Lru(size)
    for spec in itertools.chain.from_iterable(requests[:half]):
        cache.hit(spec)
    later = [*itertools.chain.from_iterable(requests[half:])]
    frequent = {spec for spec, _ in Counter(itertools.chain.from_iterable(requests[:half])).most_common(size)}
    return sum(map(cache.hit, later)) / len(later), sum(spec in frequent for spec in later) / len(later)


def refill(requests: Sequence[Sequence[int]], marks: Sequence[int]) -> tuple[int, list[tuple[int, int, int]]]:
    """Drop the answers of the most popular fingerprint after half of the requests.

    Return their number, and for each number of later requests of that fingerprint in `marks`: these requests, those
    that miss a dropped answer, and the dropped answers that were searched for again.
    """
    half = len(requests) // 2
    cache = Lru(math.inf)
    for spec in itertools.chain.from_iterable(requests[:half]):
        cache.hit(spec)
    old = cache.drop(0)
    rows: list[tuple[int, int, int]] = []
    again = slow = 0
    own = [request for request in requests[half:] if request[0] % FINGERPRINTS == 0]
    for at, request in enumerate(own, 1):
        # Others are asked for the first time, and would be missed anyway.
        missed = [spec for spec in request if not cache.hit(spec) and spec in old]
        again += len(missed)
        slow += bool(missed)
        if at in marks or at == len(own):
            rows.append((at, slow, again))
    return len(old), rows


def cores(load: float, wait: float, seconds: float) -> int:
    """Return the least number of cores that keep the mean wait for one below `wait` seconds (Erlang's formula C).

    `load` is the number of cores that searches of `seconds` each keep busy.
    """
    count = max(1, math.ceil(load))
    while True:
        # The probability that all are busy, by the recursion of formula B.
        blocked = 1.0
        for busy in range(1, count + 1):
            blocked = load * blocked / (busy + load * blocked)
        waits = blocked / (1 - load / count * (1 - blocked)) if count > load else 1.0
        if count > load and waits * seconds / (count - load) <= wait:
            return count
        count += max(1, count // 200)


# Measurements.


@attrs.frozen
class Sampled:
    """One search: seconds of CPU, whether its program is proven, Specs of its program, those that were stored before
    by other searches, and the rectangles and bytes of a file with its answers alone."""

    text: str
    seconds: float
    proven: bool
    parts: int
    known: int
    rectangles: int
    file_bytes: int


def sample(texts: Iterable[str], target: Target, seconds: float, shared: SpecStore) -> Iterator[Sampled]:
    """Search for Specs, each with a database of its own, and collect all answers in a shared one."""
    for text in texts:
        spec = parse_spec(text, target)
        with tempfile.TemporaryDirectory() as folder:
            own = SpecStore(Path(folder) / "specs.db")
            before = time.process_time()
            budget = attrs.evolve(SearchBudget.default(), seconds=seconds)
            found = SearchSession(target, cache=DatabaseCache(own)).search_within(spec, budget)
            taken = time.process_time() - before
            parts = list(dict.fromkeys(node.spec for node in walk(found.impl)))[1:]
            answers = (shared.find(target, part) for part in parts)
            known = sum(answer is not None and answer.kind == AnswerKind.EXACT for answer in answers)
            tables = [*own.tables()]
            shared.add_tables(
                attrs.evolve(one, boxes=attrs.evolve(one.boxes, fresh=~one.boxes.fresh)) for one in tables
            )
            rectangles = sum(len(one.boxes) for one in tables)
            own.close()
            size = own.path.stat().st_size
        yield Sampled(text, taken, found.low >= found.cost, len(parts), known, rectangles, size)


@attrs.frozen
class TableCosts:
    """Bytes an answer of a file with one table, and seconds to store all, one more, and to find one: cold and warm."""

    answers: int
    bytes_each: float
    fill: float
    add: float
    cold: float
    warm: float


def table_costs(answers: int, target: Target, path: Path) -> TableCosts:
    """Measure a file with one table of products of random sizes, whose answers all differ."""
    spec = parse_spec("Matmul(1×1×1×1, (f32, GL), (f32, GL), (f32, GL), serial)", target)
    draws = np.random.default_rng(0)
    shapes = np.unique(np.insert(draws.integers(1, 4096, (answers + answers // 50 + 2, 3)), 0, 1, axis=1), axis=0)
    shapes = draws.permutation(shapes)[: answers + 1]
    costs = shapes.prod(axis=1) + draws.integers(1, 1000, len(shapes))

    def block(rows: slice) -> AnswerBlock:
        count = len(shapes[rows])
        limits = np.tile(np.array(spec.limits, dtype=np.int64), (count, 1))
        zero = np.zeros(count, dtype=np.int32)
        kinds = zero.astype(np.int8)
        return AnswerBlock(spec.logical, shapes[rows], limits, 0 * limits, costs[rows], kinds, ("to_accum",), zero)

    def taken(work: Callable[[], object]) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    store = SpecStore(path)
    fill = taken(lambda: store.add(target, [block(slice(0, answers))]))
    store.close()
    size = path.stat().st_size
    wanted = attrs.evolve(spec, logical=attrs.evolve(spec.logical, shape=tuple(map(int, shapes[0]))))
    cold = taken(lambda: store.find(target, wanted))
    warm = taken(lambda: [store.find(target, wanted) for _ in range(100)]) / 100
    add = taken(lambda: store.add(target, [block(slice(answers, answers + 1))]))
    store.close()
    return TableCosts(answers, size / answers, fill, add, cold, warm)


# Commands.


@click.group(help=(__doc__ or "").split("\n")[0])
def main() -> None: ...


@main.command("requests")
@click.option("--exponent", default=1.0, show_default=True, help="Of the popularity of all choices.")
@click.option("--lengths", type=click.Choice(["powers", "any"]), default="powers", help="Lengths of sequences.")
@click.option("--requests", "count", default=100_000, show_default=True, help="Requests for whole models.")
@click.option("--seconds", default=6.0, show_default=True, help="Seconds of CPU for a new Spec (see `sample`).")
@click.option("--seed", default=0, show_default=True)
def requests_command(exponent: float, lengths: str, count: int, seconds: float, seed: int) -> None:
    """Simulate users who compile models."""
    requests = [*Traffic(exponent, lengths == "any", seed).requests(count)]
    grown = growth(requests)
    table = Table("requests", "distinct Specs", "hit rate", title="A cache without bound")
    for row in zip(grown.requests, grown.distinct, grown.hits, strict=True):
        table.add_row(f"{row[0]:,}", f"{row[1]:,}", f"{row[2]:.1%}")
    for distinct in (1e6, 1e9):
        table.add_row(f"{grown.requests_until(distinct):.1e}", f"{distinct:.0e}", "extrapolated")
    caches = Table("Specs in the cache", "used last", "most frequent before", title="Hit rates of the second half")
    for size in CACHES:
        caches.add_row(f"{size:,}", *(f"{rate:.1%}" for rate in hit_rates(requests, size)))
    dropped, rows = refill(requests, [10, 100, 1000, 10_000])
    title = f"After a change of one target's costs: {dropped:,} answers void"
    refills = Table("later requests to it", "that wait again", "Specs solved again", "hours of CPU", title=title)
    for later, slow, again in rows:
        refills.add_row(f"{later:,}", f"{slow:,}", f"{again:,}", f"{again * seconds / 3600:.1f}")
    title = f"Cores for a mean wait of 1 s, with {seconds:g} s a Spec"
    needed = Table("requests a second", "misses a second", "busy", "cores", title=title)
    misses = (1 - grown.hits[-1]) * grown.looked_up / count
    for rate in (0.01, 0.1, 1, 10, 100):
        load = rate * misses * seconds
        needed.add_row(f"{rate:g}", f"{rate * misses:.2f}", f"{load:.1f}", f"{cores(load, 1.0, seconds):,}")
    for one in (table, caches, refills, needed):
        Console(width=120).print(one)


@main.command("sample")
@click.option("--goals", default=24, show_default=True, help="Distinct Specs drawn.")
@click.option("--limit", default=30.0, show_default=True, help="Seconds for each search.")
@click.option("--seed", default=0, show_default=True)
def sample_command(goals: int, limit: float, seed: int) -> None:
    """Search for Specs that requests ask for."""
    library()
    target = installed().target(TARGET, "base")
    traffic, asked = Traffic(1.0, False, seed), dict[str, None]()
    for request in traffic.requests(10_000):
        by_number = [*traffic.numbers]
        asked[by_number[traffic.draws.choice(request) // FINGERPRINTS]] = None
        if len(asked) == goals:
            break
    table = Table("Spec", "s", "proven", "parts", "stored before", "rectangles", "bytes")
    with tempfile.TemporaryDirectory() as folder:
        shared = SpecStore(Path(folder) / "shared.db")
        found = [*sample(asked, target, limit, shared)]
        for one in found:
            cells = (one.parts, one.known, one.rectangles, f"{one.file_bytes:,}")
            table.add_row(one.text.split(", (")[0], f"{one.seconds:.1f}", "yes" if one.proven else "", *map(str, cells))
        Console(width=120).print(table)
        shared.close()
        size = shared.path.stat().st_size
    half = found[len(found) // 2 :]
    seconds = [one.seconds for one in found]
    rectangles = sum(one.rectangles for one in found)
    print(f"a Spec: {np.mean(seconds):.1f} s of CPU (median {np.median(seconds):.1f}), {rectangles / len(found):.0f}")
    print(f"rectangles and {size / len(found):,.0f} bytes of a shared file; {sum(one.proven for one in found)} proven")
    known, parts = sum(one.known for one in half), sum(one.parts for one in half)
    print(f"in the second half, {known} of {parts} parts of programs were stored before ({known / parts:.0%})")


@main.command("tables")
@click.option("--most", default=100_000, show_default=True, help="Answers of the largest table.")
def tables_command(most: int) -> None:
    """Measure files with one large table."""
    target = installed().target(TARGET, "base")
    table = Table("answers", "bytes each", "store all, s", "store one more, s", "find, cold, s", "find, warm, ms")
    answers = 1_000
    while answers <= most:
        with tempfile.TemporaryDirectory() as folder:
            one = table_costs(answers, target, Path(folder) / "specs.db")
        times = f"{one.fill:.2f}", f"{one.add:.3f}", f"{one.cold:.3f}", f"{1000 * one.warm:.2f}"
        table.add_row(f"{one.answers:,}", f"{one.bytes_each:.0f}", *times)
        answers *= 10
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
