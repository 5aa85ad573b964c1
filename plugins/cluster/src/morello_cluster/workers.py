"""Executors of Dask, by scheduler: one that runs already, or a cluster started for a command.

Dask moves tasks from busy workers to idle ones, and begins tasks again whose worker died or lost its network.
"""

from __future__ import annotations

import gc
import logging
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Any

import dask.config
from distributed import Client, LocalCluster, get_worker
from distributed.deploy.cluster import Cluster
from distributed.scheduler import KilledWorker

from morello.api import Workers
from morello.errors import MorelloError
from morello.search.budget import budget_guard

#: Times that Dask begins a task again after an error, such as that of a database that cannot be reached.
_RETRIES = 2
#: The part of its memory in which a worker searches: Dask pauses one that uses 80 %, and ends one that uses 95 %.
_MEMORY = 0.7


class DaskWorkers(Workers):
    """The workers of a Dask client. The cluster, if it was started for the client, is closed with it.

    `jobs` is the number of workers that a cluster may start.
    """

    died = KilledWorker

    def __init__(self, client: Client, cluster: Cluster | None = None, jobs: int = 1):
        self._client, self._cluster, self._jobs = client, cluster, jobs
        self._executor = client.get_executor(pure=False, retries=_RETRIES)

    def count(self) -> int:
        """Return the number of workers now; before the first task, at least that of those which may be started."""
        return max(self._jobs, len(self._client.scheduler_info()["workers"]))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._jobs, found = 0, Future[Any]()
        # A worker that cannot read a message ends; one that cannot load the task returns the error.
        task = pickle.dumps((fn, args, kwargs))
        self._executor.submit(_run, task).add_done_callback(lambda one: _pass_on(one, found))
        return found

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Without `wait`, tasks that wait for a worker are cancelled.
        self._executor.shutdown(wait=kind is None)
        self._client.close()
        if self._cluster:
            self._cluster.close()


def _run(task: bytes) -> Any:
    """Do a task on a worker, within the memory of one of its threads."""
    fn, args, kwargs = pickle.loads(task)
    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    with budget_guard(limit and int(_MEMORY * limit / worker.state.nthreads)):
        return fn(*args, **kwargs)


def _pass_on(done: Future[Any], found: Future[Any]) -> None:
    """Give a future the outcome of another."""
    if done.cancelled():
        found.cancel()
    elif isinstance(error := done.exception(), ImportError | AttributeError):
        found.set_exception(_unlike(error))
    elif error:
        found.set_exception(error)
    else:
        found.set_result(done.result())


def _unlike(error: Exception) -> MorelloError:
    words = f"a worker cannot load the task: {type(error).__name__}: {error}"
    return MorelloError(words, "install the same versions of Morello and its plugins there")


def connected(address: str, jobs: int | None) -> Workers:
    """Return the workers of a scheduler that runs at an address; Dask's configuration has the certificates of tls://."""
    if jobs is not None:
        raise MorelloError("--jobs is for clusters that the command starts", f"leave it out: {address} has its workers")
    try:
        client = Client(address, set_as_default=False)
        client.run(import_module, __name__)
        return DaskWorkers(client)
    except ImportError as error:
        raise _unlike(error) from error
    except (OSError, ValueError, TypeError) as error:
        # Dask's threads would wait for themselves if one of them collected the client as garbage.
        error.__traceback__ = None
        gc.collect()
        hint = "start it with `dask scheduler`; docs/cluster.md shows how"
        raise MorelloError(f"no scheduler of Dask answers at {address}: {error}", hint) from error


def local(_: str, jobs: int | None) -> Workers:
    """Return `jobs` processes of this machine, which Dask restarts when they die."""
    count = jobs or 1
    # Workers log what they lose when the cluster closes.
    options: dict[str, Any] = {
        "silence_logs": logging.CRITICAL,
        "n_workers": count,
        "threads_per_worker": 1,
        "memory_limit": None,
        "dashboard_address": ":0",
    }
    # The certificates keep other users of the machine out.
    return _started(lambda: LocalCluster(host="127.0.0.1", protocol="tls", security=True, **options), count)


def slurm(_: str, jobs: int | None) -> Workers:
    """Return up to `jobs` workers in jobs of Slurm, by Dask's configuration in jobqueue.yaml."""
    return _adaptive(slurm_cluster(), jobs)


def slurm_cluster() -> Callable[..., Any]:
    """Return Dask's class for clusters in Slurm."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError as error:
        raise _missing("slurm") from error
    finally:
        signal.signal(signal.SIGINT, handler)  # the import replaces it
    return SLURMCluster


def kubernetes(_: str, jobs: int | None) -> Workers:
    """Return up to `jobs` workers in pods of Kubernetes, by Dask's configuration in kubernetes.yaml."""
    try:
        from dask_kubernetes.operator import KubeCluster  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _missing("kubernetes") from error
    return _adaptive(KubeCluster, jobs)


def _missing(extra: str) -> MorelloError:
    return MorelloError(f"the scheduler {extra} is not installed", f"pip install 'morello-cluster[{extra}]'")


def _adaptive(kind: Any, jobs: int | None) -> Workers:
    def make() -> Cluster:
        cluster = kind()
        cluster.adapt(minimum=0, maximum=jobs or 1)
        return cluster

    return _started(make, jobs or 1)


def _started(make: Callable[[], Cluster], jobs: int) -> Workers:
    """Return the workers of a cluster that is started. Raises MorelloError."""
    # The third worker that dies of a task is the last.
    dask.config.set({"distributed.scheduler.allowed-failures": 2})
    try:
        cluster = make()
        return DaskWorkers(Client(cluster, set_as_default=False), cluster, jobs)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise MorelloError(f"the cluster cannot be started: {error}", "check Dask's configuration") from error
