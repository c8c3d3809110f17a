//! Listeners: the addresses at which the broker accepts connections, and the addresses that it advertises.
//!
//! Pure: `net` resolves names and opens sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::check::is_host_character;
use super::error::InvalidValue;
use super::node::Roles;
use super::table::{ControllerSettings, ListenerSettings};

/// Protection of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    Plaintext,
    /// Encrypted by TLS; a client certificate may authenticate.
    Ssl,
    /// Authenticated by SASL.
    SaslPlaintext,
    /// Authenticated by SASL, over TLS.
    SaslSsl,
}

impl SecurityProtocol {
    pub(crate) const ALL: [Self; 4] = [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl];

    /// The name in Kafka's properties.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// Kafka's number in broker registrations.
    pub const fn code(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }

    /// True if connections are encrypted.
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    /// True if the peer authenticates by SASL.
    pub const fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }

    /// The protocol with this number in a broker registration.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.code() == code)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

/// A name, a protocol, a host and a port: an address to listen on or to advertise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Name in upper case.
    pub name: String,
    pub protocol: SecurityProtocol,
    /// Host; `None` listens on all interfaces and advertises this machine's name.
    pub host: Option<String>,
    /// Port; 0 for a port chosen by the system.
    pub port: u16,
}

impl Listener {
    /// True if other machines may reach the listener.
    pub fn is_reachable(&self) -> bool {
        let is_loopback = self.address().is_some_and(|address| address.is_loopback());
        self.host.as_deref() != Some("localhost") && !is_loopback
    }

    fn address(&self) -> Option<IpAddr> {
        self.host.as_deref()?.parse().ok()
    }

    /// Parses `NAME://host:port`.
    fn parse(key: &str, entry: &str, protocols: &Protocols) -> Result<Self, InvalidValue> {
        let fails = |reason: &str| InvalidValue::new(key, entry, reason);
        let malformed = || fails("Expected NAME://host:port");
        let (name, address) = entry.split_once("://").ok_or_else(malformed)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if name.trim().is_empty() || !host.chars().all(is_host_character) {
            return Err(malformed());
        }
        let port = port.parse().map_err(|_| fails("Expected a port from 0 to 65535 after the last colon"))?;
        let name = name.trim().to_uppercase();
        let protocol = protocols.of(&name).ok_or_else(|| {
            fails(&format!(
                "No security protocol defined for listener {name} in listener.security.protocol.map"
            ))
        })?;
        Ok(Self { name, protocol, host: Some(host.to_owned()).filter(|host| !host.is_empty()), port })
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or_default();
        match host.contains(':') {
            true => write!(f, "{}://[{host}]:{}", self.name, self.port),
            false => write!(f, "{}://{host}:{}", self.name, self.port),
        }
    }
}

/// `listener.security.protocol.map`, with Kafka's additions for controllers.
#[derive(Debug)]
pub(super) struct Protocols {
    by_name: BTreeMap<String, SecurityProtocol>,
}

impl Protocols {
    fn of(&self, name: &str) -> Option<SecurityProtocol> {
        self.by_name.get(name).copied()
    }
}

/// The settings from which listeners are derived.
#[derive(Debug)]
pub(super) struct ListenerTexts<'a> {
    pub listeners: &'a [String],
    pub advertised: Option<&'a [String]>,
    pub protocol_map: &'a str,
    /// True if the map was set; otherwise it is Kafka's default.
    pub protocol_map_given: bool,
    pub controller_names: &'a [String],
    pub inter_broker_name: Option<&'a str>,
    pub inter_broker_protocol: &'a str,
    /// True if the protocol was set; otherwise it is Kafka's default.
    pub inter_broker_protocol_given: bool,
    pub roles: Roles,
}

/// Listeners and advertised addresses of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    /// Listeners for clients and other brokers.
    pub broker: Vec<Listener>,
    /// Advertised addresses, by the same names. A host of `None` means this machine's name, and a port of 0
    /// the port that the system chose.
    pub advertised: Vec<Listener>,
    /// Listeners of the controller in this process for other nodes. Empty without a controller in this
    /// process, or if only this process uses it.
    pub controller: Vec<Listener>,
    /// Advertised addresses of the controller listeners, as in `advertised`.
    pub advertised_controller: Vec<Listener>,
    /// Names of controller listeners; a broker connects to the first.
    pub controller_names: Vec<String>,
    /// Protocol of the first controller listener.
    pub controller_protocol: SecurityProtocol,
    /// Name of the listener for connections between brokers.
    pub inter_broker: String,
    /// True if `inter.broker.listener.name` was set. A node with only the controller role needs no such name.
    pub inter_broker_is_named: bool,
}

impl Listeners {
    pub(super) fn resolve(texts: &ListenerTexts<'_>) -> Result<Self, InvalidValue> {
        let protocols = protocols(texts)?;
        let all = parse_all(ListenerSettings::listeners.name(), texts.listeners, &protocols)?;
        check_ports(&all, texts.listeners)?;
        let is_controller = |listener: &Listener| texts.controller_names.contains(&listener.name);
        let (controller, broker): (Vec<_>, Vec<_>) = all.into_iter().partition(is_controller);
        let given = texts
            .advertised
            .map(|entries| parse_all(ListenerSettings::advertised.name(), entries, &protocols));
        let (advertised_controller, advertised) = match given.transpose()? {
            Some(given) => {
                let (named, advertised): (Vec<_>, Vec<_>) = given.into_iter().partition(is_controller);
                let told = |own: &Listener| {
                    let named = named.iter().find(|named| named.name == own.name);
                    named.map_or_else(|| advertised_by_default(own), Listener::clone)
                };
                (controller.iter().map(told).collect(), advertised)
            }
            None => (controller.iter().map(advertised_by_default).collect(), broker.clone()),
        };
        let found = Self {
            inter_broker: inter_broker(texts)?,
            inter_broker_is_named: texts.inter_broker_name.is_some(),
            controller_names: texts.controller_names.to_vec(),
            controller_protocol: texts
                .controller_names
                .first()
                .and_then(|name| protocols.of(name))
                .unwrap_or(SecurityProtocol::Plaintext),
            broker,
            advertised,
            controller,
            advertised_controller,
        };
        found.check(texts)?;
        Ok(found)
    }

    /// The advertised listeners with this machine's name for missing hosts, and bound ports for port 0.
    pub fn advertised_as(&self, host_name: &str, bound_port: impl Fn(&str) -> Option<u16>) -> Vec<Listener> {
        self.advertised.iter().map(|listener| filled(listener, host_name, &bound_port)).collect()
    }

    /// The same for the controller listeners.
    pub fn controller_advertised_as(
        &self,
        host_name: &str,
        bound_port: impl Fn(&str) -> Option<u16>,
    ) -> Vec<Listener> {
        self.advertised_controller.iter().map(|listener| filled(listener, host_name, &bound_port)).collect()
    }

    fn check(&self, texts: &ListenerTexts<'_>) -> Result<(), InvalidValue> {
        let listeners = texts.listeners.join(",");
        let Roles { broker, controller } = texts.roles;
        if broker && self.broker.is_empty() {
            let reason = "At least one listener must not appear in controller.listener.names";
            return Err(InvalidValue::new(ListenerSettings::listeners.name(), listeners, reason));
        }
        if !broker && (self.controller.is_empty() || !self.broker.is_empty()) {
            let names = texts.controller_names.join(", ");
            let reason = format!(
                "With process.roles=controller, every listener must be one of controller.listener.names \
                 ({names}), as in CONTROLLER://localhost:9093"
            );
            return Err(InvalidValue::new(ListenerSettings::listeners.name(), listeners, reason));
        }
        if !controller && !self.controller.is_empty() {
            let reason = "Must not name a listener of this broker when process.roles=broker";
            return Err(InvalidValue::new(
                ControllerSettings::listener_names.name(),
                texts.controller_names.join(","),
                reason,
            ));
        }
        let advertised = texts.advertised.map_or_else(|| listeners.clone(), |entries| entries.join(","));
        let fails =
            |reason: String| Err(InvalidValue::new(ListenerSettings::advertised.name(), &advertised, reason));
        for listener in self.advertised.iter().chain(&self.advertised_controller) {
            if listener.address().is_some_and(|address| address.is_unspecified()) {
                let host = listener.host.as_deref().unwrap_or_default();
                return fails(format!(
                    "Cannot use the nonroutable meta-address {host}, use a routable address; \
                     leave the host of listeners empty to listen on every interface"
                ));
            }
            let own = self.broker.iter().chain(&self.controller);
            if !own.into_iter().any(|known| known.name == listener.name) {
                return fails(format!("Listener {} must be defined in listeners", listener.name));
            }
        }
        if broker && !self.advertised.iter().any(|listener| listener.name == self.inter_broker) {
            let names: Vec<_> = self.advertised.iter().map(|listener| listener.name.as_str()).collect();
            let reason =
                format!("Must be a listener name defined in advertised.listeners: {}", names.join(","));
            return Err(InvalidValue::new(
                ListenerSettings::inter_broker_name.name(),
                &self.inter_broker,
                reason,
            ));
        }
        Ok(())
    }
}

/// The advertised form of a controller listener that `advertised.listeners` does not name. A listener on all
/// interfaces is advertised by this machine's name, as in Kafka
/// (`KafkaConfig.effectiveAdvertisedControllerListeners`).
fn advertised_by_default(own: &Listener) -> Listener {
    let is_everywhere = own.address().is_some_and(|address| address.is_unspecified());
    Listener { host: if is_everywhere { None } else { own.host.clone() }, ..own.clone() }
}

/// The advertised form of a listener after its port is bound.
fn filled(listener: &Listener, host_name: &str, bound_port: impl Fn(&str) -> Option<u16>) -> Listener {
    let mut filled = listener.clone();
    filled.host.get_or_insert_with(|| host_name.to_owned());
    if filled.port == 0 {
        filled.port = bound_port(&filled.name).unwrap_or(0);
    }
    filled
}

fn protocols(texts: &ListenerTexts<'_>) -> Result<Protocols, InvalidValue> {
    const KEY: &str = ListenerSettings::protocol_map.name();
    let mut by_name = BTreeMap::new();
    for pair in texts.protocol_map.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, protocol) =
            pair.rsplit_once(':').ok_or_else(|| InvalidValue::new(KEY, pair, "Expected NAME:PROTOCOL"))?;
        let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
            let names = SecurityProtocol::ALL.map(SecurityProtocol::name).join(", ");
            InvalidValue::new(KEY, pair, format!("The protocol must be one of: {names}"))
        })?;
        by_name.insert(name.trim().to_uppercase(), protocol);
    }
    let secured = |name: &str| {
        SecurityProtocol::from_name(name).is_some_and(|protocol| protocol != SecurityProtocol::Plaintext)
    };
    let listener_names =
        texts.listeners.iter().filter_map(|entry| entry.split_once(':')).map(|(name, _)| name);
    let any_secured = texts.controller_names.iter().map(String::as_str).chain(listener_names).any(secured);
    if !texts.protocol_map_given && !any_secured {
        for name in texts.controller_names {
            by_name.entry(name.clone()).or_insert(SecurityProtocol::Plaintext);
        }
    }
    Ok(Protocols { by_name })
}

fn parse_all(key: &str, entries: &[String], protocols: &Protocols) -> Result<Vec<Listener>, InvalidValue> {
    let mut names = BTreeSet::new();
    let mut listeners = Vec::new();
    for entry in entries {
        let listener = Listener::parse(key, entry, protocols)?;
        if !names.insert(listener.name.clone()) {
            return Err(InvalidValue::new(
                key,
                entries.join(","),
                "Each listener must have a different name",
            ));
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Checks that two listeners share a port only if one has an IPv4 address and the other an IPv6 address.
fn check_ports(listeners: &[Listener], texts: &[String]) -> Result<(), InvalidValue> {
    for (at, one) in listeners.iter().enumerate().filter(|(_, one)| one.port != 0) {
        let mut sharing = listeners[..at].iter().filter(|other| other.port == one.port);
        let Some(other) = sharing.next() else { continue };
        let families = (one.address().map(|a| a.is_ipv4()), other.address().map(|a| a.is_ipv4()));
        if sharing.next().is_some() || !matches!(families, (Some(a), Some(b)) if a != b) {
            let reason = format!(
                "Port {} is used twice: each listener must have a different port, \
                 unless one has an IPv4 and the other an IPv6 address",
                one.port
            );
            return Err(InvalidValue::new(ListenerSettings::listeners.name(), texts.join(","), reason));
        }
    }
    Ok(())
}

fn inter_broker(texts: &ListenerTexts<'_>) -> Result<String, InvalidValue> {
    let protocol = texts.inter_broker_protocol;
    match texts.inter_broker_name {
        Some(name) if texts.inter_broker_protocol_given => Err(InvalidValue::new(
            ListenerSettings::inter_broker_protocol.name(),
            protocol,
            format!("Only one of this and inter.broker.listener.name ({name}) should be set"),
        )),
        Some(name) => Ok(name.to_uppercase()),
        None => Ok(protocol.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    /// Resolves `listeners`, with every other setting at its default.
    fn resolve<'a>(
        listeners: &str,
        change: impl FnOnce(&mut ListenerTexts<'a>),
    ) -> Result<Listeners, String> {
        let listeners = entries(listeners).leak();
        let controller_names = vec!["CONTROLLER".to_owned()].leak();
        let mut texts = ListenerTexts {
            listeners,
            advertised: None,
            protocol_map: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            protocol_map_given: false,
            controller_names,
            inter_broker_name: None,
            inter_broker_protocol: "PLAINTEXT",
            inter_broker_protocol_given: false,
            roles: Roles { broker: true, controller: true },
        };
        change(&mut texts);
        Listeners::resolve(&texts).map_err(|error| error.to_string())
    }

    fn hosts(listeners: &[Listener]) -> Vec<String> {
        listeners.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_hosts_and_ports_are_distinct() {
        let found = resolve("plaintext://[::1]:9092,CONTROLLER://:9093,IN://host-1.example:0", |texts| {
            texts.protocol_map = "in:plaintext, PLAINTEXT:PLAINTEXT, CONTROLLER:PLAINTEXT";
            texts.protocol_map_given = true;
        })
        .expect("valid listeners");
        assert_eq!(hosts(&found.broker), ["PLAINTEXT://[::1]:9092", "IN://host-1.example:0"]);
        assert_eq!(found.controller[0].host, None);
        assert_eq!(found.advertised, found.broker);
    }

    #[test]
    fn gaps_in_what_is_advertised_are_filled() {
        let found = resolve("PLAINTEXT://:0", |_| ()).expect("valid listeners");
        let advertised = found.advertised_as("here", |name| (name == "PLAINTEXT").then_some(4711));
        assert_eq!(hosts(&advertised), ["PLAINTEXT://here:4711"]);
    }

    #[test]
    fn a_meta_address_is_not_advertised() {
        for listeners in ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://[::]:9092"] {
            let error = resolve(listeners, |_| ()).expect_err("not routable");
            assert!(
                error.contains("configuration advertised.listeners: Cannot use the nonroutable"),
                "{error}"
            );
        }
        let advertised = ["PLAINTEXT://example:9092".to_owned()];
        let found = resolve("PLAINTEXT://0.0.0.0:9092", |texts| texts.advertised = Some(&advertised));
        assert_eq!(hosts(&found.expect("an advertised address").advertised), ["PLAINTEXT://example:9092"]);
    }

    #[test]
    fn a_controller_on_all_interfaces_is_advertised_by_the_machines_name() {
        let broker = ["PLAINTEXT://example:9092".to_owned()];
        let named = ["PLAINTEXT://example:9092".to_owned(), "CONTROLLER://0.0.0.0:9093".to_owned()];
        for everywhere in ["0.0.0.0", "[::]"] {
            let listeners = format!("PLAINTEXT://localhost:9092,CONTROLLER://{everywhere}:9093");
            for advertised in [None, Some(&broker[..])] {
                let found = resolve(&listeners, |texts| texts.advertised = advertised).expect("as Kafka");
                let advertised = found.controller_advertised_as("here", |_| None);
                assert_eq!(hosts(&advertised), ["CONTROLLER://here:9093"]);
                assert_eq!(hosts(&found.controller), [format!("CONTROLLER://{everywhere}:9093")]);
            }
            let refused = resolve(&listeners, |texts| texts.advertised = Some(&named)).expect_err("named");
            assert!(refused.contains("nonroutable meta-address 0.0.0.0"), "{refused}");
        }
    }

    #[test]
    fn a_name_that_is_a_protocol_is_spoken() {
        let found = resolve("PLAINTEXT://:9092,SSL://:9093,SASL_SSL://:9094", |_| ()).expect("valid");
        let layers: Vec<_> =
            found.broker.iter().map(|l| (l.protocol.has_tls(), l.protocol.has_sasl())).collect();
        assert_eq!(layers, [(false, false), (true, false), (true, true)]);
    }

    #[test]
    fn malformed_listeners_are_refused() {
        let reason = |listeners: &str| resolve(listeners, |_| ()).expect_err(listeners);
        assert!(reason("localhost:9092").ends_with("Expected NAME://host:port"));
        assert!(reason("PLAINTEXT://a b:9092").ends_with("Expected NAME://host:port"));
        assert!(
            reason("PLAINTEXT://:70000").ends_with("Expected a port from 0 to 65535 after the last colon")
        );
        assert!(reason("INTERNAL://:9092").contains("No security protocol defined for listener INTERNAL"));
        assert!(
            reason("PLAINTEXT://a:1,plaintext://b:2").ends_with("Each listener must have a different name")
        );
        assert!(reason("CONTROLLER://:9093").contains("At least one listener must not appear in controller"));
    }

    #[test]
    fn a_port_is_shared_by_two_families_only() {
        fn map(texts: &mut ListenerTexts<'_>) {
            texts.protocol_map = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT";
            texts.protocol_map_given = true;
            texts.inter_broker_name = Some("a");
        }
        assert!(resolve("A://127.0.0.1:9092,B://[::1]:9092", map).is_ok());
        for listeners in ["A://127.0.0.1:9092,B://127.0.0.2:9092", "A://:9092,B://[::1]:9092"] {
            let error = resolve(listeners, map).expect_err("the same port");
            assert!(error.contains("Port 9092 is used twice"), "{error}");
        }
    }

    #[test]
    fn the_inter_broker_listener_must_exist() {
        let error = resolve("PLAINTEXT://:9092", |texts| texts.inter_broker_name = Some("INTERNAL"));
        assert_eq!(
            error.expect_err("unknown"),
            "Invalid value INTERNAL for configuration inter.broker.listener.name: \
             Must be a listener name defined in advertised.listeners: PLAINTEXT"
        );
    }

    #[test]
    fn a_broker_in_a_quorum_has_no_controller_listener() {
        let error = resolve("PLAINTEXT://:9092,CONTROLLER://:9093", |texts| {
            texts.roles.controller = false;
        });
        assert!(error.expect_err("a controller listener").contains("controller.listener.names"));
    }
}
