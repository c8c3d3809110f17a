"""Two workers with exactly-once sources, shared by the tests: one takes over when the other stops or is killed."""

import atexit
import functools
import threading
import time

from connect import WORK, Connector, Worker
from records import Cluster
from suite import BOOTSTRAP, nightly_only, unique, until
from worker_tests import append, content, lines

EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}


@functools.cache
def pair():
    group = unique("pair")
    workers = [Worker(group, BOOTSTRAP, number, EXACTLY_ONCE) for number in (1, 2)]
    for worker in workers:
        atexit.register(lambda worker=worker: worker.is_alive() and worker.stop())
    return workers


@functools.cache
def cluster():
    return Cluster(BOOTSTRAP)


def both():
    """The two workers, both started."""
    nightly_only()
    dead = [worker for worker in pair() if not worker.is_alive()]
    for worker in dead:
        worker.start()
    for worker in dead:
        worker.wait_until_ready()
    return pair()


def home(connector):
    """The worker of a connector's task."""
    (task,) = until(lambda: (connector.status() or {"tasks": []})["tasks"], f"a task of {connector.name}")
    return task["worker_id"]


def test_workers_share_tasks_and_one_takes_them_all_when_the_other_stops():
    first, second = both()
    names = [unique("shared") for _ in range(4)]
    for name in names:
        append(WORK / f"{name}.in", lines(0, 10))
    sources = [first.source(name, WORK / f"{name}.in", name) for name in names]
    until(lambda: {home(source) for source in sources} == {first.address, second.address}, "tasks at both workers")
    second.stop()
    for name in names:
        append(WORK / f"{name}.in", lines(10, 20))
    for source in sources:
        source.wait_for("RUNNING", tasks=1, worker=first.address)
    for name in names:
        until(lambda name=name: len(cluster().values(name)) >= 20, f"the lines of {name}")
        assert cluster().values(name) == lines(0, 20), cluster().values(name)
    for source in sources:
        source.delete()


class Writing:
    """Appends lines to a file for the time of a block."""

    def __init__(self, file):
        self.file, self.count = file, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.write)

    def write(self):
        while not self.ended.wait(0.01):
            append(self.file, lines(self.count, self.count + 10))
            self.count += 10

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def written_once(worker, name):
    """A source of a file that is being written, with several transactions a second; and its worker, and the other."""
    boundary = {"exactly.once.support": "required", "transaction.boundary": "interval", "transaction.boundary.interval.ms": "200"}
    source = worker.source(name, WORK / f"{name}.in", name, **boundary)
    until(lambda: len(cluster().values(name)) >= 1_000, "the first lines")
    first, second = pair()
    return source, *((first, second) if home(source) == first.address else (second, first))


def check_lines(name, count):
    until(lambda: len(cluster().values(name)) >= count, f"{count} lines", timeout=30)
    found = cluster().values(name)
    assert found == lines(0, count), f"{len(found)} records for {count} lines"


def test_lines_move_once_when_a_worker_is_killed():
    first, _ = both()
    name = unique("once")
    copy = WORK / f"{name}.out"
    with Writing(WORK / f"{name}.in") as writing:
        source, victim, other = written_once(first, name)
        sink = first.sink(f"{name}-sink", copy, name, consumer_override_isolation_level="read_committed")
        victim.kill()
        for connector in (source, sink):
            Connector(other, connector.name).wait_for("RUNNING", tasks=1, worker=other.address, timeout=30)
    check_lines(name, writing.count)
    # A sink is exact only if its system is: a line may be there twice, but none is missing.
    until(lambda: set(content(copy)) == set(lines(0, writing.count)), "every line in the file of the sink")


def test_a_paused_worker_is_fenced():
    """A worker that is away for longer than its session, and returns, adds no record to those of its successor."""
    first, _ = both()
    name = unique("fenced")
    with Writing(WORK / f"{name}.in") as writing:
        _, victim, other = written_once(first, name)
        with victim.paused():
            Connector(other, name).wait_for("RUNNING", tasks=1, worker=other.address, timeout=30)
            before = len(cluster().values(name))
            until(lambda: len(cluster().values(name)) > before, "lines by the successor")
        time.sleep(2)
    check_lines(name, writing.count)


def test_offsets_of_an_exactly_once_source_are_altered_and_reset():
    first, second = both()
    name = unique("exact")
    file = WORK / f"{name}.in"
    append(file, lines(0, 10))
    source = first.source(name, file, name, transaction_boundary="poll", exactly_once_support="required")
    partition = {"filename": str(file)}
    until(lambda: cluster().values(name) == lines(0, 10), "ten lines")
    source.stop()
    # By way of the worker that may not be the leader, which passes the request on.
    change = {"offsets": [{"partition": partition, "offset": {"position": len("line 0\n") * 5}}]}
    Connector(second, name).ask("PATCH", "/offsets", change)
    assert Connector(second, name).offsets() == [(partition, {"position": len("line 0\n") * 5})]
    source.resume()
    until(lambda: cluster().values(name) == lines(0, 10) + lines(5, 10), "five lines again")
    source.stop()
    Connector(second, name).ask("DELETE", "/offsets")
    assert source.offsets() == []
    source.resume()
    until(lambda: cluster().values(name) == lines(0, 10) + lines(5, 10) + lines(0, 10), "ten lines again")
    source.delete()
