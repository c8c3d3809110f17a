"""Spark's structured streaming from and to topics while its broker is killed and its queries fail, and a batch query."""

from ordeal import survives_kills
from suite import NIGHTLY, main

CYCLES = 20 if NIGHTLY else 3
# Spark's own list for Java 17, of its launcher.
OPENED = "lang lang.invoke lang.reflect io net nio time util util.concurrent util.concurrent.atomic".split()
OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
OPENS += [f"--add-opens=java.base/sun.{package}=ALL-UNNAMED" for package in ("nio.ch", "nio.cs", "security.action", "util.calendar")]


def test_queries_go_on_from_their_checkpoints_through_kill_9():
    audit = survives_kills("spark", "spark", ["SparkOrdeal"], CYCLES, OPENS)
    assert "files passed" in audit and "batch passed" in audit, audit


if __name__ == "__main__":
    main(globals(), parallel=1)
