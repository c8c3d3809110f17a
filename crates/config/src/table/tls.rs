//! TLS keys of listeners and of connections to other nodes.
//!
//! An entry per key; `table::declare` documents the format.
//! Facts are compared with Kafka in `table::tests`.

use super::declare::names;
use super::reason::{NO_JAVA, TLS};
use crate::check::{ANY, LIST, one_of};
use crate::key::Support::{Accepted, Listener, Unserved};

names! {
    /// TLS settings that are read by name; all other TLS settings are passed to listeners and connections as
    /// text.
    TlsKeys, TLS_KEYS "TLS";

    "ssl.keystore.type": String = "JKS", ANY, Medium, PerBroker, Listener,
        "Format of the key store. It is detected from the file: PEM, PKCS12 and JKS are read.";
    "ssl.keystore.location": String = null, ANY, Medium, PerBroker, Listener,
        "File with this broker's certificate and key. When it changes, new connections use the new one.";
    "ssl.keystore.password": Password = null, ANY, Medium, PerBroker, Listener,
        "Password of the key store.";
    "ssl.keystore.key": Password = null, ANY, Medium, PerBroker, Listener,
        "This broker's private key, in PEM form.";
    "ssl.keystore.certificate.chain": Password = null, ANY, Medium, PerBroker, Listener,
        "This broker's certificates, in PEM form.";
    "ssl.key.password": Password = null, ANY, Medium, PerBroker, Listener,
        "Password of the private key.";
    "ssl.truststore.type": String = "JKS", ANY, Medium, PerBroker, Listener,
        "Format of the trust store. It is detected from the file: PEM, PKCS12 and JKS are read.";
    "ssl.truststore.location": String = null, ANY, Medium, PerBroker, Listener,
        "File with the certificates that are trusted. When it changes, it counts for new connections.";
    "ssl.truststore.password": Password = null, ANY, Medium, PerBroker, Listener,
        "Password of the trust store.";
    "ssl.truststore.certificates": Password = null, ANY, Medium, PerBroker, Listener,
        "The certificates that are trusted, in PEM form.";
    "ssl.client.auth": String = "none", one_of(&["required", "requested", "none"]), Medium, PerBroker, Listener => client_auth,
        "Whether clients must, may or need not show a certificate.";
    "ssl.protocol": String = "TLSv1.3", ANY, Medium, PerBroker, Listener,
        "The version of TLS that connections are made with.";
    "ssl.enabled.protocols": List = "TLSv1.2,TLSv1.3", LIST, Medium, PerBroker, Listener,
        "The versions of TLS that are accepted.";
    "ssl.cipher.suites": List = "", LIST, Medium, PerBroker, Listener,
        "The cipher suites that are accepted; empty accepts the library's own.";
    "ssl.provider": String = null, ANY, Medium, PerBroker, Accepted(TLS),
        "The Java security provider for TLS.";
    "ssl.keymanager.algorithm": String = "SunX509", ANY, Medium, PerBroker, Accepted(TLS),
        "Java's algorithm for key managers.";
    "ssl.trustmanager.algorithm": String = "PKIX", ANY, Medium, PerBroker, Accepted(TLS),
        "Java's algorithm for trust managers.";
    "ssl.endpoint.identification.algorithm": String = "https", ANY, Low, PerBroker, Listener,
        "How the name in a server's certificate is checked.";
    "ssl.secure.random.implementation": String = null, ANY, Low, PerBroker, Accepted(TLS),
        "Java's source of randomness for TLS.";
    "ssl.engine.factory.class": Class = null, ANY, Low, PerBroker, Unserved(NO_JAVA),
        "The Java class that builds TLS engines.";
    "ssl.principal.mapping.rules": String = "DEFAULT", ANY, Low, ReadOnly, Listener => principal_mapping,
        "Rules that turn the name in a client's certificate into a user name: `DEFAULT`, or `RULE:pattern/replacement/` with `L` or `U`. Look-around and back-references in patterns are refused.";
    "ssl.allow.dn.changes": Boolean = "false", ANY, Low, ReadOnly, Listener => allow_dn_changes,
        "Whether a new key store may carry another distinguished name.";
    "ssl.allow.san.changes": Boolean = "false", ANY, Low, ReadOnly, Listener => allow_san_changes,
        "Whether a new key store may carry other alternative names.";
}
