"""Searches by the schedulers of Dask: a cluster of this machine, one that runs already, Slurm, Kubernetes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.config
import pytest
from distributed import LocalCluster
from morello_cluster.workers import connected, local, slurm_cluster

from morello import api
from morello.api.precomputing import solve_group
from morello.db.fingerprint import fingerprint_parts
from morello.errors import MorelloError
from morello.frontend import SourceError

PRODUCT = "Matmul(1×1×1×1, GL, GL, GL, serial)"
#: Dask's configuration for a scheduler that does not answer.
AT_ONCE = {"distributed.comm.timeouts.connect": "1s"}
pytestmark = pytest.mark.slow


def family() -> api.Family:
    (one,) = api.parse_families(PRODUCT, "x86_avx2").values()
    return one


def solve(workers: api.Workers, folder: Path, bound: str = "1x4x4x8") -> api.Precomputation:
    """Solve small products by some workers, twice; return the first outcome."""
    one, store = family(), api.SpecStore(folder / "solved.db")
    shapes = {one: api.shapes_up_to([bound], one)}
    done = api.precompute(shapes, store, workers=workers)
    assert api.precompute(shapes, store).counts.known == len(shapes[one])
    return done


def started(**options: Any) -> Any:
    """Return a cluster; pyright takes it for one of coroutines."""
    return LocalCluster(**options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Return a cluster that somebody else runs."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "4GiB"}
    with started(n_workers=2, host="127.0.0.1", **options) as one:
        yield one


def test_a_local_cluster_stores_the_same(cli, tmp_path):
    given = "precompute", PRODUCT, "--up-to", "1x4x4x8", "--target", "x86_avx2", "--db"
    said = cli(*given, str(tmp_path / "dask.db"), "--scheduler", "local", "--jobs", "2").stdout
    assert "36 Specs, 0 solved before, 36 now" in said
    cli(*given, str(tmp_path / "own.db"))
    one = family()
    dask, own = (api.SpecStore(tmp_path / f"{name}.db") for name in ("dask", "own"))
    for shape in api.shapes_up_to(["1x4x4x8"], one):
        program = dask.program(one.target, one.at(shape))
        assert program is not None
        assert program == own.program(one.target, one.at(shape))


def test_a_running_cluster_goes_on(cluster, tmp_path):
    for _ in range(2):
        with connected(cluster.scheduler_address, None) as workers:
            assert workers.count() == 2
            assert solve(workers, tmp_path).counts.done in (0, 36)
    assert len(cluster.scheduler_info["workers"]) == 2


def test_certificates_are_those_of_dask(tmp_path):
    with started(n_workers=1, protocol="tls", security=True, dashboard_address=":0") as secure:
        address, keys = secure.scheduler_address, secure.security.get_connection_args("client")
        assert address.startswith("tls://")
        assert keys["require_encryption"]
        with dask.config.set(AT_ONCE), pytest.raises(MorelloError, match="no scheduler of Dask answers"):
            connected(address, None)
        own = {"ca-file": "tls_ca_file", "client.cert": "tls_client_cert", "client.key": "tls_client_key"}
        config = {f"distributed.comm.tls.{key}": getattr(secure.security, name) for key, name in own.items()}
        with dask.config.set(config), connected(address, None) as workers:
            assert solve(workers, tmp_path).counts.done == 36


def test_another_morello_is_reported(cluster, tmp_path):
    one, db = family(), str(tmp_path / "solved.db")
    for part in ("morello", "other_plugin"):
        sources = {**fingerprint_parts(one.target), part: "1"}
        with connected(cluster.scheduler_address, None) as workers:
            task = workers.submit(solve_group, one, [(1, 1, 1, 1)], db, None, sources)
            with pytest.raises(MorelloError, match=rf"the worker on \S+ has another Morello: {part} differ"):
                task.result(60)


def test_a_missing_package_is_reported(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def work(): return 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # pyright: ignore[reportMissingImports]

    with (
        connected(cluster.scheduler_address, None) as workers,
        pytest.raises(MorelloError, match=r"a worker cannot load the task: .*only_here"),
    ):
        workers.submit(only_here.work).result(60)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pid(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_killed_workers_are_replaced(tmp_path):
    with local("local", 2) as workers:
        first = [workers.submit(_pid, 1.0) for _ in range(2)]
        running = {one.result(60) for one in first}
        waiting = [workers.submit(_pid, 2.0) for _ in range(2)]
        time.sleep(1)
        os.kill(min(running), signal.SIGKILL)
        assert min(running) not in {one.result(60) for one in waiting}
        error = workers.submit(_kill).exception(60)
        assert isinstance(error, workers.died)
        assert "3 different workers" in str(error)
        assert solve(workers, tmp_path).counts.done == 36


def test_a_worker_without_network_is_replaced(tmp_path):
    with dask.config.set({"distributed.scheduler.worker-ttl": "3s"}), local("local", 2) as workers:
        stopped = workers.submit(_pid, 0.0).result(60)
        try:
            os.kill(stopped, signal.SIGSTOP)
            assert solve(workers, tmp_path).counts.done == 36
        finally:
            with suppress(ProcessLookupError):  # Dask has replaced it
                os.kill(stopped, signal.SIGKILL)


def test_ctrl_c_closes_a_local_cluster(tmp_path):
    command = [sys.executable, "-m", "morello", "precompute", PRODUCT, "--target", "x86_avx2", "--up-to", "1x64x64x64"]
    command += ["--sizes", "1-64", "--scheduler", "local", "--jobs", "2", "--db", str(tmp_path / "solved.db")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        store, target, started = api.SpecStore(tmp_path / "solved.db"), family().target, time.monotonic()
        while not store.has_any(target) and time.monotonic() < started + 120:
            time.sleep(0.2)
        # As in a shell, where it reaches all processes of the command.
        os.killpg(running.pid, signal.SIGINT)
        message = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert "of 262,144 goals are done; solved Specs are stored in" in message
    assert "Traceback" not in message
    ended = time.monotonic() + 20
    while _is_running(running.pid) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not _is_running(running.pid)


def _is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


SBATCH = """\
#!{python}
# Runs a job script in the background, in place of a node of Slurm.
import subprocess, sys
log = open({folder!r} + "/job.log", "a")
script = open(sys.argv[-1]).read()  # the file is deleted when this command ends
job = subprocess.Popen(["/bin/sh", "-c", script], stdout=log, stderr=log, start_new_session=True)
print("Submitted batch job", job.pid)
"""
SCANCEL = """\
#!{python}
import os, signal, sys
for job in sys.argv[1:]:
    os.killpg(int(job), signal.SIGTERM)
    open({folder!r} + "/cancelled", "a").write(job + "\\n")
"""


def test_jobs_of_slurm(tmp_path, monkeypatch):
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        script = tmp_path / name
        script.write_text(text.format(python=sys.executable, folder=str(tmp_path)), encoding="utf-8")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = {"cores": 1, "processes": 1, "memory": "2GB", "interface": "lo", "local-directory": str(tmp_path)}
    config["scheduler-options"] = {"dashboard_address": ":0"}
    handler = signal.getsignal(signal.SIGINT)
    slurm_cluster()  # adds Dask's defaults to the configuration
    assert signal.getsignal(signal.SIGINT) is handler
    slurm = {f"jobqueue.slurm.{key}": value for key, value in config.items()}
    with dask.config.set(slurm), api.cluster("slurm")(2) as workers:
        assert workers.count() == 2
        assert solve(workers, tmp_path).counts.done == 36
    assert (tmp_path / "cancelled").read_text(encoding="utf-8").split()


def test_syntax_errors_come_back_where_contexts_are_pickled():
    with pytest.raises(SourceError) as caught:
        api.parse("target x86_avx2\nspec a = FillZero(")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_kubernetes_by_a_stand_in(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with pytest.raises(MorelloError, match="not installed") as raised:
        api.cluster("kubernetes")(2)
    assert raised.value.hint == "pip install 'morello-cluster[kubernetes]'"
    stand_in = ModuleType("dask_kubernetes.operator")
    stand_in.KubeCluster = lambda: LocalCluster(n_workers=0, dashboard_address=":0")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_kubernetes", ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", stand_in)
    with api.cluster("kubernetes")(1) as workers:
        assert solve(workers, tmp_path).counts.done == 36


def test_wrong_options(cli, refused, tmp_path):
    given = "precompute", PRODUCT, "--target", "x86_avx2", "--up-to", "1x1x1x1", "--db", str(tmp_path / "solved.db")
    refused(cli(*given, "--scheduler", "slurm"), "cannot open the file", "postgresql://HOST/NAME")
    refused(cli(*given, "--scheduler", "tcp://127.0.0.1:9"), "cannot open the file")
    refused(cli(*given, "--scheduler", "pbs"), "no installed plugin has the scheduler pbs", "installed are kubernetes")
    with (
        dask.config.set(AT_ONCE),
        pytest.raises(MorelloError, match=r"no scheduler of Dask answers at tcp://127\.0\.0\.1:9"),
    ):
        connected("tcp://127.0.0.1:9", None)
    with pytest.raises(MorelloError, match="--jobs is for clusters that the command starts"):
        connected("tcp://127.0.0.1:9", 2)
