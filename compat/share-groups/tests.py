"""A share group of Java consumers while its broker is killed, again and again; then every record is accounted for."""

import os
import pathlib
import subprocess
import time

from broker import SUITE_SETTINGS, TARGETS, Broker, kafka_classpath
from suite import NIGHTLY, TARGET, Skip, end_of, main, next_report

CYCLES = 30 if NIGHTLY else 4
CLASSES = pathlib.Path(__file__).resolve().parents[2] / "target" / "compat" / "share-groups"
# The state of a share group, as often as a snapshot is written: soon.
SETTINGS = {**SUITE_SETTINGS, "share.coordinator.snapshot.update.records.per.snapshot": "50"}


def test_accepted_records_stay_accepted_and_others_come_again_through_kill_9():
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    directory = pathlib.Path(os.environ["WORK"]) / "share-ordeal"
    with Broker(TARGET, directory, SETTINGS) as broker:
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{kafka_classpath()}:{CLASSES}"]
        with open(directory / "members.log", "ab") as log:
            group = subprocess.Popen(
                [*java, "ShareOrdeal", broker.bootstrap, "3", "6", "1"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )
        try:
            assert next_report(group, "begun\n"), end_of(log.name)
            time.sleep(8)
            for _ in range(CYCLES):
                time.sleep(5)
                broker.kill()
                broker.start()
            time.sleep(5)
            audit, _ = group.communicate(timeout=180)
        finally:
            group.kill()
    audit = "\n".join(line for line in audit.splitlines() if not line.startswith("so far "))
    print(audit)
    assert "audit passed" in audit, audit
    accepted = int(audit.split("accepted ")[1].split(",")[0])
    assert accepted > 500, "too few records for a conclusion"


if __name__ == "__main__":
    main(globals(), parallel=1)
