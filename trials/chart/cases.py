"""Values of the chart that are tried."""

APACHE = {"kind": "apache", "clusterId": "MkU3OEVBNTcwNTJENDM2Qk"}
SECURED = {
    "tls": {"secretName": "certificates"},
    "listeners": {
        "clients": {"protocol": "SASL_SSL", "sasl": {"mechanisms": ["PLAIN", "SCRAM-SHA-512"], "secretName": "clients"}},
        "replication": {"protocol": "SASL_SSL", "sasl": {"mechanisms": ["PLAIN"], "secretName": "nodes"}},
        "controllers": {"protocol": "SASL_SSL", "sasl": {"mechanisms": ["PLAIN"], "secretName": "nodes"}},
        "external": {"enabled": True, "protocol": "SSL", "tls": {"secretName": "outside"}, "host": "broker-{id}.example.org"},
    },
}
NODE_PORTS = {"listeners": {"external": {"enabled": True, "type": "NodePort", "bootstrap": {"enabled": True}}}}
ZONES = {"zones": {"names": ["north", "west", "east"]}, "brokers": 5}
EVERYTHING = {
    **SECURED,
    "controllers": APACHE,
    "networkPolicy": {
        "enabled": True,
        "httpFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "externalFrom": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
    },
    "plan": "ibm-4cpu-8gb",
    "nodeSelector": {"disk": "ssd"},
    "podAnnotations": {"a": "b"},
}
CASES = {
    "default": {},
    "secured": SECURED,
    "everything": EVERYTHING,
    "node-ports": NODE_PORTS,
    "zones": ZONES,
    "zones-and-everything": {**EVERYTHING, **ZONES},
    "one-broker": {
        "brokers": 1,
        "config": {"default.replication.factor": 1, "min.insync.replicas": 1},
        "controllers": {"config": {"default.replication.factor": 1, "min.insync.replicas": 1}},
    },
    "elsewhere": {"controllers": {"kind": "external", "bootstrapServers": "controllers.example.org:9093"}},
}
