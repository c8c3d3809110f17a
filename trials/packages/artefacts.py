"""What is tried: the artefacts that the scripts under scripts/package make of one static binary.

The binary is that in PACKAGED_BINARY, or is built by scripts/package/binary in the profile `release`, which takes minutes the
first time.
"""

import functools
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "target" / "packages-tried"
TOOLS = ROOT / "target" / "compat" / "packages-tools"
# Debian's packages are tried on this release.
DEBIAN = "bookworm"


@functools.cache
def binary():
    given = os.environ.get("PACKAGED_BINARY")
    if given:
        return pathlib.Path(given).resolve()
    script("binary", PLACE, PROFILE="release")
    return PLACE / "thalweg"


@functools.cache
def deb(**variables):
    return pathlib.Path(script("deb", binary(), PLACE, **variables))


@functools.cache
def image():
    return pathlib.Path(script("image", binary(), PLACE))


def script(name, *arguments, **variables):
    """Runs a script under scripts/package, and returns its last line."""
    command = [ROOT / "scripts" / "package" / name, *map(str, arguments)]
    done = run(command, env={**os.environ, **variables}, timeout=3000)
    return (done.stdout.splitlines() or [""])[-1]


def run(command, **options):
    """Runs a command, which must succeed, and returns it with its output."""
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    done = subprocess.run([str(part) for part in command], **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}"
    return done


@functools.cache
def debian_root():
    """A minimal Debian with systemd in a folder, unpacked once."""
    root = ROOT / "target" / "compat" / f"debian-{DEBIAN}"
    if not (root / "complete").exists():
        run(["rm", "-rf", root])
        sources = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {DEBIAN}"])
        mirror = sources.stdout.split()[:1]
        include = "--include=systemd,systemd-sysv,dbus,adduser,procps"
        run(["debootstrap", "--variant=minbase", include, DEBIAN, root, *mirror], timeout=900)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "complete").touch()
    return root
