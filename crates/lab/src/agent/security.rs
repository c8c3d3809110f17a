//! Mutual TLS between lab and agents, by certificates of an authority that signs for nothing else.
//!
//! A certificate names a role, not a host: each agent has the same one, so that one command makes all and
//! machines can be added later. The lab accepts servers with a certificate of the authority for servers,
//! which is that of agents only; an agent accepts clients with that of the lab only, because a request of the
//! lab starts programs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use thalweg_authority::{Authority, Purpose, keystore, truststore};
use thalweg_client::{Properties, TlsFault};
use thalweg_security::tls::ServerTls;

use super::error::AgentError;

/// The lab's role and file.
const LAB: &str = "lab";
/// The agents' role and file.
const AGENT: &str = "agent";
/// The authority's certificate.
const TRUSTED: &str = "ca.crt";

/// Where connections without certificates are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Insecure {
    /// Between programs of one machine.
    Loopback,
    /// Everywhere: anyone who reaches an agent can run programs on its machine.
    Anywhere,
}

/// The security of connections between lab and agents.
#[derive(Clone, Debug)]
pub struct Security {
    kind: Kind,
    option: &'static str,
    insecure: &'static str,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The directory of certificates.
    Certificates(PathBuf),
    Insecure(Insecure),
}

/// The files that [`make_certificates`] has made.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The authority's certificate, for all machines.
    pub trusted: PathBuf,
    /// Certificate and key of the lab.
    pub lab: PathBuf,
    /// Certificate and key of the agents.
    pub agent: PathBuf,
}

/// Makes the certificates of lab and agents in a directory, and the authority, if it is missing.
pub fn make_certificates(dir: &Path) -> Result<CertificateFiles, AgentError> {
    let authority = Authority::open_or_create(dir)?;
    Ok(CertificateFiles {
        trusted: authority.certificate_file(),
        lab: authority.sign(LAB, Purpose::Client, &[])?,
        agent: authority.sign(AGENT, Purpose::Node, &[])?,
    })
}

impl Security {
    /// The security that these arguments ask for; `names` are those of the two options.
    pub fn new(
        certificates: Option<PathBuf>,
        insecure: Option<Insecure>,
        (option, without): (&'static str, &'static str),
    ) -> Result<Security, AgentError> {
        let kind = match (certificates, insecure) {
            (Some(dir), _) => Kind::Certificates(dir),
            (None, Some(insecure)) => Kind::Insecure(insecure),
            (None, None) => return Err(AgentError::NoCertificates { option, insecure: without }),
        };
        Ok(Security { kind, option, insecure: without })
    }

    /// True without certificates.
    pub fn is_insecure(&self) -> bool {
        matches!(self.kind, Kind::Insecure(_))
    }

    /// Refuses an address of a network without certificates, unless that was asked for.
    pub(super) fn check(&self, address: &str, ip: IpAddr) -> Result<(), AgentError> {
        match self.kind {
            Kind::Insecure(Insecure::Loopback) if !ip.is_loopback() => Err(AgentError::InsecureElsewhere {
                address: address.to_owned(),
                option: self.option,
                insecure: self.insecure,
            }),
            _ => Ok(()),
        }
    }

    /// The agent's side; `None` for plain text.
    pub(super) fn server(&self) -> Result<Option<ServerTls>, AgentError> {
        let Kind::Certificates(dir) = &self.kind else { return Ok(None) };
        let mut settings = settings(dir, AGENT)?;
        settings.insert("ssl.client.auth".to_owned(), "required".to_owned());
        settings.insert("ssl.enabled.protocols".to_owned(), "TLSv1.3".to_owned());
        Ok(Some(ServerTls::take(&mut |key| settings.remove(key))?))
    }

    /// The lab's side.
    pub(super) fn client(&self) -> Result<thalweg_client::Security, AgentError> {
        let mut properties = Properties::new();
        if let Kind::Certificates(dir) = &self.kind {
            for (key, value) in settings(dir, LAB)? {
                properties.set(&key, &value);
            }
            properties.set("security.protocol", "SSL");
            properties.set("ssl.enabled.protocols", "TLSv1.3");
            // The certificate of agents names no host.
            properties.set("ssl.endpoint.identification.algorithm", "");
        }
        Ok(thalweg_client::Security::take(&mut properties)?)
    }
}

impl Security {
    /// The reason for a failed handshake with an agent, in terms of the options of agents.
    pub(super) fn reason(&self, fault: &TlsFault) -> String {
        let (option, insecure) = (self.option, self.insecure);
        let make = "`thalweg lab agent-certificates DIR`";
        match fault {
            TlsFault::UnknownIssuer => format!(
                "its certificate is of another authority than that of {option}: copy ca.crt and agent.pem from there to \
                 the agent's machine"
            ),
            TlsFault::NotTls => {
                format!("it does not speak TLS: an agent that was started with --insecure needs {insecure}")
            }
            TlsFault::Closed => {
                "it closed the connection in the handshake, as another program than an agent does".to_owned()
            }
            TlsFault::Expired => format!(
                "its certificate has expired, or the clock of this machine is wrong: {make} signs it again"
            ),
            TlsFault::ClientCertificate => {
                format!("it rejects the certificate of {option}: {make} signs it again")
            }
            other => other.to_string(),
        }
    }
}

/// True for the distinguished name of the lab's certificate.
pub(super) fn is_lab(distinguished_name: &str) -> bool {
    distinguished_name == format!("CN={LAB}")
}

/// The settings of a role.
fn settings(dir: &Path, role: &str) -> Result<thalweg_authority::Settings, AgentError> {
    let (own, trusted) = (dir.join(format!("{role}.pem")), dir.join(TRUSTED));
    if let Some(missing) = [&own, &trusted].into_iter().find(|file| !file.is_file()) {
        return Err(AgentError::FileMissing(missing.clone()));
    }
    let mut settings = keystore(&own);
    settings.extend(truststore(&trusted));
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: (&str, &str) = ("--certificates", "--insecure");

    #[test]
    fn plain_text_stays_on_the_machine_unless_anywhere_is_given() {
        let text = Security::new(None, None, OPTIONS).expect_err("refused").to_string();
        assert!(text.contains("--certificates DIR") && text.contains("--insecure does without"), "{text}");
        let of = |insecure| Security::new(None, Some(insecure), OPTIONS).expect("asked for");
        let (here, there) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        assert!(of(Insecure::Loopback).check("a:1", here).is_ok());
        let text = of(Insecure::Loopback).check("a:1", there).expect_err("refused").to_string();
        assert!(text.contains("--insecure=anywhere"), "{text}");
        assert!(of(Insecure::Anywhere).check("a:1", there).is_ok());
    }

    #[test]
    fn each_side_needs_its_files_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = make_certificates(dir.path()).expect("made");
        let security = Security::new(Some(dir.path().to_owned()), None, OPTIONS).expect("certificates");
        assert!(security.server().expect("usable").is_some());
        assert_eq!(security.client().expect("usable").protocol(), "SSL");
        std::fs::remove_file(&files.lab).expect("it is there");
        assert!(security.server().is_ok());
        let text = security.client().expect_err("it is gone").to_string();
        assert!(text.contains("lab.pem is missing") && text.contains("agent-certificates"), "{text}");
        // Settings of brokers have no place in what a user of agents reads.
        for fault in [TlsFault::UnknownIssuer, TlsFault::NotTls, TlsFault::Closed, TlsFault::Expired] {
            let text = security.reason(&fault);
            assert!(
                !["ssl.", "security.protocol", "broker"].iter().any(|word| text.contains(word)),
                "{text}"
            );
        }
    }
}
