"""Packages as their users meet them: installed in a clean Debian that boots with systemd, run as a container, started as the
pods of the chart and as the services of the compose file. Nightly only; machines and containers need root.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import artefacts
import clusters
from artefacts import ROOT, TOOLS, run
from certificates import Authority
from container import Container, Image, Network
from suite import Skip, main, until

sys.path.insert(0, str(ROOT / "trials/chart"))
import rendering  # noqa: E402

WORK = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="packages-"))
EXPOSURE_MAX = 2.0
IMAGE_BYTES_MAX = 30_000_000
# From the package to a record seen, on a machine that has booted.
FIRST_RECORD_S_MAX = 60


def needs_root():
    if os.geteuid() != 0:
        raise Skip("needs root: machines and containers have namespaces of their own")


def test_the_unit_is_hardened():
    unit = ROOT / "deploy" / "debian" / "thalweg.service"
    said = run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit]).stdout
    exposure = float(re.search(r"Overall exposure level for thalweg.service: ([0-9.]+)", said)[1])
    assert exposure <= EXPOSURE_MAX, said


def test_the_binary_is_static():
    head = run(["readelf", "--program-headers", "--dynamic", artefacts.binary()]).stdout
    assert "INTERP" not in head and "NEEDED" not in head, head


def test_the_deb_has_no_faults():
    # The manual's pages need a command that prints them.
    run(["lintian", "--fail-on", "error,warning", "--suppress-tags", "no-manual-page", "--allow-root", artefacts.deb()])


def test_the_deb_and_the_image_are_the_same_twice():
    for make in ("deb", "image"):
        first, second = (artefacts.script(make, artefacts.binary(), WORK / f"again{at}") for at in range(2))
        assert pathlib.Path(first).read_bytes() == pathlib.Path(second).read_bytes(), make


def test_a_debian_machine_installs_upgrades_removes_and_purges():
    needs_root()
    packages = WORK / "machine"
    packages.mkdir()
    shutil.copy(pathlib.Path(__file__).with_name("debian-machine"), packages)
    shutil.copy(artefacts.deb(), packages)
    shutil.copy(artefacts.deb(), packages / "first.deb")
    for page in ("start", "operate"):
        (packages / f"{page}.sh").write_text("".join(f"{line} || return\n" for line in package_commands(page)))
    shutil.copy(artefacts.deb(VERSION="999.0.0"), packages / "next.deb")
    unit = pathlib.Path(__file__).with_name("debian-machine.service")
    boot = ["systemd-nspawn", "--register=no", "--keep-unit", "--private-network", "--volatile=overlay", "--quiet"]
    boot += ["-D", artefacts.debian_root(), f"--bind={packages}:/packages"]
    boot += [f"--bind-ro={unit}:/run/systemd/system/checks.service", "--boot", "systemd.wants=checks.service"]
    done = subprocess.run([*map(str, boot)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    results = packages / "results"
    said = results.read_text() if results.exists() else done.stdout[-2000:] + done.stderr[-2000:]
    # Indented: compat/run takes other lines for results of tests.
    print("".join(f"  {line}\n" for line in said.splitlines()), flush=True)
    lines = [line for line in said.splitlines() if re.match("(ok|FAIL) ", line)]
    assert lines and lines[-1] == "ok finished", said
    failed = [line for line in lines if line.startswith("FAIL")]
    assert not failed, "; ".join(failed)
    seconds = int(re.search(r"^milliseconds ([0-9]+)", said, re.M)[1]) / 1000
    assert seconds <= FIRST_RECORD_S_MAX, f"{seconds} s from the package to a record"


def package_commands(page):
    """The lines of a page that need the package installed."""
    blocks = re.findall(r"^```sh package\n(.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text(), re.M | re.S)
    assert blocks, f"docs/{page}.md has no commands for a machine with the package"
    return "".join(blocks).splitlines()


def test_an_image_is_valid_and_small():
    path = artefacts.image()
    assert path.stat().st_size <= IMAGE_BYTES_MAX, path.stat().st_size
    run(["skopeo", "copy", "--quiet", "--insecure-policy", f"oci-archive:{path}", f"dir:{WORK}/copied"])
    config = json.loads(run(["skopeo", "inspect", "--config", f"oci-archive:{path}"]).stdout)["config"]
    assert config["User"] == "10001:10001" and config["Volumes"] == {"/var/lib/thalweg": {}}, config
    # The older form of archives, which `docker load` of every version takes.
    run(["skopeo", "copy", "--quiet", "--insecure-policy", f"docker-archive:{path}", f"dir:{WORK}/copied-again"])
    with tarfile.open(path) as layout:
        assert {"index.json", "manifest.json", "oci-layout"} <= set(layout.getnames())


def test_a_container_serves_and_keeps_its_data():
    needs_root()
    image = Image(artefacts.image(), WORK / "image")
    with Network(WORK, ["one"]) as network:
        container = Container(image, network, "one", WORK / "one").start()
        try:
            until(container.is_healthy, "it is healthy", timeout=30)
            status = pathlib.Path(f"/proc/{container.pid()}/status").read_text()
            assert re.search(r"^Uid:\s+10001\s+10001", status, re.M), status
            assert re.search(r"^CapEff:\s+0+$", status, re.M) and re.search(r"^NoNewPrivs:\s+1$", status, re.M), status
            written = container.run(["/usr/bin/thalweg", "produce", "greetings"], text="hello\n")
            assert written.returncode == 0, written.stdout
            assert container.stop() == 0, (container.folder / "log").read_text()
            assert not container.is_healthy(), "a stopped node is not healthy"
            container.start()
            until(container.is_healthy, "it is healthy again", timeout=30)
            read = container.run(
                ["/usr/bin/thalweg", "consume", "greetings", "--from-beginning", "--max-messages", "1"]
            )
            assert "hello" in read.stdout.splitlines(), read.stdout
        finally:
            container.end()


def test_the_chart_starts_a_cluster():
    """The pods of the chart as containers of the image, with their arguments, settings and names."""
    needs_root()
    clusters.Chart(rendering.render(), WORK / "chart").works()


def test_the_chart_starts_a_secured_cluster_in_zones():
    """Nodes log in to each other over TLS, with certificates of the names that values.yaml lists; clients outside have a listener."""
    needs_root()
    secured = {"protocol": "SASL_SSL", "sasl": {"mechanisms": ["PLAIN"], "secretName": "nodes"}, "tls": {"secretName": "tls"}}
    # Without node ports, clients reach the listener at its own port.
    ports = {str(zone): {"port": 9094} for zone in (100, 200, 300)}
    outside = {"enabled": True, "type": "NodePort", "brokers": ports}
    values = {
        "zones": {"names": ["north", "west", "east"]},
        "listeners": {"replication": secured, "controllers": secured, "external": outside},
    }
    authority = Authority(WORK / "authority")
    services = [f"release-thalweg-{kind}.{rendering.NAMESPACE}.svc" for kind in ("brokers", "controllers")]
    names = "subjectAltName=" + ",".join(f"DNS:*.{service}" for service in services) + "\n"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="x1" user_node="x1";'
    secrets = {
        "tls": {"tls-combined.pem": authority.sign("node", names=names).read_text(), "ca.crt": authority.ca.read_text()},
        "nodes": {"plain": login},
    }
    clusters.ZonedChart(rendering.render(values), WORK / "zones", secrets).works()


def test_the_compose_file_is_valid():
    run([TOOLS / "compose-load", ROOT / "deploy/compose/compose.yaml"])


def test_the_compose_file_starts_a_cluster():
    """Its services on hosts of their own: the image of Thalweg, and Apache Kafka's controllers from its jars."""
    needs_root()
    clusters.Compose(ROOT / "deploy/compose/compose.yaml", WORK / "compose").works()


def test_a_release_is_whole_and_signed():
    if run(["git", "-C", ROOT, "status", "--porcelain"]).stdout:
        raise Skip("a signed release needs a work tree without changes")
    key, out = WORK / "key", WORK / "release"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    variables = {"BINARY": str(artefacts.binary()), "SIGNING_KEY": str(key), "RELEASE_URL": "https://releases.example"}
    run([ROOT / "scripts/release", out], env={**os.environ, **variables}, timeout=1200)
    (archive,) = out.glob("*.tar.gz")
    formula = (out / "thalweg.rb").read_text()
    run(["ruby", "-c", out / "thalweg.rb"])
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in formula and "https://releases.example/" in formula, formula
    # The commands of the start page, which refuse a changed file and a changed list.
    signers = WORK / "allowed_signers"
    signers.write_text("release@thalweg " + key.with_suffix(".pub").read_text())
    verify = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release@thalweg", "-n", "thalweg-release"]
    verify += ["-s", out / "SHA256SUMS.sig"]
    sums = out / "SHA256SUMS"
    run(verify, stdin=sums.open())
    run(["sha256sum", "--check", "--ignore-missing", "SHA256SUMS"], cwd=out)
    archive.write_bytes(archive.read_bytes()[:-1])
    assert subprocess.run(["sha256sum", "--status", "--check", "SHA256SUMS"], cwd=out).returncode != 0
    sums.write_text(sums.read_text().replace("a", "b", 1))
    assert subprocess.run(list(map(str, verify)), stdin=sums.open(), capture_output=True).returncode != 0


main(globals(), parallel=1)
