"""Certificates of a test, made by openssl: an authority, what it signs, and what another signs."""

import subprocess

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(directory, *words, **more):
    """The output of a command of openssl."""
    return subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True, **more).stdout


def make_certificates(directory):
    """`ca.crt`; `broker` and `stranger`, signed by it, each as .key, .crt, and .pem with both; and `foreign`,
    signed by itself, with the administrator's name."""
    run = lambda *words: openssl(directory, *words)
    for name, subject in (("ca", "authority"), ("foreign", "admin")):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        run("req", "-x509", *CURVE, "-days", "2", *files, "-subj", f"/CN={subject}")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("broker", "stranger"):
        run("req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed)
        both = [(directory / f"{name}.{part}").read_text() for part in ("key", "crt")]
        (directory / f"{name}.pem").write_text("".join(both))
