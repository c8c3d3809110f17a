"""How the client under test connects, as settings of each Python client: from the environment, as `security` describes it."""

import logging
import os
import ssl
import time

PROTOCOL = os.environ.get("SECURITY_PROTOCOL", "PLAINTEXT")
MECHANISM = os.environ.get("SECURITY_MECHANISM", "")
TOKEN = os.environ.get("SECURITY_TOKEN", "")
CA = os.environ.get("SECURITY_CA")
CERTIFICATE = os.environ.get("SECURITY_CERTIFICATE")
# Kafka takes no such nonce since CVE-2024-56128; librdkafka sends the right one since 2.6.1.
NO_SCRAM_WITH_KAFKA = "Debian's librdkafka sends a nonce that Apache Kafka refuses"
# When a token is due again, as librdkafka's callback says.
TOKEN_LIFE_S = 60


class Log(logging.Handler):
    """The last warnings of a client, a hundred at most, which may say why where its exceptions do not."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []
        logging.getLogger().addHandler(self)

    def emit(self, record):
        self.lines = [*self.lines[-99:], record.getMessage()]


def librdkafka_arguments():
    """The options of kcat."""
    file = os.environ.get("SECURITY_LIBRDKAFKA")
    return ["-F", file] if file else []


def java_arguments():
    """The options of Kafka's tools and of `thalweg`."""
    file = os.environ.get("SECURITY_JAVA")
    return ["--command-config", file] if file else []


def java():
    """The settings of Kafka's client."""
    file = os.environ.get("SECURITY_JAVA")
    return _settings(file) if file else {}


def _settings(file):
    with open(file) as lines:
        return dict(line.strip().split("=", 1) for line in lines)


def librdkafka():
    """The settings of confluent-kafka."""
    file = os.environ.get("SECURITY_LIBRDKAFKA")
    if not file:
        return {}
    settings = _settings(file)
    if TOKEN:
        settings["oauth_cb"] = lambda _: (TOKEN, time.time() + TOKEN_LIFE_S)
    return settings


def _named(**certificates):
    """The keyword arguments that kafka-python and aiokafka share."""
    if PROTOCOL == "PLAINTEXT":
        return {}
    settings = {"security_protocol": PROTOCOL, **certificates}
    if MECHANISM:
        user, password = os.environ["SECURITY_USER"], os.environ["SECURITY_PASSWORD"]
        settings |= {"sasl_mechanism": MECHANISM, "sasl_plain_username": user, "sasl_plain_password": password}
    return settings


def kafka_python():
    """The keyword arguments of kafka-python."""
    settings = _named(**{"ssl_cafile": CA} if CA else {}, **{"ssl_certfile": CERTIFICATE} if CERTIFICATE else {})
    if TOKEN:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):
            def token(self):
                return TOKEN

        settings["sasl_oauth_token_provider"] = Provider()
    return settings


def aiokafka():
    """The keyword arguments of aiokafka."""
    context = {}
    if PROTOCOL.endswith("SSL"):
        context["ssl_context"] = ssl.create_default_context(cafile=CA)
        if CERTIFICATE:
            context["ssl_context"].load_cert_chain(CERTIFICATE)
    settings = _named(**context)
    if TOKEN:
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):
            async def token(self):
                return TOKEN

        settings["sasl_oauth_token_provider"] = Provider()
    return settings
