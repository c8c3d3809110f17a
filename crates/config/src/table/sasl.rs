//! Keys of SASL: on this broker's listeners, and on its connections to other nodes.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use std::time::Duration;

use super::declare::names;
use super::reason::{KERBEROS, NO_JAVA, TOKEN_REQUESTS};
use crate::check::{ANY, LIST, between, one_of_any_case};
use crate::key::Support::{Served, Startup, Unserved};

names! {
    /// Read per listener and mechanism (`sasl.rs`), or as text for connections to other nodes
    /// (`outgoing.rs`).
    SaslKeys, SASL_KEYS "SASL";

    "sasl.enabled.mechanisms": List = "GSSAPI", LIST, Medium, PerBroker, Startup => enabled_mechanisms: Vec<String>,
        "The SASL mechanisms of a listener: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`. `GSSAPI` is not supported. Users of SCRAM are in the metadata (`kafka-configs --entity-type users`).";
    "sasl.mechanism.inter.broker.protocol": String = "GSSAPI", ANY, Medium, PerBroker, Startup => mechanism_inter_broker,
        "The SASL mechanism between brokers.";
    "sasl.mechanism.controller.protocol": String = "GSSAPI", ANY, High, ReadOnly, Startup => mechanism_controller,
        "The SASL mechanism towards controllers.";
    "sasl.jaas.config": Password = null, ANY, Medium, PerBroker, Startup => jaas_config,
        "Login settings in Java's JAAS form: the users of `PLAIN` (`user_NAME=\"PASSWORD\"`), and the name and password of this node at others. For one listener and mechanism: `listener.name.NAME.MECHANISM.sasl.jaas.config`, in small letters.";
    "sasl.login.class": Class = null, ANY, Medium, ReadOnly, Unserved(NO_JAVA),
        "The Java class that logs in.";
    "sasl.login.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Unserved(NO_JAVA),
        "The Java class that answers a login's questions.";
    "sasl.client.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Unserved(NO_JAVA),
        "The Java class that answers a SASL client's questions.";
    "sasl.server.callback.handler.class": Class = null, ANY, Medium, ReadOnly, Startup => server_callback_handler: Option<String>,
        "The Java class that answers a SASL server's questions. Only Kafka's `OAuthBearerValidatorCallbackHandler` for `OAUTHBEARER` is known, which is what it does anyway. `OAuthBearerUnsecuredValidatorCallbackHandler`, Kafka's default, is refused: see `docs/security.md`, \"OAUTHBEARER in a test\".";
    "sasl.server.max.receive.size": Int[Bytes] = "524288", ANY, Medium, ReadOnly, Served => receive_max_bytes: usize = positive,
        "The largest frame accepted before a client is authenticated.";
    "connections.max.reauth.ms": Long[Ms] = "0", ANY, Medium, ReadOnly, Served => max_reauth_ms: i64,
        "After how long a client must authenticate again; 0 never asks. It applies to clients of SASL, which learn it when they authenticate; a connection that is used later is closed.";
    "sasl.kerberos.service.name": String = null, ANY, Medium, PerBroker, Unserved(KERBEROS),
        "The Kerberos principal that brokers run as.";
    "sasl.kerberos.kinit.cmd": String = "/usr/bin/kinit", ANY, Medium, PerBroker, Unserved(KERBEROS),
        "Path of Kerberos' kinit.";
    "sasl.kerberos.ticket.renew.window.factor": Double = "0.8", ANY, Medium, PerBroker, Unserved(KERBEROS),
        "At what share of its life a Kerberos ticket is renewed.";
    "sasl.kerberos.ticket.renew.jitter": Double = "0.05", ANY, Medium, PerBroker, Unserved(KERBEROS),
        "The random share of that time.";
    "sasl.kerberos.min.time.before.relogin": Long = "60000", ANY, Medium, PerBroker, Unserved(KERBEROS),
        "The shortest time between two Kerberos logins.";
    "sasl.kerberos.principal.to.local.rules": List = "DEFAULT", LIST, Medium, PerBroker, Unserved(KERBEROS),
        "Rules that turn Kerberos principals into user names.";
    "sasl.login.refresh.window.factor": Double = "0.8", ANY, Medium, PerBroker, Unserved(TOKEN_REQUESTS),
        "At what share of its life a credential is refreshed.";
    "sasl.login.refresh.window.jitter": Double = "0.05", ANY, Medium, PerBroker, Unserved(TOKEN_REQUESTS),
        "The random share of that time.";
    "sasl.login.refresh.min.period.seconds": Short[Seconds] = "60", ANY, Medium, PerBroker, Unserved(TOKEN_REQUESTS),
        "The shortest time between two refreshes.";
    "sasl.login.refresh.buffer.seconds": Short[Seconds] = "300", ANY, Medium, PerBroker, Unserved(TOKEN_REQUESTS),
        "How long before its end a credential is refreshed at the latest.";
    "sasl.login.connect.timeout.ms": Int[Ms] = null, ANY, Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "How long connecting to the identity provider may take.";
    "sasl.login.read.timeout.ms": Int[Ms] = null, ANY, Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "How long reading from the identity provider may take.";
    "sasl.login.retry.backoff.ms": Long[Ms] = "100", ANY, Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The pause before a failed login is repeated.";
    "sasl.login.retry.backoff.max.ms": Long[Ms] = "10000", ANY, Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The longest such pause.";
    "sasl.oauthbearer.scope": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The scope asked for with a token.";
    "sasl.oauthbearer.scope.claim.name": String = "scope", ANY, Low, ReadOnly, Served => scope_claim: String,
        "The claim that holds a token's scope: a text or a list of texts.";
    "sasl.oauthbearer.sub.claim.name": String = "sub", ANY, Low, ReadOnly, Served => subject_claim: String,
        "The claim that holds a token's subject, which becomes the name of the principal.";
    "sasl.oauthbearer.token.endpoint.url": String = null, ANY, Medium, ReadOnly, Served => token_url,
        "The token of this node at others: a `file:` URL, read at each authentication. Tokens are not requested from an identity provider.";
    "sasl.oauthbearer.client.credentials.client.id": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The client id shown to the identity provider.";
    "sasl.oauthbearer.client.credentials.client.secret": Password = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The secret shown to the identity provider.";
    "sasl.oauthbearer.assertion.algorithm": String = "RS256", one_of_any_case(&["ES256", "RS256"]), Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The algorithm that assertions are signed with.";
    "sasl.oauthbearer.assertion.claim.aud": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The audience claimed in an assertion.";
    "sasl.oauthbearer.assertion.claim.exp.seconds": Int[Seconds] = "300", between(0, 86400), Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "How long an assertion is valid.";
    "sasl.oauthbearer.assertion.claim.iss": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The issuer claimed in an assertion.";
    "sasl.oauthbearer.assertion.claim.jti.include": Boolean = "false", ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "Whether an assertion has its own id.";
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Int[Seconds] = "60", between(0, 3600), Low, ReadOnly, Unserved(TOKEN_REQUESTS),
        "How far back an assertion is already valid.";
    "sasl.oauthbearer.assertion.claim.sub": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The subject claimed in an assertion.";
    "sasl.oauthbearer.assertion.file": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "A file with a ready assertion.";
    "sasl.oauthbearer.assertion.private.key.file": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The key that assertions are signed with.";
    "sasl.oauthbearer.assertion.private.key.passphrase": Password = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "The passphrase of that key.";
    "sasl.oauthbearer.assertion.template.file": String = null, ANY, Medium, ReadOnly, Unserved(TOKEN_REQUESTS),
        "A template for the claims of an assertion.";
    "sasl.oauthbearer.jwt.retriever.class": Class = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", ANY, Medium, ReadOnly, Unserved(NO_JAVA),
        "The Java class that fetches tokens.";
    "sasl.oauthbearer.jwt.validator.class": Class = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", ANY, Medium, ReadOnly, Unserved(NO_JAVA),
        "The Java class that checks tokens.";
    "sasl.oauthbearer.jwks.endpoint.url": String = null, ANY, Medium, ReadOnly, Served => keys_url: Option<String>,
        "Where the provider's keys are found, as a JWKS document: `https:`, `http:` or `file:`. `OAUTHBEARER` needs it: tokens without a signature are refused, which Kafka takes by default. Kafka's list of allowed URLs is not needed: the URL is in the broker's file only.";
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Long[Ms] = "3600000", ANY, Low, ReadOnly, Served => keys_refresh: Duration,
        "How often those keys are read again. A token that names an unknown key has them read at once.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Long[Ms] = "100", ANY, Low, ReadOnly, Served => keys_retry_backoff: Duration,
        "The pause before reading the keys is repeated.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Long[Ms] = "10000", ANY, Low, ReadOnly, Served => keys_retry_backoff_max: Duration,
        "The longest such pause.";
    "sasl.oauthbearer.clock.skew.seconds": Int[Seconds] = "30", ANY, Low, ReadOnly, Served => clock_skew_seconds: i64,
        "How far the clocks of provider and broker may differ.";
    "sasl.oauthbearer.expected.audience": List = "", LIST, High, ReadOnly, Served => expected_audience: Vec<String>,
        "The audiences that a token must name one of. Without any, tokens that name an audience are refused, as in Kafka.";
    "sasl.oauthbearer.expected.issuer": String = null, ANY, High, ReadOnly, Served => expected_issuer: Option<String>,
        "The issuer that a token must name; none accepts every issuer whose keys are known.";
}

/// Raises a limit to at least 64 bytes, the size of a frame with only a header.
fn positive(bytes: usize) -> usize {
    bytes.max(64)
}
