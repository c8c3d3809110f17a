#!/usr/bin/env python3
"""Completion in bash, zsh and fish, by its key on a terminal: of commands, options, topics, groups and profiles."""

import pathlib
import subprocess

from broker import thalweg_binary
from shell import SHELLS, Shell
from suite import BOOTSTRAP, each, main, unique


def thalweg(*arguments):
    subprocess.run([thalweg_binary(), *arguments, "-b", BOOTSTRAP], check=True, capture_output=True, stdin=subprocess.DEVNULL)


@each(*SHELLS)
def test_commands_and_options(name):
    with Shell(name) as shell:
        for typed, expected in (
            ("thalweg top", "thalweg topic "),
            ("thalweg topic desc", "thalweg topic describe "),
            ("thalweg topic create t --replication", "thalweg topic create t --replication-factor "),
            ("thalweg topic list --format ya", "thalweg topic list --format yaml "),
        ):
            assert shell.completed(typed) == expected, (typed, shell.completed(typed))
        shell.listed("thalweg topic ", "create", "list", "describe", "delete")


@each(*SHELLS)
def test_topics_and_groups(name):
    stem, group = unique("completed"), unique("reader")
    topics = [f"{stem}-orders", f"{stem}-order-lines", f"{stem}-payments"]
    for topic in topics:
        thalweg("topic", "create", topic)
    thalweg("consume", topics[0], "--group", group, "--from-beginning", "--until-end")
    with Shell(name, THALWEG_BOOTSTRAP_SERVER=BOOTSTRAP) as shell:
        typed = f"thalweg topic describe {stem}"
        assert shell.completed(f"{typed}-p") == f"{typed}-payments "
        assert shell.completed(f"{typed}-o") == f"{typed}-order"
        assert shell.completed(f"thalweg group describe {group[:-1]}") == f"thalweg group describe {group} "
        # fish leaves out what the names have in common.
        shell.listed(f"{typed}-order", "orders", "order-lines")
    with Shell(name) as shell:
        typed = f"thalweg topic delete -b {BOOTSTRAP} {stem}"
        assert shell.completed(f"{typed}-p") == f"{typed}-payments "


@each(*SHELLS)
def test_profiles(name):
    with Shell(name) as shell:
        config = pathlib.Path(shell.home.name) / "config.toml"
        config.write_text("[profiles.production]\n[profiles.staging]\n")
        assert shell.completed("thalweg profile use prod") == "thalweg profile use production "
        assert shell.completed("thalweg topic list --profile st") == "thalweg topic list --profile staging "


@each(*SHELLS)
def test_no_cluster_leaves_the_line(name):
    with Shell(name, THALWEG_BOOTSTRAP_SERVER="127.0.0.1:1") as shell:
        assert shell.completed("thalweg topic describe ord") == "thalweg topic describe ord"


if __name__ == "__main__":
    main(globals(), parallel=2)
