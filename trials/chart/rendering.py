"""The Helm chart as objects of Kubernetes, rendered by helm."""

import json
import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELM = ROOT / "target/compat/chart-tools/helm"
CHART = ROOT / "deploy/helm/thalweg"
RELEASE, NAMESPACE = "release", "streams"
# The first is the oldest that the chart supports; from the last but one on, pods know their zone.
KUBERNETES = ("1.28", "1.31", "1.34", "1.35", "1.37")


class Refusal(Exception):
    """The values cannot work, for the reason that helm prints."""


def arguments(values):
    """The arguments of helm for a tree of values."""
    return [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]


def render(values=None, kubernetes=KUBERNETES[-1]):
    """The objects of the chart, in order."""
    command = [HELM, "template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes]
    done = subprocess.run([*map(str, command), *arguments(values or {})], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refusal(done.stderr)
    return [part for part in yaml.safe_load_all(done.stdout) if part]


class Objects:
    """Rendered objects by kind and name; `release-thalweg` at the beginning of a name is left out."""

    def __init__(self, values=None, **options):
        self.all = render(values, **options)
        self.named = {(part["kind"], part["metadata"]["name"].removeprefix(f"{RELEASE}-thalweg")): part for part in self.all}

    def spec(self, kind, name):
        return self.named[kind, name]["spec"]

    def pod(self, name="-broker"):
        return self.spec("StatefulSet", name)["template"]["spec"]

    def container(self, name="-broker"):
        (container,) = self.pod(name)["containers"]
        return container

    def arguments(self, name="-broker"):
        """The properties that a container sets by its arguments."""
        words = self.container(name)["args"]
        return dict(word.split("=", 1) for before, word in zip(words, words[1:]) if before == "--set")

    def settings(self, name="-broker", file="server.properties"):
        """The properties of a ConfigMap."""
        lines = self.named["ConfigMap", name]["data"][file].splitlines()
        return dict(line.split("=", 1) for line in lines if line)
