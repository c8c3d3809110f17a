//! Certificate revocation lists: of clients' certificates at a listener, and of the broker's at a client.

use crate::running::{RunningBroker, configuration};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::Path;
use std::time::Duration;
use thalweg_broker::start;
use thalweg_dial::{ClientError, Connection, ConnectionOptions, Properties};
use thalweg_security::InvalidSetting;
use thalweg_wire::request::MetadataRequest;

const BROKER: u64 = 1;
const GOOD: u64 = 2;
const BAD: u64 = 3;
/// Signed by the authority between.
const BELOW: u64 = 4;
const BETWEEN: u64 = 5;

/// An authority, another below it, and certificates of both, in files.
struct Certificates {
    dir: tempfile::TempDir,
    root: Issuer<'static, KeyPair>,
    between: Issuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Certificates {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.serial_number = Some(SerialNumber::from(BETWEEN));
            (params, KeyPair::generate().expect("a key"))
        };
        let (params, key) = authority("root");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        std::fs::write(dir.path().join("ca.pem"), pem).expect("written");
        let root = Issuer::new(params, key);
        let (params, key) = authority("between");
        let chain = params.signed_by(&key, &root).expect("a certificate").pem();
        let between = Issuer::new(params, key);
        for (serial, by, chain) in
            [(BROKER, &root, ""), (GOOD, &root, ""), (BAD, &root, ""), (BELOW, &between, &chain)]
        {
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, format!("number {serial}"));
            params.serial_number = Some(SerialNumber::from(serial));
            let key = KeyPair::generate().expect("a key");
            let pem = params.signed_by(&key, by).expect("a certificate").pem();
            let path = dir.path().join(format!("{serial}.pem"));
            std::fs::write(path, key.serialize_pem() + &pem + chain).expect("written");
        }
        Certificates { dir, root, between }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join("crl"), content).expect("written");
    }

    /// Options of a client with this certificate.
    fn options(&self, own: u64, more: &[(&str, &str)]) -> Result<ConnectionOptions, InvalidSetting> {
        let mut properties = Properties::new();
        properties.set("security.protocol", "SSL");
        properties.set("ssl.truststore.location", &self.path("ca.pem"));
        properties.set("ssl.keystore.location", &self.path(&format!("{own}.pem")));
        for (key, value) in more {
            properties.set(key, value);
        }
        ConnectionOptions::take(&mut properties, "test")
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0".to_owned()),
            ("ssl.keystore.location", self.path("1.pem")),
            ("ssl.truststore.location", self.path("ca.pem")),
            ("ssl.client.auth", "required".to_owned()),
            ("listener.name.ssl.ssl.crl.location", self.path("crl")),
        ]
    }

    async fn start(&self, data: &Path) -> RunningBroker {
        let settings = self.settings();
        let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        RunningBroker::start(data, &settings).await
    }
}

/// A list of revoked certificates, in PEM.
fn list(by: &Issuer<'static, KeyPair>, revoked: &[u64], until_year: i32) -> rcgen::CertificateRevocationList {
    let entry = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(until_year, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.iter().map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(by).expect("a list")
}

/// Connects and asks once: with TLS 1.3, a server refuses a client's certificate after the handshake.
async fn ask(
    broker: &RunningBroker,
    options: Result<ConnectionOptions, InvalidSetting>,
) -> Result<Connection, ClientError> {
    let address = broker.server().addresses[1].1[0].to_string();
    let connection = Connection::connect(&address, &options.expect("valid settings")).await?;
    connection.send(&MetadataRequest::default()).await?;
    Ok(connection)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), held).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_clients_are_refused_and_lists_may_change() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    certificates.write(list(&certificates.root, &[BAD], 2999).pem().expect("PEM"));
    let broker = certificates.start(data.path()).await;
    for version in ["TLSv1.2", "TLSv1.3"] {
        let with = |own| certificates.options(own, &[("ssl.enabled.protocols", version)]);
        ask(&broker, with(GOOD)).await.expect("it is not on the list");
        let error = ask(&broker, with(BAD)).await.expect_err("it is revoked").to_string();
        assert!(error.contains("ssl.keystore.location"), "{version}: {error}");
        assert!(ask(&broker, with(BELOW)).await.is_err(), "its authority has no list");
    }
    // The other form, another list, and an authority that has been revoked by the one above it.
    let open = ask(&broker, certificates.options(GOOD, &[])).await.expect("not yet on the list");
    certificates.write(list(&certificates.root, &[GOOD], 2999).der());
    until("the new list counts", async || ask(&broker, certificates.options(GOOD, &[])).await.is_err()).await;
    ask(&broker, certificates.options(BAD, &[])).await.expect("it is no longer on the list");
    open.send(&MetadataRequest::default()).await.expect("open connections stay");
    let both = |revoked: &[u64]| {
        let below = list(&certificates.between, &[], 2999).pem().expect("PEM");
        list(&certificates.root, revoked, 2999).pem().expect("PEM") + &below
    };
    certificates.write(both(&[]));
    until("all is well", async || ask(&broker, certificates.options(BELOW, &[])).await.is_ok()).await;
    certificates.write(both(&[BETWEEN]));
    until("the authority is revoked", async || ask(&broker, certificates.options(BELOW, &[])).await.is_err())
        .await;
    // What cannot be read leaves the list as it is; an overdue list refuses all certificates.
    certificates.write("nothing of that kind");
    tokio::time::sleep(Duration::from_secs(4)).await;
    ask(&broker, certificates.options(GOOD, &[])).await.expect("the last list that could be read counts");
    certificates.write(list(&certificates.root, &[], 2021).pem().expect("PEM"));
    until("the list is overdue", async || ask(&broker, certificates.options(GOOD, &[])).await.is_err()).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_refuse_a_revoked_broker() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    certificates.write(list(&certificates.root, &[], 2999).pem().expect("PEM"));
    let broker = certificates.start(data.path()).await;
    let lists = [
        (list(&certificates.root, &[], 2999), None),
        (list(&certificates.root, &[BROKER], 2999), Some("the broker's certificate was revoked")),
        (list(&certificates.root, &[], 2021), Some("the revocation list in ssl.crl.location has expired")),
        (list(&certificates.between, &[], 2999), Some("ssl.crl.location has no revocation list")),
    ];
    let file = certificates.path("of-client");
    for (list, words) in lists {
        for check in ["https", ""] {
            std::fs::write(&file, list.der()).expect("written");
            let more = [("ssl.crl.location", &*file), ("ssl.endpoint.identification.algorithm", check)];
            let asked = ask(&broker, certificates.options(GOOD, &more)).await.err();
            match (words, asked) {
                (None, None) => {}
                (Some(words), Some(error)) => assert!(error.to_string().contains(words), "{error}"),
                (_, other) => panic!("{words:?}: {other:?}"),
            }
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_cannot_be_read_are_named() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let settings = certificates.settings();
    let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let file = certificates.path("crl");
    let truncated = list(&certificates.root, &[], 2999).der()[..50].to_vec();
    let contents: [(Option<&[u8]>, &str); 4] = [
        (None, "a file of revocation lists that can be read"),
        (Some(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), "-----BEGIN X509 CRL-----"),
        (Some(b"-----BEGIN X509 CRL-----\nAAAA"), "readable PEM"),
        (Some(&truncated), "complete and direct revocation lists of version 2"),
    ];
    for (content, words) in contents {
        if let Some(content) = content {
            certificates.write(content);
        }
        let error = start(configuration(data.path(), &settings)).await.map(drop).expect_err(words);
        let error = format!("{error}");
        for expected in ["Listener SSL", &format!("ssl.crl.location={file}"), words] {
            assert!(error.contains(expected), "{error}");
        }
        let more = [("ssl.crl.location", &*file)];
        let error = certificates.options(GOOD, &more).map(drop).expect_err(words).to_string();
        assert!(error.contains(&format!("ssl.crl.location={file}")) && error.contains(words), "{error}");
    }
}
