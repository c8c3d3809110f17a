"""A real control plane of Kubernetes on loopback: etcd, API server, controllers, scheduler. Nodes are entries in it; no container
runs. `Kubelets` reports the pods that are bound to them as ready, and removes those that are deleted, as kubelets would.

Owns the processes, their folder, and the thread of the kubelets.
"""

import datetime
import json
import os
import pathlib
import secrets
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

from ports import free_port
from rendering import ROOT
from suite import end_of, until

PROGRAMS = ROOT / "target/compat/kubernetes"
START_S_MAX = 120
PROCESSORS, MEMORY = "8", "64Gi"


class ApiError(Exception):
    """The API server's refusal; `code` is the status of HTTP."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class ControlPlane:
    """The programs, in a folder. `kubeconfig` leads helm to the API server."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.token = secrets.token_hex(16)
        self.port, self.etcd = free_port(), free_port()
        self.kubeconfig = self.folder / "kubeconfig"
        self.processes = []
        # The API server signs its certificate itself.
        self.context = ssl._create_unverified_context()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def _start(self):
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self._write_kubeconfig()
        etcd, peers = f"http://127.0.0.1:{self.etcd}", f"http://127.0.0.1:{free_port()}"
        urls = {"listen-client-urls": etcd, "advertise-client-urls": etcd, "listen-peer-urls": peers}
        urls |= {"initial-advertise-peer-urls": peers, "initial-cluster": f"default={peers}"}
        self._run("etcd", {"data-dir": self.folder / "etcd", **urls})
        options = {
            "etcd-servers": etcd,
            "bind-address": "127.0.0.1",
            "secure-port": self.port,
            "cert-dir": self.folder / "certificates",
            "token-auth-file": tokens,
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.96.0.0/16",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "endpoint-reconciler-type": "none",
            # Nobody would take the taints of new nodes away: the controller of their life is off.
            "disable-admission-plugins": "TaintNodesByCondition",
        }
        self._run("kube-apiserver", options)
        until(self._is_ready, "the API server is ready", timeout=START_S_MAX, pause=0.5)
        common = {"kubeconfig": self.kubeconfig, "bind-address": "127.0.0.1", "leader-elect": "false"}
        common |= {"authentication-skip-lookup": "true", "cert-dir": self.folder / "certificates"}
        controllers = "*,-node-lifecycle-controller,-taint-eviction-controller"
        accounts = {"service-account-private-key-file": key, "controllers": controllers}
        self._run("kube-controller-manager", {**common, **accounts, "secure-port": free_port()})
        self._run("kube-scheduler", {**common, "secure-port": free_port()})

    def _run(self, program, options):
        words = [f"--{name}={value}" for name, value in options.items()]
        with open(self.folder / f"{program}.log", "ab") as log:
            command = [PROGRAMS / program, *words]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _is_ready(self):
        for process in self.processes:
            assert process.poll() is None, end_of(self.folder / f"{pathlib.Path(process.args[0]).name}.log")
        try:
            # The first answer precedes the roles and namespaces that the API server makes.
            return self.call("GET", "/readyz", plain=True) == "ok" and self.get("/api/v1/namespaces/default")
        except (OSError, ApiError):
            return False

    def _write_kubeconfig(self):
        cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tried",
            "clusters": [{"name": "tried", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "tried", "context": {"cluster": "tried", "user": "admin"}}],
        }
        self.kubeconfig.write_text(json.dumps(document))

    def call(self, method, path, body=None, kind="application/json", plain=False):
        """The answer of the API server; ApiError is its refusal."""
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", kind)
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=30, context=self.context) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as refusal:
            raise ApiError(refusal.code, refusal.read().decode(errors="replace")) from None
        return text if plain else json.loads(text)

    def get(self, path):
        return self.call("GET", path)

    def items(self, path, labels=""):
        return self.get(f"{path}?labelSelector={labels}")["items"]

    def add_node(self, name, zone):
        """A node of a zone, with two volumes of each size that the chart asks for."""
        condition = {"type": "Ready", "status": "True", "reason": "Tried", "message": ""}
        size = {"cpu": PROCESSORS, "memory": MEMORY, "pods": "20"}
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        status = {"capacity": size, "allocatable": size, "conditions": [condition]}
        status["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        node = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}
        self.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
        for index, size in enumerate(["50Gi", "50Gi", "5Gi"]):
            spec = {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "local": {"path": f"/volumes/{index}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            }
            volume = {"metadata": {"name": f"{name}-{index}"}, "spec": spec}
            self.call("POST", "/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", **volume})

    def add_storage_class(self):
        provisioner = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
        self.call("POST", "/apis/storage.k8s.io/v1/storageclasses", {**kind, **provisioner})


class Kubelets(threading.Thread):
    """Reports bound pods of a namespace as ready, unless their names are in `silent`. `fewest` is the least number of ready brokers
    that was seen since all were ready."""

    def __init__(self, plane, namespace, brokers):
        super().__init__(daemon=True)
        self.plane, self.pods, self.brokers = plane, f"/api/v1/namespaces/{namespace}/pods", brokers
        self.silent, self.fewest, self.failure = set(), None, None
        self._ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.wait(0.2):
            try:
                self._turn()
            except ApiError as refusal:
                # The pod has changed meanwhile, or is gone.
                if refusal.code not in (404, 409):
                    self.failure = refusal
                    return
            except OSError as failure:
                self.failure = failure
                return

    def _turn(self):
        pods = self.plane.items(self.pods)
        ready = [pod for pod in pods if is_ready(pod)]
        brokers = sum(component(pod) == "broker" for pod in ready)
        if self.fewest is not None or brokers == self.brokers:
            self.fewest = min(brokers, self.brokers if self.fewest is None else self.fewest)
        for pod in pods:
            path = f"{self.pods}/{pod['metadata']['name']}"
            if "deletionTimestamp" in pod["metadata"]:
                self.plane.call("DELETE", path, {"gracePeriodSeconds": 0})
            elif pod["spec"].get("nodeName") and not is_ready(pod) and pod["metadata"]["name"] not in self.silent:
                now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
                condition = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                status = {"phase": "Running", "conditions": [condition]}
                self.plane.call("PATCH", f"{path}/status", {"status": status}, "application/strategic-merge-patch+json")


def is_ready(pod):
    conditions = pod["status"].get("conditions", [])
    return any(part["type"] == "Ready" and part["status"] == "True" for part in conditions)


def component(pod):
    return pod["metadata"]["labels"].get("app.kubernetes.io/component")
