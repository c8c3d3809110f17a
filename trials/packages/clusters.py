"""The clusters that the chart and the compose file describe, started from them without Kubernetes or Docker: each pod or
service is a host with an address of its own, Thalweg's as containers of the image, Apache Kafka's as processes of its jars.

Ports that are published to the machine are left out: clients run beside the nodes.
"""

import os
import pathlib
import re
import subprocess

import yaml

import artefacts
from broker import kafka_classpath
from container import Container, Image, Network
from suite import until

START_S_MAX = 90


class Cluster:
    """Hosts, and what they run. `thalweg` has the arguments and mounts of each broker or controller of Thalweg, `kafka` the
    environment of each of Apache Kafka."""

    def __init__(self, folder, thalweg, kafka, aliases):
        self.folder = pathlib.Path(folder)
        self.thalweg, self.kafka = thalweg, kafka
        self.names = [*thalweg, *kafka]
        self.aliases = aliases
        self.brokers = [name for name in thalweg if "controller" not in name]
        self.containers, self.processes = {}, {}

    def works(self):
        """Starts it: records are written and read, and it goes on without a broker and without one of several controllers."""
        image = Image(artefacts.image(), self.folder / "image")
        with Network(self.folder, self.names) as network:
            aliases = "".join(f"{network.addresses[name]} {alias}\n" for name, alias in self.aliases.items())
            network.hosts.write_text(network.hosts.read_text() + aliases)
            try:
                self._start(image, network)
                self._check()
            except BaseException:
                for log in sorted(self.folder.glob("*/log")):
                    print(f"-- {log}\n{log.read_text(errors='replace')[-2000:]}", flush=True)
                raise
            finally:
                for container in self.containers.values():
                    container.end()
                for process in self.processes.values():
                    process.kill()
                    process.wait()

    def _start(self, image, network):
        for name, environment in self.kafka.items():
            self.processes[name] = start_kafka(self.folder / name, environment, network, name)
        for name, (arguments, mounts) in self.thalweg.items():
            # The address of the machine: that of the host, because each has only one.
            arguments = [word.replace("$(NODE_ADDRESS)", network.addresses[name]) for word in arguments]
            self.containers[name] = Container(image, network, name, self.folder / name, mounts).start(arguments)

    def _check(self):
        first, second, third = (self.containers[name] for name in self.brokers)
        create = ["topic", "create", "orders", "--partitions", "3", "--replication-factor", "3"]
        until(lambda: self._says(first, create), "a topic with three replicas", timeout=START_S_MAX, pause=1)
        until(third.is_healthy, "the last broker is healthy", timeout=START_S_MAX)
        done = first.run(["/usr/bin/thalweg", "produce", "orders"], text="one\n")
        assert done.returncode == 0, done.stdout
        read = ["consume", "orders", "--from-beginning", "--max-messages", "1"]
        assert "one" in self._says(second, read).splitlines()
        self.check_whole(first)
        assert third.stop(60) == 0, (third.folder / "log").read_text()[-2000:]
        if len(self.kafka) > 1:
            process = self.processes[next(iter(self.kafka))]
            process.kill()
            process.wait()
        until(lambda: self._says(first, ["topic", "create", "others"]), "a topic after the loss", timeout=60, pause=1)
        done = first.run(["/usr/bin/thalweg", "produce", "orders"], text="two\n")
        assert done.returncode == 0, done.stdout
        read = ["consume", "orders", "--from-beginning", "--max-messages", "2"]
        assert sorted(self._says(second, read).splitlines()) == ["one", "two"]

    def check_whole(self, container):
        """What else holds while all brokers are there."""

    @staticmethod
    def _says(container, command):
        """The output of a command of the binary, or nothing if it fails."""
        done = container.run(["/usr/bin/thalweg", *command])
        return done.stdout or "done" if done.returncode == 0 else ""


class Compose(Cluster):
    """The services of a compose file."""

    def __init__(self, path, folder):
        document = yaml.safe_load(pathlib.Path(path).read_text())
        folder = pathlib.Path(folder)
        thalweg, kafka = {}, {}
        for name, service in document["services"].items():
            if service["image"].startswith("thalweg:"):
                (config,) = service["configs"]
                file = write(folder / f"{name}.properties", document["configs"][config["source"]]["content"])
                thalweg[name] = (service["command"], {config["target"]: file})
            else:
                defaults = lambda value: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
                kafka[name] = {key: defaults(value) for key, value in service["environment"].items()}
        super().__init__(folder, thalweg, kafka, {})


class Chart(Cluster):
    """The pods of a rendered chart. `secrets` has the files of each secret that the pods mount."""

    def __init__(self, objects, folder, secrets=None):
        folder = pathlib.Path(folder)
        self.racks = set()
        files = {part["metadata"]["name"]: part["data"] for part in objects if part["kind"] == "ConfigMap"}
        files |= secrets or {}
        thalweg, aliases = {}, {}
        for part in objects:
            if part["kind"] != "StatefulSet":
                continue
            name, spec = part["metadata"]["name"], part["spec"]
            pod = spec["template"]["spec"]
            (container,) = pod["containers"]
            places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            mounts = {}
            for volume in pod["volumes"]:
                if "emptyDir" in volume:
                    continue
                mounts[places[volume["name"]]] = folder / f"{name}-{volume['name']}"
                for source in sources(volume):
                    for file, text in files[source].items():
                        write(folder / f"{name}-{volume['name']}" / file, text)
            key = "broker.rack="
            self.racks |= {word.removeprefix(key) for word in container["args"] if word.startswith(key)}
            first = spec.get("ordinals", {}).get("start", 0)
            for index in range(first, first + spec["replicas"]):
                values = {"POD_NAME": f"{name}-{index}", "POD_INDEX": str(index)}
                expand = lambda text: re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)
                thalweg[values["POD_NAME"]] = ([expand(text) for text in container["args"]], mounts)
                aliases[values["POD_NAME"]] = f"{values['POD_NAME']}.{spec['serviceName']}.streams.svc"
        super().__init__(folder, thalweg, {}, aliases)


class ZonedChart(Chart):
    """Brokers in zones, with a listener for clients outside at their own addresses."""

    def check_whole(self, container):
        ids = [name.rpartition("-")[2] for name in self.brokers]
        described = self._says(container, ["broker", "config", "describe", *ids, "--name", "broker.rack", "--all-configs"])
        assert len(self.racks) == 3 and all(rack in described.split() for rack in self.racks), described
        for name in self.brokers:
            address = f"{self.containers[name].network.addresses[name]}:9094"
            read = ["consume", "orders", "--from-beginning", "--max-messages", "1", "--bootstrap-server", address]
            assert "one" in self._says(container, read).splitlines(), f"at {address}"


def sources(volume):
    """The names of the ConfigMaps and secrets in a volume."""
    if "projected" in volume:
        return [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    return [volume["configMap"]["name"] if "configMap" in volume else volume["secret"]["secretName"]]


def write(path, text):
    """Writes a file that the user of the container may read, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    path.write_text(text)
    path.chmod(0o644)
    return path


def start_kafka(folder, environment, network, host):
    """Starts what the image apache/kafka starts: KAFKA_ variables are properties, CLUSTER_ID formats the directory."""
    folder.mkdir()
    variables = {key: value for key, value in environment.items() if key.startswith("KAFKA_")}
    heap = variables.pop("KAFKA_HEAP_OPTS", "-Xmx256m").split()
    properties = {key.removeprefix("KAFKA_").replace("_", ".").lower(): value for key, value in variables.items()}
    properties["log.dirs"] = str(folder / "data")
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", *heap, "-cp", kafka_classpath()]
    artefacts.run([*java, "kafka.tools.StorageTool", "format", "--cluster-id", environment["CLUSTER_ID"], "--config", file])
    inside = f'mount --bind "{network.hosts}" /etc/hosts && exec "$@"'
    space = ["ip", "netns", "exec", network.space(host), "unshare", "--mount", "sh", "-c", inside, "sh"]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            [*space, *java, "kafka.Kafka", str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ
        )
