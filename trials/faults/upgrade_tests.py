"""Clusters whose nodes are upgraded from an older binary, one after the other under load, and put back.

The older binary is OLD_THALWEG_BIN; without it, that of OLD_COMMIT (by default the commit before this one) is built once,
below target/compat.
"""

import os
import pathlib
import random
import subprocess

from broker import ROOT, thalweg_binary
from faults import say
from ordeal import Ordeal
from suite import NIGHTLY, Skip, each

SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))
KINDS = [os.environ["KIND"]] if "KIND" in os.environ else ["embedded", "apache-controllers"]


@each(*KINDS)
def test_upgrade_and_downgrade_are_seen_by_no_client(kind):
    old, new = binaries()
    with Ordeal(kind, "-upgrade", with_strict=True, prepare=lambda cluster: use(cluster, old)) as ordeal:
        for binary, what in ((new, "upgraded"), (old, "put back"), (new, "upgraded again")):
            for node in thalwegs(ordeal.cluster):
                node.stop()
                node.binary = binary
                node.start()
                ordeal.look()
                say(f"{node.name} is {what}")
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()
        assert_binaries(ordeal.cluster, new)


@each(*KINDS)
def test_binaries_that_are_killed_leave_their_data_to_the_other(kind):
    old, new = binaries()
    source = random.Random(f"{SEED} {kind}")
    say(f"seed {SEED}")
    with Ordeal(kind, "-replaced", prepare=lambda cluster: use(cluster, old)) as ordeal:
        for _ in range(9):
            node = source.choice(thalwegs(ordeal.cluster))
            node.binary = old if node.binary == new else new
            node.kill()
            node.start()
            ordeal.look()
            say(f"{node.name} was killed, and starts as {'old' if node.binary == old else 'new'}")
        ordeal.judge()


def thalwegs(cluster):
    return [node for node in cluster.nodes if node.make == "thalweg"]


def use(cluster, binary):
    for node in thalwegs(cluster):
        node.binary = binary


def assert_binaries(cluster, binary):
    """Each process runs what it should: otherwise nothing was tested."""
    for node in thalwegs(cluster):
        running = pathlib.Path(f"/proc/{node.process.pid}/exe").resolve()
        assert running == pathlib.Path(binary).resolve(), f"{node.name} runs {running}"


def binaries():
    """The older binary and this one, which differ."""
    if not NIGHTLY and "OLD_THALWEG_BIN" not in os.environ:
        raise Skip("in the nightly form, or with OLD_THALWEG_BIN")
    old, new = os.environ.get("OLD_THALWEG_BIN") or built(os.environ.get("OLD_COMMIT", "HEAD~1")), thalweg_binary()
    same = pathlib.Path(old).read_bytes() == pathlib.Path(new).read_bytes()
    assert not same, f"{old} is the binary under test: name another with OLD_THALWEG_BIN or OLD_COMMIT"
    return str(old), new


def built(commit):
    """The release binary of a commit, built in a work tree of its own."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    commit = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    place = ROOT / "target" / "compat" / "old"
    binary = place / f"thalweg-{commit[:12]}"
    if not binary.exists():
        say(f"building {commit[:12]}, which takes minutes")
        place.mkdir(parents=True, exist_ok=True)
        tree, target = place / "tree", place / "target"
        git("worktree", "prune")
        if tree.exists():
            git("worktree", "remove", "--force", str(tree))
        git("worktree", "add", "--detach", str(tree), commit)
        try:
            build = ["cargo", "build", "--release", "--package", "thalweg", "--bin", "thalweg", "--target-dir", target]
            subprocess.run(build, check=True, cwd=tree)
            # Whole or not at all.
            partial = binary.with_suffix(".partial")
            partial.write_bytes((target / "release" / "thalweg").read_bytes())
            partial.chmod(0o755)
            partial.rename(binary)
        finally:
            git("worktree", "remove", "--force", str(tree))
    return binary
