"""The chart, installed on a real control plane: what its API server accepts, its controllers make, and its scheduler places.

No containers run: trials/packages runs those of the chart's pods.
"""

import os
import pathlib
import subprocess

import cases
from control_plane import ApiError, ControlPlane, Kubelets, component, is_ready
from rendering import CHART, HELM, RELEASE, arguments
from suite import until

ZONES = ("north", "west", "east")
LOCAL = {"storage": {"className": "local"}, "controllers": {"storage": {"className": "local"}}}
# Pods follow each other at intervals of `minReadySeconds`.
ROLL_S_MAX = 180


class Installed:
    """A release on a control plane."""

    def __init__(self, plane, namespace, values):
        self.plane, self.namespace = plane, namespace
        self.helm("install", values, "--create-namespace")

    def helm(self, verb, values, *options):
        command = [HELM, verb, RELEASE, *([CHART] if verb != "uninstall" else []), "--namespace", self.namespace, *options]
        environment = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)}
        done = subprocess.run(
            [*map(str, command), *arguments(values)], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods(self, component="broker"):
        labels = f"app.kubernetes.io/component%3D{component}"
        return self.plane.items(f"/api/v1/namespaces/{self.namespace}/pods", labels)

    def ready_pods(self, count):
        """The brokers, as soon as so many are ready."""
        brokers = lambda: [pod for pod in self.pods() if is_ready(pod)]
        until(lambda: len(brokers()) == count, f"{count} brokers are ready", timeout=ROLL_S_MAX, pause=0.5)
        return brokers()

    def available(self):
        """How many brokers have been ready for long enough."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{RELEASE}-thalweg-broker"
        return self.plane.get(path)["status"].get("availableReplicas", 0)

    def evict(self, pod):
        """Asks for an eviction, as the drain of a node does. False if a budget forbids it."""
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.namespace}}
        try:
            self.plane.call("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction", eviction)
        except ApiError as refusal:
            if refusal.code == 429:
                return False
            raise
        return True


def check(folder):
    """All checks, in one control plane."""
    with ControlPlane(pathlib.Path(folder)) as plane:
        plane.add_storage_class()
        for zone in ZONES:
            plane.add_node(f"node-{zone}", zone)
        check_every_case(plane)
        check_zones_from_nodes(plane)


def check_every_case(plane):
    """The API server accepts the objects of all cases, each with its defaults and checks."""
    for name, values in cases.CASES.items():
        # Node ports are those of the whole cluster, so a release goes before the next comes.
        release = Installed(plane, f"case-{name}", values)
        release.helm("uninstall", {}, "--wait")


def check_zones_from_nodes(plane):
    """Brokers are placed in all zones, their labels name the zone, evictions and upgrades take one at a time."""
    values = {**LOCAL, "zones": {"fromNode": True}}
    release = Installed(plane, "streams", values)
    with Kubelets(plane, "streams", brokers=3) as kubelets:
        brokers = release.ready_pods(3)
        zones = {pod["spec"]["nodeName"]: pod["metadata"]["labels"].get("topology.kubernetes.io/zone") for pod in brokers}
        assert zones == {f"node-{zone}": zone for zone in ZONES}, zones
        until(lambda: allowed(plane) == 1, "the budget lets one broker go", timeout=60)
        first, second, _ = brokers
        kubelets.silent.add(first["metadata"]["name"])
        assert release.evict(first), "the first eviction"
        assert not release.evict(second), "one more while the first is away"
        kubelets.silent.clear()
        # Kubernetes replaces all brokers at once that have not been ready for `minReadySeconds`.
        until(lambda: release.available() == 3, "all brokers are available", timeout=60, pause=0.5)
        kubelets.fewest = None
        revisions = lambda: {pod["metadata"]["annotations"]["checksum/config"] for pod in release.pods()}
        (old,) = revisions()
        release.helm("upgrade", {**values, "config": {"num.partitions": 3}})
        done = lambda: old not in revisions() and all(map(is_ready, release.pods()))
        until(done, "all brokers have the new settings", timeout=ROLL_S_MAX, pause=1)
        assert kubelets.fewest == 2, f"{kubelets.fewest} brokers were ready at the least"
        assert kubelets.failure is None, kubelets.failure
    assert [component(pod) for pod in release.pods("controller")] == ["controller"]


def allowed(plane):
    budget = plane.get(f"/apis/policy/v1/namespaces/streams/poddisruptionbudgets/{RELEASE}-thalweg-broker")
    return budget.get("status", {}).get("disruptionsAllowed")
