"""What the Python scripts of this folder know of a release: its version, its commit, and the machine of a binary."""

import os
import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In the heads of ELF files.
MACHINES = {62: "x86_64", 183: "aarch64"}


def version():
    """VERSION, or that of the root Cargo.toml."""
    text = (ROOT / "Cargo.toml").read_text()
    return os.environ.get("VERSION") or re.search(r'\[workspace\.package\]\nversion = "([^"]+)"', text)[1]


def commit():
    return _git("rev-parse", "HEAD")


def made():
    """The time of all files in packages, in seconds: SOURCE_DATE_EPOCH, or that of the commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))


def machine(binary):
    """The machine in the head of a binary, as `uname -m` names it."""
    if binary[:6] != b"\x7fELF\x02\x01":
        sys.exit("the binary is not a 64-bit ELF file")
    number = struct.unpack_from("<H", binary, 18)[0]
    if number not in MACHINES:
        sys.exit(f"the binary is for machine {number}; known are {MACHINES}")
    return MACHINES[number]


def _git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
