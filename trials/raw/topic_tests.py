"""Topic names that collide, and operations on missing topics."""

import struct

from suite import unique
from wire import CREATE_TOPICS, METADATA, Connection, array, string

UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17
# READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, one bit each.
TOPIC_OPERATIONS = 3576
OMITTED = -(2**31)


def create(connection, *names):
    """The error code of each new topic."""
    wanted = [string(name) + struct.pack(">ih", 1, 1) + array([]) + array([]) for name in names]
    reader = connection.ask(CREATE_TOPICS, 4, array(wanted) + struct.pack(">ib", 20_000, 0))
    reader.take("i")

    def one():
        name, code = reader.string(), reader.take("h")
        reader.bytes(reader.take("h"))
        return name, code

    return dict(reader.array(one))


def operations(connection, names, asked):
    """The error code and the operations of each topic, from Metadata version 8."""
    reader = connection.ask(METADATA, 8, array([string(name) for name in names]) + struct.pack(">bbb", 0, 0, asked))
    reader.take("i")
    text = lambda: reader.bytes(reader.take("h"))
    reader.array(lambda: (reader.take("i"), text(), reader.take("i"), text()))
    text(), reader.take("i")
    ids = lambda: reader.array(lambda: reader.take("i"))

    def one():
        code, name, _ = reader.take("h"), reader.string(), reader.take("b")
        reader.array(lambda: (reader.take("hiii"), ids(), ids(), ids()))
        return name, (code, reader.take("i"))

    return dict(reader.array(one))


def test_new_topics_may_collide_with_one_another_and_not_with_old_ones():
    stem = unique("collide")
    dot, line, old = (f"{stem}{rest}" for rest in (".a", "_a", ".b"))
    with Connection() as connection:
        assert create(connection, dot, line) == {dot: 0, line: 0}
        assert create(connection, old) == {old: 0}
        new = old.replace(".", "_")
        assert create(connection, new) == {new: INVALID_TOPIC}


def test_operations_do_not_depend_on_there_being_a_topic():
    nowhere, bad = unique("nowhere"), "no name"
    with Connection() as connection:
        topic = connection.new_topic()
        for asked, told in ((1, TOPIC_OPERATIONS), (0, OMITTED)):
            expected = {topic: (0, told), nowhere: (UNKNOWN_TOPIC, told), bad: (INVALID_TOPIC, told)}
            assert operations(connection, expected, asked) == expected
