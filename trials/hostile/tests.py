#!/usr/bin/env python3
"""Hostile peers against a secured node, before and after the login, from seeds.

    SEED=7 MINUTES=5 PYTHONPATH=compat/harness trials/hostile/suite       each assault for five minutes
    SEED=7 CASE=1234 PYTHONPATH=compat/harness trials/hostile/suite logins  one case again

In CI the seed is 1, so that a failure is the change's; the nightly form takes any, and prints it.
"""

import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "raw"))

import handshakes  # noqa: E402
import logins  # noqa: E402
import rights  # noqa: E402
from assault import Assault, announce, chosen_seed, place  # noqa: E402
from node import Node  # noqa: E402
from suite import NIGHTLY, TARGET, Skip, each, main  # noqa: E402
from timing import compare  # noqa: E402

MINUTES = float(os.environ.get("MINUTES") or 15)
CASE = os.environ.get("CASE")


def only_thalweg():
    if TARGET not in ("", "thalweg"):
        raise Skip("the test reads Thalweg's log and files")


def assault(name, attacks, cases):
    only_thalweg()
    is_long = NIGHTLY or "MINUTES" in os.environ
    seed = chosen_seed() if is_long or "SEED" in os.environ else 1
    announce(f"{name}: SEED={seed}")
    run = Assault(name, attacks, seed, place(name))
    if CASE:
        announce(run.run(only=int(CASE)))
    elif is_long:
        announce(run.run(seconds=MINUTES * 60))
    else:
        announce(run.run(cases=cases))


def test_handshakes_of_strangers():
    assault("handshakes", handshakes.ATTACKS * 4 + handshakes.SLOW_ATTACKS, 1200)


def test_logins_of_strangers():
    assault("logins", logins.ATTACKS, 2000)


def test_requests_without_rights():
    assault("requests", rights.ATTACKS, 800)


@each("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
def test_wrong_passwords_look_like_unknown_users(mechanism):
    only_thalweg()
    seed = chosen_seed() if NIGHTLY else 1
    chance = random.Random(f"{seed}/timing")
    with Node(place(f"timing-{mechanism}"), chance, failure_delay_ms=0) as node:
        found = compare(node, mechanism, 3000 if NIGHTLY else 300, chance)
    announce(f"{mechanism}: differences of each answer in µs, and their chance: {found}")


if __name__ == "__main__":
    main(globals(), parallel=2)
