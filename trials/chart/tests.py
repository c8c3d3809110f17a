"""The Helm chart: what it makes of its values, by the schemas of Kubernetes' API, what it refuses, and its installation on a real
control plane. Its pods are started by trials/packages.
"""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile

import yaml

import control_plane
import kubernetes
from cases import APACHE, CASES, EVERYTHING, NODE_PORTS, SECURED, ZONES
from rendering import CHART, HELM, KUBERNETES, NAMESPACE, ROOT, Objects, Refusal, render
from suite import Skip, main

WORK = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="chart-"))
VALIDATE = ROOT / "target/compat/chart/bin/kubernetes-validate"


def test_helm_finds_no_fault():
    done = subprocess.run([HELM, "lint", "--strict", CHART], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_objects_fit_the_schemas_of_the_api():
    """In the strict form, where unknown fields are errors."""
    for version in KUBERNETES:
        cases = {**CASES, "zones-from-nodes": {"zones": {"fromNode": True}}} if version >= "1.35" else CASES
        folder = WORK / version
        folder.mkdir(parents=True)
        for name, values in cases.items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(render(values, kubernetes=version)))
        command = [VALIDATE, "--strict", "--kubernetes-version", version, *sorted(folder.iterdir())]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, f"{version}: {done.stdout}{done.stderr}"


def test_a_wrong_field_does_not_fit_the_schemas():
    """The check above is one."""
    objects = render()
    objects[-1]["spec"]["replica"] = 1
    path = WORK / "wrong.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    command = [VALIDATE, "--strict", "--kubernetes-version", KUBERNETES[-1], path]
    assert subprocess.run([*map(str, command)], capture_output=True).returncode != 0


def test_values_that_cannot_work_are_refused():
    external = lambda **values: {"listeners": {"external": {"enabled": True, **values}}}
    replication = lambda **values: {"listeners": {"replication": values}}
    for values, reason in [
        ({"listeners": {"clients": {"protocol": "SSL"}}}, "tls.secretName"),
        (replication(protocol="SASL_PLAINTEXT"), "listeners.replication.sasl.mechanisms"),
        (replication(protocol="SASL_PLAINTEXT", sasl={"mechanisms": ["SCRAM-SHA-512"]}), "listeners.replication.sasl.secretName"),
        (replication(protocol="SASL_PLAINTEXT", sasl={"mechanisms": ["PLAIN", "SCRAM-SHA-512"]}), "log in to each other by one"),
        (replication(port=9092), "listeners.replication.port"),
        (replication(protocol="TLS"), "protocol"),
        (external(), "listeners.external.host"),
        (external(type="NodePort", brokers={"0": {"host": "a"}}), "listeners.external.host"),
        (external(type="Ingress"), "type"),
        ({"controllers": {"kind": "apache"}}, "controllers.clusterId"),
        ({"controllers": {"kind": "external"}}, "controllers.bootstrapServers"),
        ({"brokers": 1}, "default.replication.factor"),
        ({"brokers": 0}, "brokers"),
        ({"replicas": 3}, "replicas"),
        ({"plan": "none"}, "aiven-1cpu-4gb"),
        ({"podDisruptionBudget": {"brokers": {"maxUnavailable": 2}}}, "min.insync.replicas"),
        ({"podDisruptionBudget": {"brokers": {"minAvailable": 1}}}, "min.insync.replicas"),
        ({"zones": {"fromNode": True, "names": ["a"]}}, "choose one"),
        ({"zones": {"names": ["a", "a"]}}, "names"),
        ({"zones": {"names": ["a"]}, "brokers": 101}, "at most 100"),
    ]:
        said = refusal(values)
        assert reason in said, f"{values}: {said}"
    said = refusal({"zones": {"fromNode": True}}, kubernetes="1.34")
    assert "1.35" in said and "zones.names" in said, said


def test_commands_and_values_of_the_documentation_work():
    page = (ROOT / "docs/start.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^helm (?:install|upgrade) \S+ \S+\.tgz (.+)$", page, re.M)
    (values,) = re.findall(r"^```yaml\n# values.yaml\n(.*?)^```$", page, re.M | re.S)
    (WORK / "values.yaml").write_text(values)
    options = [shlex.split(command.replace("--reuse-values", "")) for command in commands]
    assert len(options) == 3, commands
    for words in [*options, ["--values", WORK / "values.yaml"], ["--set", "zones.names={a,b,c}"]]:
        command = [HELM, "template", "streams", CHART, "--kube-version", KUBERNETES[-1], *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"


def refusal(values, **options):
    """The reason why values are refused."""
    try:
        render(values, **options)
    except Refusal as refused:
        return str(refused)
    raise AssertionError(f"accepted: {values}")


def test_brokers_are_replaced_one_at_a_time_by_their_health():
    chart = Objects()
    brokers, pod, container = chart.spec("StatefulSet", "-broker"), chart.pod(), chart.container()
    assert brokers["updateStrategy"]["type"] == "RollingUpdate" and brokers["replicas"] == 3
    assert pod["terminationGracePeriodSeconds"] >= 60 and not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert chart.spec("Service", "-brokers")["clusterIP"] == "None"


def test_each_purpose_has_a_listener_of_its_own():
    chart = Objects(SECURED)
    settings, arguments = chart.settings(), chart.arguments()
    ports = {"CLIENTS": 9092, "REPLICATION": 9091, "EXTERNAL": 9094}
    assert settings["listeners"] == ",".join(f"{name}://0.0.0.0:{port}" for name, port in ports.items())
    assert settings["inter.broker.listener.name"] == "REPLICATION"
    protocols = "CLIENTS:SASL_SSL,REPLICATION:SASL_SSL,EXTERNAL:SSL,CONTROLLER:SASL_SSL"
    assert settings["listener.security.protocol.map"] == protocols
    inside = f"$(POD_NAME).release-thalweg-brokers.{NAMESPACE}.svc"
    outside = "${file:/etc/thalweg/external.properties:%s.$(POD_INDEX)}"
    assert arguments["advertised.listeners"].split(",") == [
        f"CLIENTS://{inside}:9092",
        f"REPLICATION://{inside}:9091",
        f"EXTERNAL://{outside % 'host'}:{outside % 'port'}",
    ]
    assert arguments["node.id"] == "$(POD_INDEX)"
    targets = {port["name"]: port["targetPort"] for port in chart.spec("Service", "-brokers")["ports"]}
    assert targets == {"kafka": "clients", "replication": "replication", "http": "http"}
    assert "replication" not in {port["name"] for port in chart.spec("Service", "")["ports"]}
    # Without one for clients outside, none is opened.
    plain = Objects()
    assert "EXTERNAL" not in plain.settings()["listeners"] and "EXTERNAL" not in plain.arguments()["advertised.listeners"]
    assert not [name for kind, name in plain.named if "external" in name]


def test_each_listener_has_security_of_its_own():
    chart = Objects(SECURED)
    settings = chart.settings()
    jaas = "listener.name.%s.%s.sasl.jaas.config"
    assert settings["listener.name.clients.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-512"
    assert settings[jaas % ("clients", "plain")] == "${directory:/etc/thalweg-sasl/clients:plain}"
    assert jaas % ("clients", "scram-sha-512") not in settings, "users are in the metadata"
    assert settings["sasl.mechanism.inter.broker.protocol"] == settings["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert settings["listener.name.replication.ssl.client.auth"] == "required"
    assert settings["listener.name.clients.ssl.client.auth"] == settings["listener.name.external.ssl.client.auth"] == "none"
    volumes = {volume["name"]: volume["secret"]["secretName"] for volume in chart.pod()["volumes"] if "secret" in volume}
    assert volumes == {
        **{f"tls-{listener}": "certificates" for listener in ("clients", "replication", "controller")},
        "tls-external": "outside",
        "sasl-clients": "clients",
        "sasl-replication": "nodes",
        "sasl-controller": "nodes",
    }
    mounts = {mount["mountPath"] for mount in chart.container()["volumeMounts"]}
    for value in settings.values():
        place = value.removeprefix("${directory:")
        if place.startswith(("/etc/thalweg-tls/", "/etc/thalweg-sasl/")):
            assert "/".join(place.split(":")[0].split("/")[:4]) in mounts, value
    # The controller asks brokers for their logs, at the listener between them.
    controller = chart.settings("-controller")
    shared = [key for key in settings if key.startswith("listener.name.replication.")]
    assert len(shared) == 7 and all(controller[key] == settings[key] for key in shared), controller
    assert controller["inter.broker.listener.name"] == "REPLICATION"
    assert {"name": "sasl-replication", "mountPath": "/etc/thalweg-sasl/replication", "readOnly": True} in chart.container(
        "-controller"
    )["volumeMounts"]


def test_controllers_of_apache_kafka_have_the_same_listener():
    chart = Objects(EVERYTHING)
    environment = {entry["name"]: entry.get("value") for entry in chart.container("-controller")["env"]}
    assert environment["KAFKA_LISTENERS"] == "CONTROLLER://:9093"
    assert environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] == "CONTROLLER:SASL_SSL"
    assert environment["KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG"] == "${directory:/etc/thalweg-sasl/controller:plain}"
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"].count("@release-thalweg-controller-") == 3
    assert environment["KAFKA_MIN_INSYNC_REPLICAS"] == "2"
    assert chart.spec("PodDisruptionBudget", "-controller")["maxUnavailable"] == 1


def test_a_balancer_for_each_broker_leads_clients_from_outside():
    external = {
        "enabled": True,
        "host": "broker-{id}.example.org",
        "annotations": {"external-dns.alpha.kubernetes.io/hostname": "broker-{id}.example.org"},
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "brokers": {"1": {"host": "203.0.113.7", "port": 443, "annotations": {"one": "more"}}},
    }
    chart = Objects({"listeners": {"external": external}})
    for index in range(3):
        service = chart.spec("Service", f"-external-{index}")
        assert service["type"] == "LoadBalancer" and service["externalTrafficPolicy"] == "Local"
        assert service["loadBalancerSourceRanges"] == ["203.0.113.0/24"]
        assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"release-thalweg-broker-{index}"
        assert service["ports"] == [{"name": "kafka", "port": 9094, "targetPort": "external"}]
    annotations = chart.named["Service", "-external-1"]["metadata"]["annotations"]
    assert annotations == {"external-dns.alpha.kubernetes.io/hostname": "broker-1.example.org", "one": "more"}
    assert chart.settings("-external", "external.properties") == {
        **{"host.0": "broker-0.example.org", "port.0": "9094"},
        **{"host.1": "203.0.113.7", "port.1": "443"},
        **{"host.2": "broker-2.example.org", "port.2": "9094"},
    }
    assert ("Service", "-external") not in chart.named
    sources = next(volume for volume in chart.pod()["volumes"] if volume["name"] == "config")["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources] == ["release-thalweg-broker", "release-thalweg-external"]


def test_node_ports_follow_node_ids():
    chart = Objects(NODE_PORTS)
    assert "EXTERNAL://$(NODE_ADDRESS):${file:" in chart.arguments()["advertised.listeners"]
    (address,) = [entry for entry in chart.container()["env"] if entry["name"] == "NODE_ADDRESS"]
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
    for index in range(3):
        service = chart.spec("Service", f"-external-{index}")
        assert service["type"] == "NodePort" and service["ports"][0]["nodePort"] == 31000 + index
        # Only the node of the broker is advertised.
        assert service["externalTrafficPolicy"] == "Local"
    expected = {f"port.{index}": str(31000 + index) for index in range(3)}
    assert chart.settings("-external", "external.properties") == expected
    assert chart.spec("Service", "-external")["externalTrafficPolicy"] == "Cluster"
    named = {"enabled": True, "type": "NodePort", "host": "nodes.example.org", "brokers": {"2": {"nodePort": 32000}}}
    chart = Objects({"listeners": {"external": named}})
    assert chart.spec("Service", "-external-2")["ports"][0]["nodePort"] == 32000
    assert chart.spec("Service", "-external-2")["externalTrafficPolicy"] == "Cluster"
    assert chart.settings("-external", "external.properties")["port.2"] == "32000"


def test_one_more_broker_restarts_none():
    external = {"listeners": {"external": {"enabled": True, "host": "broker-{id}.example.org"}}}
    template = lambda values: Objects(values).spec("StatefulSet", "-broker")["template"]
    assert template(external) == template({**external, "brokers": 4})
    others = {"listeners": {"external": {"enabled": True, "host": "{id}.example.org"}}}
    assert template(external) != template(others), "another address restarts them"


def test_each_zone_has_a_stateful_set_whose_rack_is_the_zone():
    chart = Objects(ZONES, kubernetes=KUBERNETES[0])
    found = {}
    for place, zone in enumerate(ZONES["zones"]["names"], start=1):
        name = f"-broker-z{place}"
        spec = chart.spec("StatefulSet", name)
        assert chart.arguments(name)["broker.rack"] == zone
        assert chart.pod(name)["nodeSelector"] == {"topology.kubernetes.io/zone": zone}
        assert spec["selector"]["matchLabels"]["topology.kubernetes.io/zone"] == zone
        # Those of several zones would restart brokers at the same time.
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        found[zone] = (spec["ordinals"]["start"], spec["replicas"])
    assert found == {"north": (100, 2), "west": (200, 2), "east": (300, 1)}
    outside = {"listeners": {"external": {"enabled": True, "type": "NodePort"}}}
    chart = Objects({**ZONES, **outside})
    service = chart.spec("Service", "-external-201")
    assert service["selector"]["statefulset.kubernetes.io/pod-name"] == "release-thalweg-broker-z2-201"
    assert service["ports"][0]["nodePort"] == 31201
    assert len([name for kind, name in chart.named if kind == "Service" and name.startswith("-external-")]) == 5


def test_the_rack_comes_from_the_zone_of_the_node():
    chart = Objects({"zones": {"fromNode": True}}, kubernetes="1.35")
    assert chart.arguments()["broker.rack"] == "$(ZONE)"
    (zone,) = [entry for entry in chart.container()["env"] if entry["name"] == "ZONE"]
    assert zone["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['topology.kubernetes.io/zone']"
    spread = {rule["topologyKey"]: rule["whenUnsatisfiable"] for rule in chart.pod()["topologySpreadConstraints"]}
    assert spread == {"topology.kubernetes.io/zone": "DoNotSchedule", "kubernetes.io/hostname": "ScheduleAnyway"}
    assert "broker.rack" not in Objects().arguments()


def test_pods_are_spread_over_machines_and_zones():
    chart = Objects({"controllers": APACHE})
    for name in ("-broker", "-controller"):
        rules = chart.pod(name)["topologySpreadConstraints"]
        assert [rule["topologyKey"] for rule in rules] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        labels = chart.spec("StatefulSet", name)["selector"]["matchLabels"]
        assert all(rule["labelSelector"]["matchLabels"] == labels for rule in rules)
    own = [{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}]
    (rule,) = Objects({"topologySpread": own}).pod()["topologySpreadConstraints"]
    assert rule["minDomains"] == 2 and rule["topologyKey"] == "rack"
    assert "topologySpreadConstraints" not in Objects({"topologySpread": []}).pod()


def test_evictions_leave_enough_replicas_in_sync():
    budget = lambda **values: Objects(values).spec("PodDisruptionBudget", "-broker")
    assert budget()["maxUnavailable"] == 1
    wide = {"brokers": 5, "config": {"default.replication.factor": 5, "min.insync.replicas": 3}}
    assert budget(**wide, podDisruptionBudget={"brokers": {"maxUnavailable": 2}})["maxUnavailable"] == 2
    least = budget(podDisruptionBudget={"brokers": {"minAvailable": 2}})
    assert least["minAvailable"] == 2 and "maxUnavailable" not in least
    # All zones have one budget.
    assert budget(**ZONES)["selector"]["matchLabels"].keys() == budget()["selector"]["matchLabels"].keys()
    assert ("PodDisruptionBudget", "-broker") not in Objects({"podDisruptionBudget": {"enabled": False}}).named
    # It could never be moved.
    assert ("PodDisruptionBudget", "-controller") not in Objects().named


def test_plans_are_those_of_the_reports():
    limits = lambda **values: Objects(values).container()["resources"]["limits"]
    assert limits() == {"memory": "4Gi"}
    assert limits(plan="ibm-4cpu-8gb") == {"cpu": "4", "memory": "8Gi"}
    assert limits(plan="aiven-1cpu-4gb") == {"cpu": "1", "memory": "4Gi"}
    assert limits(plan="aiven-2cpu-8gb") == {"cpu": "2", "memory": "8Gi"}
    assert limits(plan="r4-xlarge-4cpu-30gb") == {"cpu": "4", "memory": "30Gi"}
    assert limits(plan="aiven-2cpu-8gb", resources={"limits": {"memory": "6Gi"}}) == {"cpu": "2", "memory": "6Gi"}
    assert limits(plan="mine", plans={"mine": {"limits": {"cpu": "3"}}}) == {"cpu": "3"}


def test_a_network_policy_opens_each_port_to_its_peers():
    rules = Objects(EVERYTHING).spec("NetworkPolicy", "-broker")["ingress"]
    peers = {}
    for rule in rules:
        for port in rule["ports"]:
            peers.setdefault(port["port"], []).extend(rule.get("from", ["everyone"]))
    release = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "thalweg", "app.kubernetes.io/instance": "release"}}}
    clients = {"podSelector": {"matchLabels": {"release-thalweg-client": "true"}}}
    assert peers["replication"] == [release]
    assert peers["clients"] == [clients, release]
    assert peers["http"] == [clients, release, *EVERYTHING["networkPolicy"]["httpFrom"]]
    assert peers["external"] == EVERYTHING["networkPolicy"]["externalFrom"]
    (rule,) = Objects(EVERYTHING).spec("NetworkPolicy", "-controller")["ingress"]
    assert rule["from"] == [release]
    assert "external" not in str(Objects({"networkPolicy": {"enabled": True}}).spec("NetworkPolicy", "-broker"))
    assert not [name for kind, name in Objects().named if kind == "NetworkPolicy"]


def test_a_control_plane_installs_places_and_upgrades_the_chart():
    if not (control_plane.PROGRAMS / "kube-scheduler").exists():
        raise Skip("needs the programs of Kubernetes: trials/chart/install")
    kubernetes.check(WORK / "kubernetes")


main(globals(), parallel=2)
