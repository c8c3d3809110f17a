"""A certificate authority in a directory, by openssl: each certificate is a PEM file with its key, as Kafka and clients take it."""

import pathlib
import shutil
import subprocess

from broker import ROOT

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
CONFIG = "[req]\ndistinguished_name=name\n[name]\n"
HOSTS = "subjectAltName=DNS:localhost,IP:127.0.0.1\n"


def openssl(*arguments, data=None):
    """The output of openssl, as bytes."""
    if not shutil.which("openssl"):
        subprocess.run([ROOT / "scripts" / "apt-install", "openssl"], check=True)
    done = subprocess.run(["openssl", *map(str, arguments)], input=data, capture_output=True, timeout=60)
    assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr.decode()}"
    return done.stdout


class Authority:
    """Signs certificates, by default for 127.0.0.1. `ca` is the file of its own."""

    def __init__(self, directory, name="authority"):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ca, self.key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        self.config = self.directory / "openssl.cnf"
        self.config.write_text(CONFIG)
        extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        named = ("-config", self.config, "-subj", f"/CN={name}", "-days", 30)
        openssl("req", "-x509", *CURVE, "-keyout", self.key, "-out", self.ca, *named, *extensions)

    def sign(self, name, path=None, names=HOSTS):
        """A new key and certificate with CN=name; `path`, a file of both, is replaced in one step."""
        path = pathlib.Path(path or self.directory / f"{name}.pem")
        key, request, hosts = (path.with_suffix(end) for end in (".newkey", ".csr", ".hosts"))
        hosts.write_text(names)
        subject = ("-config", self.config, "-subj", f"/CN={name}")
        openssl("req", "-new", *CURVE, "-keyout", key, "-out", request, *subject)
        issuer = ("-CA", self.ca, "-CAkey", self.key, "-CAcreateserial", "-days", 30, "-extfile", hosts)
        certificate = openssl("x509", "-req", "-in", request, *issuer)
        replace(path, key.read_bytes() + certificate)
        for used in (key, request, hosts):
            used.unlink()
        return path


def replace(path, data):
    """Writes a file that readers see whole, before or after."""
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(data)
    fresh.rename(path)
