//! Stores made by `keytool` and `openssl`, read as a server's settings name them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use thalweg_security::stores::pem;
use thalweg_security::tls::ServerTls;

use crate::certificates::made::{Spec, private};

/// Runs a program; false if it is not installed.
fn run(dir: &Path, line: &str) -> bool {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    match Command::new(program).args(words).current_dir(dir).output() {
        Ok(output) => {
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
            true
        }
        Err(_) => {
            crate::skipped(&format!("stores made by {program}: install {program}"));
            false
        }
    }
}

fn take(dir: &Path, settings: &[(&str, &str)]) -> Result<ServerTls, String> {
    let mut all: BTreeMap<String, String> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for (key, value) in &mut all {
        if key.ends_with(".location") {
            *value = dir.join(&*value).to_str().expect("UTF-8").to_owned();
        }
    }
    ServerTls::take(&mut |key| all.remove(key)).map_err(|error| error.to_string())
}

#[test]
fn stores_of_keytool_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    const MAKE: &str = "keytool -genkeypair -keyalg RSA -keysize 2048 -dname CN=broker -validity 9";
    if !run(
        dir,
        &format!("{MAKE} -alias one -keystore a.jks -storetype JKS -storepass sécret1 -keypass sécret1"),
    ) {
        return;
    }
    run(
        dir,
        &format!("{MAKE} -alias one -keystore b.jks -storetype JKS -storepass secret1 -keypass secret2"),
    );
    run(dir, &format!("{MAKE} -alias one -keystore c.p12 -storetype PKCS12 -storepass secret1"));
    run(
        dir,
        &format!("{MAKE} -alias one -keystore d.jceks -storetype JCEKS -storepass secret1 -keypass secret1"),
    );
    run(dir, "keytool -exportcert -alias one -keystore b.jks -storepass secret1 -file b.der");
    run(
        dir,
        "keytool -importcert -noprompt -alias ca -file b.der -keystore trust.jks -storetype JKS -storepass secret3",
    );
    let location = "ssl.keystore.location";
    let password = "ssl.keystore.password";
    for (store, settings) in [
        ("a.jks", &[(password, "sécret1")][..]),
        ("b.jks", &[(password, "secret1"), ("ssl.key.password", "secret2")]),
        ("c.p12", &[(password, "secret1"), ("ssl.keystore.type", "JKS")]),
    ] {
        let all = [settings, &[(location, store)]].concat();
        take(dir, &all).unwrap_or_else(|error| panic!("{store}: {error}"));
    }
    let trust = [
        (location, "a.jks"),
        (password, "sécret1"),
        ("ssl.client.auth", "required"),
        ("ssl.truststore.location", "trust.jks"),
    ];
    take(dir, &trust).expect("Java needs no password for certificates");
    take(dir, &[&trust[..], &[("ssl.truststore.password", "secret3")]].concat()).expect("the right password");
    for (settings, reason) in [
        (&[(location, "a.jks"), (password, "wrong")][..], "ssl.keystore.password=[hidden] is invalid"),
        (&[(location, "b.jks"), (password, "secret1")], "ssl.key.password=[hidden] is invalid"),
        (&[(location, "a.jks")], "ssl.keystore.password=(not set) is invalid"),
        (&[(location, "d.jceks"), (password, "secret1")], "this is JCEKS"),
        (&[(location, "trust.jks"), (password, "secret3")], "a store with a private key"),
        (&[], "ssl.keystore.location=(not set) is invalid"),
    ] {
        let error = take(dir, settings).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
    let wrong = [&trust[..], &[("ssl.truststore.password", "wrong")]].concat();
    assert!(take(dir, &wrong).expect_err("a wrong password").contains("ssl.truststore.password=[hidden]"));
}

#[test]
fn stores_of_openssl_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem \
                -days 9 -subj /CN=broker";
    if !run(dir, &make.split_whitespace().collect::<Vec<_>>().join(" ")) {
        return;
    }
    run(dir, "openssl pkcs12 -export -in cert.pem -inkey key.pem -out a.p12 -passout pass:secret1");
    run(dir, "openssl pkcs8 -topk8 -in key.pem -out locked.pem -passout pass:secret2");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
    std::fs::write(dir.join("all.pem"), read("cert.pem") + &read("locked.pem")).expect("written");
    let (key, chain) = (read("locked.pem"), read("cert.pem"));
    for settings in [
        &[("ssl.keystore.location", "a.p12"), ("ssl.keystore.password", "secret1")][..],
        &[("ssl.keystore.location", "all.pem"), ("ssl.key.password", "secret2")],
        &[
            ("ssl.keystore.key", key.as_str()),
            ("ssl.keystore.certificate.chain", &chain),
            ("ssl.key.password", "secret2"),
        ],
    ] {
        take(dir, settings).unwrap_or_else(|error| panic!("{}: {error}", settings[0].0));
    }
}

#[test]
fn names_may_not_change_on_a_running_listener() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    for (file, subject, names) in [
        ("a", "/CN=one", "DNS:a,DNS:b"),
        ("b", "/CN=ONE", "DNS:a,DNS:b,DNS:c"),
        ("c", "/CN=one", "DNS:a"),
        ("d", "/CN=two", "DNS:a,DNS:b"),
    ] {
        let line = format!(
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout {file}.key -out {file}.crt -days 9 -subj {subject} -addext \
             subjectAltName={names}"
        );
        if !run(dir, &line) {
            return;
        }
        let read = |end: &str| std::fs::read_to_string(dir.join(format!("{file}.{end}"))).expect("a file");
        std::fs::write(dir.join(format!("{file}.pem")), read("key") + &read("crt")).expect("written");
    }
    let tls = |name: &str| take(dir, &[("ssl.keystore.location", name)]).expect(name);
    let old = tls("a.pem");
    let check = |name: &str, dn: bool, san: bool| {
        tls(name).check_compatible(&old, dn, san).map_err(|e| e.to_string())
    };
    assert_eq!(check("b.pem", false, false), Ok(()));
    assert!(check("c.pem", false, false).expect_err("a name is gone").contains("lacks 1 of the 2"));
    assert_eq!(check("c.pem", false, true), Ok(()));
    assert!(check("d.pem", false, false).expect_err("another subject").contains("is for CN=two"));
    assert_eq!(check("d.pem", true, false), Ok(()));
}

/// Writes a certificate with the key of `name`.
fn write(dir: &Path, file: &str, certificate: &Spec, name: &str) {
    let text = pem::text("PRIVATE KEY", &private(name)) + &pem::text("CERTIFICATE", &certificate.der());
    std::fs::write(dir.join(file), text).expect("written");
}

#[test]
fn keystores_of_version_1_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    for (file, certificate) in
        [("1.pem", Spec::v1("broker")), ("2.pem", Spec { version: 2, ..Spec::new("broker") })]
    {
        write(dir, file, &certificate, "broker");
        take(dir, &[("ssl.keystore.location", file)]).expect(file);
        write(dir, file, &certificate, "other");
        let error = take(dir, &[("ssl.keystore.location", file)]).expect_err("the key of another");
        assert!(error.contains("keys may not be consistent: KeyMismatch"), "{error}");
    }
    write(dir, "4.pem", &Spec { version: 4, ..Spec::new("broker") }, "broker");
    let error = take(dir, &[("ssl.keystore.location", "4.pem")]).expect_err("no such version");
    assert!(error.contains("it is malformed"), "{error}");
}

#[test]
fn unusable_rsa_keys_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    for (bits, exponent) in [(1024, 65537), (2048, 3)] {
        let make = format!(
            "openssl req -x509 -newkey rsa -pkeyopt rsa_keygen_bits:{bits} -pkeyopt rsa_keygen_pubexp:{exponent} -nodes \
             -keyout key.pem -out cert.pem -days 9 -subj /CN=broker"
        );
        if !run(dir, &make.split_whitespace().collect::<Vec<_>>().join(" ")) {
            return;
        }
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
        std::fs::write(dir.join("all.pem"), read("key.pem") + &read("cert.pem")).expect("written");
        let error = take(dir, &[("ssl.keystore.location", "all.pem")]).expect_err("no such keys");
        assert!(error.contains(&format!("its RSA key has {bits} bits, exponent {exponent}")), "{error}");
        assert!(error.contains("2048, 3072 or 4096 bits and 65537 can be used"), "{error}");
    }
}

#[test]
fn a_malformed_trusted_certificate_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    write(dir, "own.pem", &Spec::new("broker"), "broker");
    let whole = Spec::authority("ca").der();
    let trust = |second: &[u8]| {
        let text = pem::text("CERTIFICATE", &whole) + &pem::text("CERTIFICATE", second);
        std::fs::write(dir.join("trust.pem"), text).expect("written");
        let settings = [
            ("ssl.keystore.location", "own.pem"),
            ("ssl.client.auth", "required"),
            ("ssl.truststore.location", "trust.pem"),
        ];
        take(dir, &settings).map(|_| ())
    };
    assert_eq!(trust(&Spec::v1("alice").der()), Ok(()));
    for malformed in [&whole[..whole.len() - 1], b"text", &Spec { version: 4, ..Spec::new("alice") }.der()] {
        let error = trust(malformed).expect_err("it cannot be read");
        assert!(error.contains("ssl.truststore.location="), "{error}");
        assert!(error.contains("number 2 in it is malformed"), "{error}");
    }
}
