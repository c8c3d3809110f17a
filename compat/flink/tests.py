"""Flink's exactly-once sink while its broker is killed and its job fails, and what the broker says to its default timeout."""

from ordeal import survives_kills
from suite import NIGHTLY, each, main, nightly_only

CYCLES = 20 if NIGHTLY else 3
# Flink's serializer reads classes of the JDK, as its own start scripts allow.
OPENS = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util", "java.time", "java.io")]


def copies(guarantee, naming):
    return survives_kills("flink", f"flink-{guarantee}-{naming}", ["FlinkOrdeal", guarantee, naming], CYCLES, OPENS)


@each("incrementing", "pooling")
def test_the_sink_writes_once_through_kill_9(naming):
    if naming == "pooling":
        nightly_only()
    copies("exactly_once", naming)


def test_the_sink_loses_nothing_at_least_once():
    nightly_only()
    audit = copies("at_least_once", "incrementing")
    # Otherwise the failures would prove nothing for the other tests.
    assert "repeated 0" not in audit, audit


if __name__ == "__main__":
    main(globals(), parallel=1)
