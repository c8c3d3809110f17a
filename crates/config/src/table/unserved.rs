//! Keys of what Thalweg does not serve: named, so that a file that sets them is answered with the reason. Those of TLS and SASL
//! that bear on connections to other nodes have their effect there.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use super::super::check::{
    ANY, LIST, NOT_EMPTY, NOT_NULL, at_least, between, one_of, one_of_any_case, ratio,
};
use super::super::key::Support::{Accepted, Opening, Unserved};
use super::declare::{family, names};
use super::reason::{
    AUTHORIZER, JMX, METRICS, NO_JAVA, PROVIDERS, QUOTAS, SASL, TELEMETRY, TIERED, TLS, TOKENS,
};

names! {
    /// Who may do what.
    AccessKeys, ACCESS "Access control and quotas";

    "authorizer.class.name": String = "", NOT_NULL, Low, ReadOnly, Unserved(AUTHORIZER) => authorizer,
        "The Java class for access control.";
    "principal.builder.class": Class = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", ANY, Medium, PerBroker, Unserved(AUTHORIZER),
        "The Java class that determines a connection's principal.";
    "client.quota.callback.class": Class = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "The Java class that decides client quotas.";
    "controller.quota.window.num": Int = "11", at_least(1), Low, ReadOnly, Unserved(QUOTAS),
        "The number of samples of the quota for cluster changes.";
    "controller.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Low, ReadOnly, Unserved(QUOTAS),
        "How long one sample of the quota for cluster changes lasts.";
    "delegation.token.secret.key": Password = null, ANY, Medium, ReadOnly, Unserved(TOKENS),
        "The secret for signing delegation tokens.";
    "delegation.token.max.lifetime.ms": Long[Ms] = "604800000", at_least(1), Medium, ReadOnly, Unserved(TOKENS),
        "The maximum lifetime of a delegation token.";
    "delegation.token.expiry.time.ms": Long[Ms] = "86400000", at_least(1), Medium, ReadOnly, Unserved(TOKENS),
        "How long a delegation token lasts without renewal.";
    "delegation.token.expiry.check.interval.ms": Long[Ms] = "3600000", at_least(1), Low, ReadOnly, Unserved(TOKENS),
        "How often expired delegation tokens are removed.";
    "config.providers": List = "", LIST, Low, ClusterWide, Unserved(PROVIDERS),
        "Names of Java classes that fetch values from elsewhere.";
    "security.providers": String = null, ANY, Low, ReadOnly, Unserved(NO_JAVA),
        "Java classes that provide security algorithms.";
}

family! { METRIC_KEYS "Metrics";
    "metric.reporters": List = "org.apache.kafka.common.metrics.JmxReporter", LIST, Low, ClusterWide, Unserved(JMX),
        "Java classes that report metrics.";
    "metrics.num.samples": Int = "2", at_least(1), Low, ReadOnly, Accepted(METRICS),
        "The number of samples of a metric.";
    "metrics.sample.window.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Accepted(METRICS),
        "How long one sample of a metric lasts.";
    "metrics.recording.level": String = "INFO", ANY, Low, ReadOnly, Accepted(METRICS),
        "The detail level of metrics.";
    "kafka.metrics.reporters": List = "", LIST, Low, ReadOnly, Unserved(JMX),
        "Java classes that report metrics of the older kind.";
    "kafka.metrics.polling.interval.secs": Int[Seconds] = "10", at_least(1), Low, ReadOnly, Unserved(JMX),
        "How often those classes are called.";
    "telemetry.max.bytes": Int[Bytes] = "1048576", at_least(1), Low, ReadOnly, Unserved(TELEMETRY),
        "The maximum size of a client's telemetry push.";
}

names! {
    /// What topics follow.
    TieredStorageKeys, TIERED_STORAGE "Tiered storage";

    "remote.log.storage.system.enable": Boolean = "false", ANY, Medium, ReadOnly, Unserved(TIERED),
        "Whether tiered storage is enabled.";
    "remote.log.storage.manager.class.name": String = null, NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The Java class that stores segments in tiered storage.";
    "remote.log.storage.manager.class.path": String = null, ANY, Medium, ReadOnly, Unserved(TIERED),
        "The class path of that class.";
    "remote.log.storage.manager.impl.prefix": String = "rsm.config.", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The prefix of that class's own settings.";
    "remote.log.metadata.manager.class.name": String = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The Java class that tracks segments in tiered storage.";
    "remote.log.metadata.manager.class.path": String = null, ANY, Medium, ReadOnly, Unserved(TIERED),
        "The class path of that class.";
    "remote.log.metadata.manager.impl.prefix": String = "rlmm.config.", NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The prefix of that class's own settings.";
    "remote.log.metadata.manager.listener.name": String = null, NOT_EMPTY, Medium, ReadOnly, Unserved(TIERED),
        "The listener over which that class reaches the brokers.";
    "remote.log.metadata.custom.metadata.max.bytes": Int[Bytes] = "128", at_least(0), Low, ReadOnly, Unserved(TIERED),
        "The largest metadata that a storage class may attach to a segment.";
    "remote.log.index.file.cache.total.size.bytes": Long[Bytes] = "1073741824", at_least(1), Low, ClusterWide, Unserved(TIERED),
        "Disk space for indexes of remote segments.";
    "remote.log.index.file.cache.ttl.ms": Long[Ms] = "900000", at_least(-1), Low, ReadOnly, Unserved(TIERED),
        "How long an index of a remote segment is kept unused.", internal;
    "remote.log.manager.thread.pool.size": Int = "2", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many threads follow remote segments.";
    "remote.log.manager.copier.thread.pool.size": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads copy segments away.";
    "remote.log.manager.expiration.thread.pool.size": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads delete expired remote segments.";
    "remote.log.manager.follower.thread.pool.size": Int = "2", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads keep a follower's view of remote segments.";
    "remote.log.manager.task.interval.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "How often segments to copy or delete are looked for.";
    "remote.log.manager.task.retry.backoff.ms": Long[Ms] = "500", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "The pause before a failed copy is repeated.", internal;
    "remote.log.manager.task.retry.backoff.max.ms": Long[Ms] = "30000", at_least(1), Low, ReadOnly, Unserved(TIERED),
        "The longest such pause.", internal;
    "remote.log.manager.task.retry.jitter": Double = "0.2", ratio(0.5), Low, ReadOnly, Unserved(TIERED),
        "The random share of such a pause.", internal;
    "remote.log.manager.copy.max.bytes.per.second": Long[BytesPerSecond] = "9223372036854775807", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How fast segments may be copied away.";
    "remote.log.manager.copy.quota.window.num": Int = "11", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many samples the copy quota looks back on.";
    "remote.log.manager.copy.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How long one sample of the copy quota lasts.";
    "remote.log.manager.fetch.max.bytes.per.second": Long[BytesPerSecond] = "9223372036854775807", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How fast remote segments may be read.";
    "remote.log.manager.fetch.quota.window.num": Int = "11", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many samples the remote read quota looks back on.";
    "remote.log.manager.fetch.quota.window.size.seconds": Int[Seconds] = "1", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How long one sample of the remote read quota lasts.";
    "remote.log.reader.threads": Int = "10", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How many threads read remote segments.";
    "remote.log.reader.max.pending.tasks": Int = "100", at_least(1), Medium, ReadOnly, Unserved(TIERED),
        "How many remote reads may wait.";
    "remote.fetch.max.wait.ms": Int[Ms] = "500", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How long a Fetch waits for remote data.";
    "remote.list.offsets.request.timeout.ms": Long[Ms] = "30000", at_least(1), Medium, ClusterWide, Unserved(TIERED),
        "How long ListOffsets waits for remote data.";
    "log.local.retention.ms": Long[Ms] = "-2", at_least(-2), Medium, ClusterWide, Unserved(TIERED) => local_retention_ms,
        "Age at which segments already stored elsewhere are deleted here; -2 follows `log.retention.ms`.";
    "log.local.retention.bytes": Long[Bytes] = "-2", at_least(-2), Medium, ClusterWide, Unserved(TIERED) => local_retention_bytes,
        "Size above which segments already stored elsewhere are deleted here; -2 follows `log.retention.bytes`.";
}

family! { TLS_KEYS "TLS";
    "ssl.keystore.type": String = "JKS", ANY, Medium, PerBroker, Opening,
        "Format of the key store.";
    "ssl.keystore.location": String = null, ANY, Medium, PerBroker, Opening,
        "File with this broker's certificate and key.";
    "ssl.keystore.password": Password = null, ANY, Medium, PerBroker, Opening,
        "Password of the key store.";
    "ssl.keystore.key": Password = null, ANY, Medium, PerBroker, Opening,
        "This broker's private key, in PEM form.";
    "ssl.keystore.certificate.chain": Password = null, ANY, Medium, PerBroker, Opening,
        "This broker's certificates, in PEM form.";
    "ssl.key.password": Password = null, ANY, Medium, PerBroker, Opening,
        "Password of the private key.";
    "ssl.truststore.type": String = "JKS", ANY, Medium, PerBroker, Opening,
        "Format of the trust store.";
    "ssl.truststore.location": String = null, ANY, Medium, PerBroker, Opening,
        "File with the certificates that are trusted.";
    "ssl.truststore.password": Password = null, ANY, Medium, PerBroker, Opening,
        "Password of the trust store.";
    "ssl.truststore.certificates": Password = null, ANY, Medium, PerBroker, Opening,
        "The certificates that are trusted, in PEM form.";
    "ssl.client.auth": String = "none", one_of(&["required", "requested", "none"]), Medium, PerBroker, Unserved(TLS),
        "Whether clients must, may or need not show a certificate.";
    "ssl.protocol": String = "TLSv1.3", ANY, Medium, PerBroker, Opening,
        "The version of TLS that connections are made with.";
    "ssl.enabled.protocols": List = "TLSv1.2,TLSv1.3", LIST, Medium, PerBroker, Opening,
        "The versions of TLS that are accepted.";
    "ssl.cipher.suites": List = "", LIST, Medium, PerBroker, Opening,
        "The cipher suites that are accepted; empty accepts the library's own.";
    "ssl.provider": String = null, ANY, Medium, PerBroker, Unserved(TLS),
        "The Java security provider for TLS.";
    "ssl.keymanager.algorithm": String = "SunX509", ANY, Medium, PerBroker, Unserved(TLS),
        "Java's algorithm for key managers.";
    "ssl.trustmanager.algorithm": String = "PKIX", ANY, Medium, PerBroker, Unserved(TLS),
        "Java's algorithm for trust managers.";
    "ssl.endpoint.identification.algorithm": String = "https", ANY, Low, PerBroker, Opening,
        "How the name in a server's certificate is checked.";
    "ssl.secure.random.implementation": String = null, ANY, Low, PerBroker, Unserved(TLS),
        "Java's source of randomness for TLS.";
    "ssl.engine.factory.class": Class = null, ANY, Low, PerBroker, Unserved(TLS),
        "The Java class that builds TLS engines.";
    "ssl.principal.mapping.rules": String = "DEFAULT", ANY, Low, ReadOnly, Unserved(TLS),
        "Rules that turn the name in a client's certificate into a user name.";
    "ssl.allow.dn.changes": Boolean = "false", ANY, Low, ReadOnly, Unserved(TLS),
        "Whether a new key store may carry another distinguished name.";
    "ssl.allow.san.changes": Boolean = "false", ANY, Low, ReadOnly, Unserved(TLS),
        "Whether a new key store may carry other alternative names.";
}

names! {
    /// Settings that connections to other nodes take as text.
    SaslKeys, SASL_KEYS "SASL";

    "sasl.enabled.mechanisms": List = "GSSAPI", LIST, Medium, PerBroker, Unserved(SASL),
        "The SASL mechanisms offered to clients.";
    "sasl.mechanism.inter.broker.protocol": String = "GSSAPI", ANY, Medium, PerBroker, Opening => mechanism_inter_broker,
        "The SASL mechanism between brokers.";
    "sasl.mechanism.controller.protocol": String = "GSSAPI", ANY, High, ReadOnly, Opening => mechanism_controller,
        "The SASL mechanism towards controllers.";
    "sasl.jaas.config": Password = null, ANY, Medium, PerBroker, Opening => jaas_config,
        "Login settings in Java's JAAS form.";
    "sasl.login.class": Class = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that logs in.";
    "sasl.login.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that answers a login's questions.";
    "sasl.client.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that answers a SASL client's questions.";
    "sasl.server.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that answers a SASL server's questions.";
    "sasl.server.max.receive.size": Int[Bytes] = "524288", ANY, Medium, ReadOnly, Unserved(SASL),
        "The largest message accepted before a client is authenticated.";
    "connections.max.reauth.ms": Long[Ms] = "0", ANY, Medium, ReadOnly, Unserved(SASL),
        "After how long a client must authenticate again; 0 never asks.";
    "sasl.kerberos.service.name": String = null, ANY, Medium, PerBroker, Unserved(SASL),
        "The Kerberos principal that brokers run as.";
    "sasl.kerberos.kinit.cmd": String = "/usr/bin/kinit", ANY, Medium, PerBroker, Unserved(SASL),
        "Path of Kerberos' kinit.";
    "sasl.kerberos.ticket.renew.window.factor": Double = "0.8", ANY, Medium, PerBroker, Unserved(SASL),
        "At what share of its life a Kerberos ticket is renewed.";
    "sasl.kerberos.ticket.renew.jitter": Double = "0.05", ANY, Medium, PerBroker, Unserved(SASL),
        "The random share of that time.";
    "sasl.kerberos.min.time.before.relogin": Long = "60000", ANY, Medium, PerBroker, Unserved(SASL),
        "The shortest time between two Kerberos logins.";
    "sasl.kerberos.principal.to.local.rules": List = "DEFAULT", LIST, Medium, PerBroker, Unserved(SASL),
        "Rules that turn Kerberos principals into user names.";
    "sasl.login.refresh.window.factor": Double = "0.8", ANY, Medium, PerBroker, Unserved(SASL),
        "At what share of its life a credential is refreshed.";
    "sasl.login.refresh.window.jitter": Double = "0.05", ANY, Medium, PerBroker, Unserved(SASL),
        "The random share of that time.";
    "sasl.login.refresh.min.period.seconds": Short[Seconds] = "60", ANY, Medium, PerBroker, Unserved(SASL),
        "The shortest time between two refreshes.";
    "sasl.login.refresh.buffer.seconds": Short[Seconds] = "300", ANY, Medium, PerBroker, Unserved(SASL),
        "How long before its end a credential is refreshed at the latest.";
    "sasl.login.connect.timeout.ms": Int[Ms] = null, ANY, Low, ReadOnly, Unserved(SASL),
        "How long connecting to the identity provider may take.";
    "sasl.login.read.timeout.ms": Int[Ms] = null, ANY, Low, ReadOnly, Unserved(SASL),
        "How long reading from the identity provider may take.";
    "sasl.login.retry.backoff.ms": Long[Ms] = "100", ANY, Low, ReadOnly, Unserved(SASL),
        "The pause before a failed login is repeated.";
    "sasl.login.retry.backoff.max.ms": Long[Ms] = "10000", ANY, Low, ReadOnly, Unserved(SASL),
        "The longest such pause.";
    "sasl.oauthbearer.scope": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The scope asked for with a token.";
    "sasl.oauthbearer.scope.claim.name": String = "scope", ANY, Low, ReadOnly, Unserved(SASL),
        "The claim that holds a token's scope.";
    "sasl.oauthbearer.sub.claim.name": String = "sub", ANY, Low, ReadOnly, Unserved(SASL),
        "The claim that holds a token's subject.";
    "sasl.oauthbearer.token.endpoint.url": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "Where tokens are issued.";
    "sasl.oauthbearer.client.credentials.client.id": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The client id shown to the identity provider.";
    "sasl.oauthbearer.client.credentials.client.secret": Password = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The secret shown to the identity provider.";
    "sasl.oauthbearer.assertion.algorithm": String = "RS256", one_of_any_case(&["ES256", "RS256"]), Medium, ReadOnly, Unserved(SASL),
        "The algorithm that assertions are signed with.";
    "sasl.oauthbearer.assertion.claim.aud": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The audience claimed in an assertion.";
    "sasl.oauthbearer.assertion.claim.exp.seconds": Int[Seconds] = "300", between(0, 86400), Low, ReadOnly, Unserved(SASL),
        "How long an assertion is valid.";
    "sasl.oauthbearer.assertion.claim.iss": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The issuer claimed in an assertion.";
    "sasl.oauthbearer.assertion.claim.jti.include": Boolean = "false", ANY, Medium, ReadOnly, Unserved(SASL),
        "Whether an assertion has its own id.";
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Int[Seconds] = "60", between(0, 3600), Low, ReadOnly, Unserved(SASL),
        "How far back an assertion is already valid.";
    "sasl.oauthbearer.assertion.claim.sub": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The subject claimed in an assertion.";
    "sasl.oauthbearer.assertion.file": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "A file with a ready assertion.";
    "sasl.oauthbearer.assertion.private.key.file": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The key that assertions are signed with.";
    "sasl.oauthbearer.assertion.private.key.passphrase": Password = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "The passphrase of that key.";
    "sasl.oauthbearer.assertion.template.file": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "A template for the claims of an assertion.";
    "sasl.oauthbearer.jwt.retriever.class": Class = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that fetches tokens.";
    "sasl.oauthbearer.jwt.validator.class": Class = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", ANY, Medium, ReadOnly, Unserved(SASL),
        "The Java class that checks tokens.";
    "sasl.oauthbearer.jwks.endpoint.url": String = null, ANY, Medium, ReadOnly, Unserved(SASL),
        "Where the provider's keys are found.";
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Long[Ms] = "3600000", ANY, Low, ReadOnly, Unserved(SASL),
        "How often those keys are read again.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Long[Ms] = "100", ANY, Low, ReadOnly, Unserved(SASL),
        "The pause before reading the keys is repeated.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Long[Ms] = "10000", ANY, Low, ReadOnly, Unserved(SASL),
        "The longest such pause.";
    "sasl.oauthbearer.clock.skew.seconds": Int[Seconds] = "30", ANY, Low, ReadOnly, Unserved(SASL),
        "How far the clocks of provider and broker may differ.";
    "sasl.oauthbearer.expected.audience": List = "", LIST, High, ReadOnly, Unserved(SASL),
        "The audiences that a token must name one of.";
    "sasl.oauthbearer.expected.issuer": String = null, ANY, High, ReadOnly, Unserved(SASL),
        "The issuer that a token must name.";
}
