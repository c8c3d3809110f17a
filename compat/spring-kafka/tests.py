"""A listener of Spring copies records exactly once while its broker is killed and its own code fails."""

from ordeal import survives_kills
from suite import NIGHTLY, each, main, nightly_only

CYCLES = 20 if NIGHTLY else 3


def copies(guarantee, protocol):
    return survives_kills("spring-kafka", f"spring-{guarantee}-{protocol}", ["SpringOrdeal", guarantee, protocol], CYCLES)


@each("classic", "consumer")
def test_a_listener_copies_once_through_kill_9(protocol):
    if protocol == "classic":
        nightly_only()
    copies("exactly_once", protocol)


def test_a_listener_without_transactions_loses_nothing():
    nightly_only()
    audit = copies("at_least_once", "classic")
    # Otherwise the failures would prove nothing for the other tests.
    assert "repeated 0" not in audit, audit


if __name__ == "__main__":
    main(globals(), parallel=1)
