#!/usr/bin/env python3
"""Whether failed logins reveal by their bytes or their time that a user exists.

For each mechanism, logins of a user with a wrong password and of users that do not exist alternate on new connections. The
answers must be the same bytes, but for nonces and salts of the same length, and the times must not differ: the difference of
the medians is compared with what chance gives when the same times are dealt out again (a permutation test).
"""

import statistics
import time

from node import PASSWORDS
from peer import Peer, Scram, Violation

PERMUTATIONS = 2000
# Less than this is chance's, and less than this is lost in any network.
CHANCE, SMALL_US = 1e-3, 3.0


def failed_login(node, mechanism, user):
    """The broker's answers to a wrong password, without what is random, and the microseconds until each answer."""
    times, answers = [], []

    def authenticate(message):
        began = time.perf_counter()
        code, text = peer.authenticate(message)
        times.append((time.perf_counter() - began) * 1e6)
        answers.append((code, text))
        return code, text

    with Peer(node, "LOGIN") as peer:
        peer.handshake(mechanism)
        if mechanism == "PLAIN":
            authenticate(f"\0{user}\0a guess".encode())
        else:
            scram = Scram(mechanism, user, "a guess")
            code, challenge = authenticate(scram.first())
            if code == 0:
                authenticate(scram.final(challenge))
                # Salt and nonce differ anyway; their form must not.
                parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
                answers[0] = (code, sorted((key, len(value) if key in "rs" else value) for key, value in parts.items()))
    return answers, times


def compare(node, mechanism, rounds, random):
    """Raises if answers to existing and to unknown users differ. Returns the differences in microseconds.

    A difference counts when three measurements in a row have it: a busy machine makes one now and then.
    """
    for tries_left in (2, 1, 0):
        try:
            return measure(node, mechanism, rounds, random)
        except Difference:
            if not tries_left:
                raise


class Difference(Violation):
    """A difference in time."""


def measure(node, mechanism, rounds, random):
    known, unknown = "bob", "eve"
    assert known in PASSWORDS and unknown not in PASSWORDS
    bytes_of, times_of = {}, {known: [], unknown: []}
    for _ in range(rounds):
        # The order must not matter.
        for user in random.sample([known, unknown], 2):
            answers, times = failed_login(node, mechanism, user)
            if bytes_of.setdefault(user, answers) != answers:
                raise Violation(f"{mechanism}: the answers to {user} differ among themselves: {answers} {bytes_of[user]}")
            times_of[user].append(times)
    if bytes_of[known] != bytes_of[unknown]:
        raise Violation(f"{mechanism}: {bytes_of[known]} for a user, {bytes_of[unknown]} for none")
    differences = []
    for step in range(len(times_of[known][0])):
        one, other = ([times[step] for times in times_of[user]] for user in (known, unknown))
        difference = statistics.median(one) - statistics.median(other)
        chance = probability(one, other, abs(difference), random)
        differences.append((round(difference, 1), round(chance, 4)))
        if chance < CHANCE and abs(difference) > SMALL_US:
            raise Difference(f"{mechanism}, message {step}: {difference:.1f} µs between a user and none (chance {chance})")
    return differences


def probability(one, other, difference, random):
    """How often the same times, dealt out by chance, differ as much."""
    both, size, hits = one + other, len(one), 0
    for _ in range(PERMUTATIONS):
        random.shuffle(both)
        hits += abs(statistics.median(both[:size]) - statistics.median(both[size:])) >= difference
    return hits / PERMUTATIONS
