//! The same security settings under librdkafka's names, for users of that library. The contents of files are
//! passed on, so that both clients trust and present the same certificates.

use rustls::pki_types::PrivateKeyDer;

use thalweg_security::stores::pem;
use thalweg_security::tls::CRL_LOCATION;

use super::Security;

impl Security {
    /// librdkafka's properties, which contain secrets.
    pub fn librdkafka(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![("security.protocol", self.protocol().to_owned())];
        if let Some(tls) = self.tls() {
            let certificates = |list: &[rustls::pki_types::CertificateDer<'_>]| {
                list.iter().map(|der| pem::text("CERTIFICATE", der)).collect::<String>()
            };
            match &tls.trusted {
                Some(trusted) => properties.push(("ssl.ca.pem", certificates(trusted))),
                // The OpenSSL bundled with librdkafka does not know the system's trusted certificates.
                None => properties.push(("ssl.ca.location", "probe".to_owned())),
            }
            if let Some((chain, key)) = &tls.identity {
                let label = match key {
                    PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
                    PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
                    _ => "PRIVATE KEY",
                };
                properties.push(("ssl.certificate.pem", certificates(chain)));
                properties.push(("ssl.key.pem", pem::text(label, key.secret_der())));
            }
            if let Some(file) = tls.revocation_file.as_ref().and_then(|file| file.to_str()) {
                properties.push((CRL_LOCATION, file.to_owned()));
            }
            let check = if tls.check_host { "https" } else { "none" };
            properties.push(("ssl.endpoint.identification.algorithm", check.to_owned()));
        }
        if let Some(credentials) = self.credentials() {
            properties.push(("sasl.mechanism", credentials.mechanism().to_owned()));
            properties.push(("sasl.username", credentials.user().to_owned()));
            properties.push(("sasl.password", credentials.password().to_owned()));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Properties;

    #[test]
    fn a_login_modules_line_becomes_user_and_password() {
        let mut properties = Properties::new();
        for (key, value) in [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", "x.PlainLoginModule required username=\"ann\" password='b c';"),
        ] {
            properties.set(key, value);
        }
        let told = Security::take(&mut properties).expect("security").librdkafka();
        let expected = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "ann"),
            ("sasl.password", "b c"),
        ];
        assert_eq!(told, expected.map(|(key, value)| (key, value.to_owned())));
    }
}
