"""Runs an OCI image without a container engine: unpacked, in namespaces, with the user, entrypoint and command of its
configuration, a read-only root, no capabilities and a network of its own. Needs root and iproute2.

Owns the processes, networks and folders that it makes.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tarfile

HERE = pathlib.Path(__file__).resolve().parent


class Image:
    """An image layout in a tar, unpacked below a folder."""

    def __init__(self, path, folder):
        self.root = pathlib.Path(folder) / "root"
        self.root.mkdir(parents=True)
        with tarfile.open(path) as layout:
            read = lambda name: layout.extractfile(name).read()
            blob = lambda descriptor: read("blobs/" + descriptor["digest"].replace(":", "/"))
            (entry,) = json.loads(read("index.json"))["manifests"]
            self.manifest = json.loads(blob(entry))
            self.config = json.loads(blob(self.manifest["config"]))
            for layer in self.manifest["layers"]:
                packed = self.root.parent / "layer"
                packed.write_bytes(blob(layer))
                subprocess.run(["tar", "--numeric-owner", "-xpzf", packed, "-C", self.root], check=True)
                packed.unlink()
        # What every runtime adds.
        for name in ("dev", "proc"):
            (self.root / name).mkdir()
        (self.root / "etc/hosts").touch()

    def command(self, arguments=None):
        settings = self.config["config"]
        return [*settings["Entrypoint"], *(settings["Cmd"] if arguments is None else arguments)]


class Network:
    """A bridge, and a namespace with an address for each name. The names are in every host's /etc/hosts."""

    def __init__(self, folder, names):
        self.tag = f"tw{os.getpid() % 100000}"
        self.addresses = {name: f"10.213.0.{at}" for at, name in enumerate(names, 2)}
        self.hosts = pathlib.Path(folder) / "hosts"
        lines = [f"{address} {name}\n" for name, address in self.addresses.items()]
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))

    def __enter__(self):
        # The bridge has a namespace, too, so that the machine's own network stays as it is.
        self._ip("netns", "add", self.tag)
        self._in(self.tag, "ip", "link", "add", "bridge", "type", "bridge")
        self._in(self.tag, "ip", "link", "set", "bridge", "up")
        for at, (name, address) in enumerate(self.addresses.items()):
            space = self.space(name)
            self._ip("netns", "add", space)
            self._in(self.tag, "ip", "link", "add", f"port{at}", "type", "veth", "peer", "name", "eth0", "netns", space)
            self._in(self.tag, "ip", "link", "set", f"port{at}", "master", "bridge", "up")
            self._in(space, "ip", "link", "set", "lo", "up")
            self._in(space, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            self._in(space, "ip", "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_):
        for space in [self.tag, *map(self.space, self.addresses)]:
            subprocess.run(["ip", "netns", "delete", space], check=False, stderr=subprocess.DEVNULL)

    def space(self, name):
        return f"{self.tag}-{name}"

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    @staticmethod
    def _in(space, *command):
        subprocess.run(["ip", "netns", "exec", space, *command], check=True)


class Container:
    """A container of an image, on a host of a network, with files and folders of the machine at paths of its own (`mounts`, by
    path). Its volume outlives it."""

    def __init__(self, image, network, host, folder, mounts=None):
        self.image, self.network, self.host = image, network, host
        self.mounts = {path: pathlib.Path(source) for path, source in (mounts or {}).items()}
        for path, source in self.mounts.items():
            place = image.root / path.lstrip("/")
            if source.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            elif not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.volume = self.folder / "volume"
        self.process = None
        (path,) = image.config["config"]["Volumes"]
        source = image.root / path.lstrip("/")
        if not self.volume.exists():
            self.volume.mkdir()
            owner = source.stat()
            os.chown(self.volume, owner.st_uid, owner.st_gid)
            os.chmod(self.volume, owner.st_mode)

    def start(self, arguments=None):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self._command(self.image.command(arguments)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    def run(self, command, text="", timeout=60):
        """Runs a command beside the container's: the same image, user, network and volume."""
        return subprocess.run(
            self._command(command), input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
        )

    def is_healthy(self):
        test = self.image.config["config"]["Healthcheck"]["Test"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.run(test[1:], timeout=10).returncode == 0
        return False

    def pid(self):
        """The process of the entrypoint, as the machine sees it."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def stop(self, timeout=30):
        """Stops it as an engine does, and returns the exit code."""
        inner = self.pid()
        if inner:
            os.kill(inner, 15)
        return self.process.wait(timeout)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _command(self, command):
        space = ["ip", "netns", "exec", self.network.space(self.host)]
        apart = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        settings = self.image.config["config"]
        places = [self.image.root, self.volume, self.network.hosts]
        mounts = [str(part) for path, source in self.mounts.items() for part in (source, path)]
        named = [str(HERE / "container"), *map(str, places), settings["User"], self.host]
        return [*space, *apart, *named, *mounts, "--", *command]
