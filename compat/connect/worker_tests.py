"""One worker, shared by the tests: connectors of files and their offsets by the REST interface."""

import atexit
import functools

from connect import WORK, Refused, Worker
from records import Cluster
from suite import BOOTSTRAP, nightly_only, raises, unique, until


@functools.cache
def cluster():
    return Cluster(BOOTSTRAP)


@functools.cache
def started():
    """The worker, or the exception of its start."""
    worker = Worker(unique("workers"), BOOTSTRAP).start()
    atexit.register(worker.stop)
    try:
        return worker.wait_until_ready()
    except AssertionError as failure:
        return failure


def worker():
    found = started()
    if isinstance(found, AssertionError):
        raise found
    return found


def lines(first, last):
    return [f"line {number}" for number in range(first, last)]


def append(file, text):
    with open(file, "a") as out:
        out.writelines(f"{line}\n" for line in text)


def content(file):
    return file.read_text().splitlines() if file.exists() else []


def wait_for_lines(file, wanted):
    until(lambda: len(content(file)) >= len(wanted), f"{len(wanted)} lines in {file}")
    assert content(file) == wanted, f"{len(content(file))} lines: {content(file)[:3]}..."


def wait_for_values(topic, wanted):
    until(lambda: len(cluster().values(topic)) >= len(wanted), f"{len(wanted)} records in {topic}")
    found = cluster().values(topic)
    assert found == wanted, f"{len(found)} records: {found[:3]}..."


def test_a_worker_creates_its_topics():
    group = worker().group
    topics = cluster().topics()
    assert [topics.get(f"{group}-{kind}") for kind in ("config", "offset", "status")] == [1, 3, 2], topics
    for kind in ("config", "offset", "status"):
        configs = cluster().configs(f"{group}-{kind}")
        assert configs["cleanup.policy"] == "compact", (kind, configs["cleanup.policy"])
    info = worker().ask("GET", "/")
    metadata = cluster().admin.list_topics(timeout=20)
    assert info["kafka_cluster_id"] == metadata.cluster_id, (info, metadata.cluster_id)


def test_lines_move_once_from_file_to_file():
    name = unique("files")
    source, sink = WORK / f"{name}.in", WORK / f"{name}.out"
    append(source, lines(0, 5_000))
    worker().source(f"{name}-source", source, name)
    worker().sink(f"{name}-sink", sink, name)
    wait_for_lines(sink, lines(0, 5_000))
    append(source, lines(5_000, 6_000))
    wait_for_lines(sink, lines(0, 6_000))
    assert cluster().values(name) == lines(0, 6_000)
    assert worker().ask("GET", f"/connectors/{name}-source/topics") == {f"{name}-source": {"topics": [name]}}
    until(lambda: cluster().committed(f"connect-{name}-sink") == {(name, 0): 6_000}, "the sink commits its offset")


def test_topics_are_created_with_settings_of_the_connector():
    name = unique("created")
    source = WORK / f"{name}.in"
    append(source, lines(0, 10))
    creation = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "-1"}
    creation |= {"topic.creation.default.retention.ms": "3600000", "topic.creation.default.compression.type": "zstd"}
    worker().source(name, source, name, **creation)
    until(lambda: cluster().topics().get(name) == 3, "three partitions")
    configs = cluster().configs(name)
    assert (configs["retention.ms"], configs["compression.type"]) == ("3600000", "zstd"), configs
    until(lambda: sorted(sum((cluster().values(name, part) for part in range(3)), [])) == lines(0, 10), "every line")


def test_a_connector_is_paused_resumed_restarted_and_deleted():
    nightly_only()
    name = unique("paused")
    source = WORK / f"{name}.in"
    append(source, lines(0, 10))
    connector = worker().source(name, source, name)
    wait_for_values(name, lines(0, 10))
    connector.ask("PUT", "/pause")
    connector.wait_for("PAUSED", tasks=1)
    append(source, lines(10, 20))
    # A paused task would have read the lines after a second.
    raises(AssertionError, lambda: until(lambda: len(cluster().values(name)) > 10, "no line", timeout=2))
    connector.resume()
    wait_for_values(name, lines(0, 20))
    connector.ask("POST", "/restart?includeTasks=true&onlyFailed=false")
    connector.wait_for("RUNNING", tasks=1)
    append(source, lines(20, 30))
    wait_for_values(name, lines(0, 30))
    connector.delete()
    until(lambda: name not in worker().ask("GET", "/connectors"), "the connector is gone")
    assert raises(Refused, lambda: worker().request("GET", f"/connectors/{name}")).status == 404


def test_a_failed_task_is_restarted():
    nightly_only()
    name = unique("failed")
    cluster().create(name, max_message_bytes="1000")
    source = WORK / f"{name}.in"
    append(source, ["x" * 2_000])
    connector = worker().source(name, source, name, errors_tolerance="none")
    failed = until(lambda: [task for task in (connector.status() or {"tasks": []})["tasks"] if task["state"] == "FAILED"], "failed")
    assert "RecordTooLargeException" in failed[0]["trace"], failed
    cluster().set_config(name, "max.message.bytes", "100000")
    connector.ask("POST", "/restart?includeTasks=true&onlyFailed=true")
    connector.wait_for("RUNNING", tasks=1)
    wait_for_values(name, ["x" * 2_000])


def test_offsets_of_a_source_are_shown_altered_and_reset():
    name = unique("positions")
    source = WORK / f"{name}.in"
    append(source, lines(0, 10))
    connector = worker().source(name, source, name)
    partition, size = {"filename": str(source)}, source.stat().st_size
    wait_for_values(name, lines(0, 10))
    until(lambda: connector.offsets() == [(partition, {"position": size})], "the position at the end of the file")
    connector.stop()
    half = len("line 0\n") * 5
    change = {"offsets": [{"partition": partition, "offset": {"position": half}}]}
    assert "altered successfully" in connector.ask("PATCH", "/offsets", change)["message"]
    assert connector.offsets() == [(partition, {"position": half})]
    connector.resume()
    wait_for_values(name, lines(0, 10) + lines(5, 10))
    connector.stop()
    assert "reset successfully" in connector.ask("DELETE", "/offsets")["message"]
    assert connector.offsets() == []
    connector.resume()
    wait_for_values(name, lines(0, 10) + lines(5, 10) + lines(0, 10))


def test_offsets_of_a_sink_are_shown_altered_and_reset():
    name = unique("sunk")
    sink = WORK / f"{name}.out"
    cluster().create(name)
    cluster().produce(name, [(0, None, line, None) for line in lines(0, 10)])
    connector = worker().sink(name, sink, name)
    partition = {"kafka_topic": name, "kafka_partition": 0}
    wait_for_lines(sink, lines(0, 10))
    until(lambda: connector.offsets() == [(partition, {"kafka_offset": 10})], "the offset after the last record")
    connector.stop()
    change = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 7}}]}
    assert "altered successfully" in connector.ask("PATCH", "/offsets", change)["message"]
    assert connector.offsets() == [(partition, {"kafka_offset": 7})]
    connector.resume()
    wait_for_lines(sink, lines(0, 10) + lines(7, 10))
    connector.stop()
    # A null offset forgets one partition; a reset forgets the group.
    forget = {"offsets": [{"partition": partition, "offset": None}]}
    assert "altered successfully" in connector.ask("PATCH", "/offsets", forget)["message"]
    assert connector.offsets() == []
    assert "reset successfully" in connector.ask("DELETE", "/offsets")["message"]
    assert connector.offsets() == []
    connector.resume()
    wait_for_lines(sink, lines(0, 10) + lines(7, 10) + lines(0, 10))


def test_a_sink_by_the_consumer_protocol():
    name = unique("protocol")
    sink = WORK / f"{name}.out"
    cluster().create(name)
    cluster().produce(name, [(0, None, line, None) for line in lines(0, 100)])
    worker().sink(name, sink, name, consumer_override_group_protocol="consumer")
    wait_for_lines(sink, lines(0, 100))


def test_bad_records_go_to_the_dead_letter_queue():
    name = unique("letters")
    sink, queue = WORK / f"{name}.out", f"{name}-bad"
    cluster().create(name)
    values = ['"one"', "{broken", '"two"']
    cluster().produce(name, [(0, b"key", value, [("colour", b"blue")]) for value in values])
    errors = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue}
    errors |= {"errors.deadletterqueue.topic.replication.factor": "1", "errors.deadletterqueue.context.headers.enable": "true"}
    converter = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
    worker().sink(name, sink, name, **errors, **converter)
    wait_for_lines(sink, ["one", "two"])
    (bad,) = until(lambda: queue in cluster().topics() and cluster().read(queue), "the record in the queue")
    headers = dict(bad.headers())
    assert (bad.key(), bad.value(), headers["colour"]) == (b"key", b"{broken", b"blue"), (bad.key(), bad.value(), headers)
    assert headers["__connect.errors.topic"] == name.encode() and headers["__connect.errors.offset"] == b"1", headers
