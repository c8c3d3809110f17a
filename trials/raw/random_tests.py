"""Requests of every served API at every version, well formed with random values: each is answered or ends its
connection, and the broker continues. On a separate broker, because topics, groups and settings change.
"""

import random

from frame_tests import own_broker
from requests import Writer, apis
from suite import NIGHTLY, TARGET, Skip, each
from wire import API_VERSIONS, Closed, Connection

ROUNDS = 60 if NIGHTLY else 4


@each(1, 2, 3)
def test_random_requests_are_answered_or_refused(seed):
    if TARGET != "thalweg":
        raise Skip("the test reads Thalweg's log")
    with own_broker(f"random-{seed}") as broker:
        chosen = random.Random(seed)
        connection = Connection(broker.bootstrap)
        topic = connection.new_topic("random", 3)
        words = "group consumer range classic retention.ms cleanup.policy compact segment.bytes 1 0 -1 __consumer_offsets"
        writer = Writer(chosen, [word.encode() for word in (topic, *words.split())])
        known = apis()
        for key, low, high in served(connection):
            assert key in known, f"API {key} has no schema"
        for _ in range(ROUNDS):
            for key, low, high in served(connection):
                for version in range(max(low, known[key].low), high + 1):
                    connection = ask(broker, connection, writer, known[key], version)
        assert served(Connection(broker.bootstrap)), "it still serves"
        log = broker.log_path.read_text(errors="replace")
        assert "panicked" not in log, log[log.index("panicked") :][:500]
        assert "Failed to encode an answer" not in log, "an answer could not be encoded"


def served(connection):
    reader = connection.ask(API_VERSIONS, 0)
    assert reader.take("h") == 0
    return reader.array(lambda: reader.take("hhh"))


def ask(broker, connection, writer, api, version):
    """Sends one request; returns the connection for the next one."""
    frame = writer.frame(api, version, 77)
    try:
        connection.socket.sendall(frame)
        correlation, reader = connection.receive()
    except (Closed, ConnectionError):
        return Connection(broker.bootstrap)
    except TimeoutError:
        raise AssertionError(f"{api.name} {version} is not answered: {frame.hex()}") from None
    assert correlation == 77, f"{api.name} {version}: {correlation}"
    writer.learn(reader.data)
    return connection
