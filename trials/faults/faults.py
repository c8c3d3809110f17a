"""Faults from a seed: kind, target and duration. `plan` chooses them; `Fault.run` applies one to a cluster."""

import threading
import time

from network import CLIENTS
from nodes import SESSION_S

KINDS = ("kill", "kill", "pause", "pause", "cut", "cut", "cut", "slow", "stop", "replace")


class Fault:
    """One fault: kind, target, delay after the start of the wave, and duration in seconds."""

    def __init__(self, kind, node, after, seconds, detail=None):
        self.kind, self.node, self.after, self.seconds, self.detail = kind, node, after, seconds, detail

    def __str__(self):
        detail = f" {self.detail}" if self.detail else ""
        return f"{self.kind} {self.node.name}{detail} for {self.seconds:.1f} s"

    def run(self, cluster):
        time.sleep(self.after)
        say(self)
        getattr(self, self.kind)(cluster)
        say(f"over: {self.kind} {self.node.name}")

    def kill(self, _cluster):
        self.node.kill()
        time.sleep(self.seconds)
        self.node.start()

    def stop(self, _cluster):
        self.node.stop()
        time.sleep(self.seconds)
        self.node.start()

    def pause(self, _cluster):
        self.node.pause()
        time.sleep(self.seconds)
        self.node.resume()

    def replace(self, cluster):
        # Only safe if all others have all records.
        cluster.wait_until_whole()
        self.node.kill()
        self.node.empty()
        time.sleep(self.seconds)
        self.node.start()
        cluster.wait_until_whole()

    def slow(self, cluster):
        pairs = self.pairs(cluster, "all", "both ways")
        cluster.network.delay(pairs, self.detail)
        time.sleep(self.seconds)
        cluster.network.delay(pairs, 0)

    def pairs(self, cluster, others, direction):
        pairs = set()
        for other in parties(cluster, others) - {self.node.name}:
            pairs |= {(self.node.name, other)} if direction != "from others" else set()
            pairs |= {(other, self.node.name)} if direction != "to others" else set()
        return pairs

    def cut(self, cluster):
        others, direction, reset = self.detail
        pairs = self.pairs(cluster, others, direction)
        cluster.network.cut(pairs)
        time.sleep(self.seconds)
        cluster.network.heal(pairs, reset == "then reset")


def parties(cluster, which):
    names = {
        "brokers": {node.name for node in cluster.brokers},
        "controllers": {node.name for node in cluster.controllers},
        "clients": {CLIENTS},
    }
    return names[which] if which != "all" else set().union(*names.values())


def plan(random, cluster):
    """A wave of simultaneous faults: usually one, otherwise on different nodes, and sometimes a power cut for many."""
    draw = random.random()
    if draw < 0.06:
        everybody = random.choice([cluster.brokers, cluster.controllers, cluster.nodes])
        return [Fault("kill", node, 0, random.uniform(0, 2)) for node in everybody]
    # Two of three controllers are the majority; one returns, and until then the cluster makes no progress.
    hit = random.sample(cluster.nodes, 1 if draw < 0.6 else 2)
    faults = [one(random, cluster, node) for node in hit]
    if any(fault.kind == "replace" for fault in faults):
        faults = [fault for fault in faults if fault.kind == "replace"][:1]
    return faults


def one(random, cluster, node):
    kind = random.choice(KINDS)
    if kind == "replace" and node.is_controller():
        # Metadata may be on a bare majority: an empty voter could help a stale one win.
        kind = "kill"
    short, long = random.uniform(0.1, SESSION_S / 2), random.uniform(SESSION_S + 1, SESSION_S + 5)
    seconds = random.choice([short, long]) if kind in ("pause", "cut", "slow") else random.uniform(0, SESSION_S + 2)
    detail = round(random.uniform(0.02, 0.4), 2) if kind == "slow" else None
    if kind == "cut":
        others = random.choice(["all", "all", "brokers", "controllers", "clients"])
        direction = random.choice(["both ways", "both ways", "to others", "from others"])
        detail = (others, direction, random.choice(["then reset", "then on"]))
    return Fault(kind, node, random.uniform(0, 2), seconds, detail)


def strike_once(cluster, random):
    """Runs a wave of faults and pauses; returns how many they were."""
    wave = plan(random, cluster)
    failures = strike(cluster, wave)
    assert not failures, failures
    time.sleep(random.uniform(0, 3))
    return len(wave)


def strike(cluster, faults):
    """Runs the faults of a wave at the same time, and returns their errors."""
    failures = []

    def run(fault):
        try:
            fault.run(cluster)
        except Exception as failure:  # reported by the thread that waits for the wave
            failures.append(f"{fault}: {failure}")

    threads = [threading.Thread(target=run, args=(fault,)) for fault in faults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def say(what):
    """Prints an event with its time, for comparison with logs."""
    print(f"{time.strftime('%H:%M:%S', time.gmtime())}.{int(time.time() * 1000) % 1000:03} {what}", flush=True)
