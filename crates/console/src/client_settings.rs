//! The settings of a client that logs in with a name and a password, as lines of a file.

use std::fmt::Write;

/// The connection of a client.
pub struct ClientLogin<'a> {
    /// Addresses of brokers, separated by commas.
    pub bootstrap: &'a str,
    /// `SASL_SSL` or `SASL_PLAINTEXT`; none if the listener with SASL is not known.
    pub protocol: Option<&'a str>,
    /// `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: &'a str,
    pub user: &'a str,
    pub password: &'a str,
    /// `group.id`; none for a client without a group.
    pub group: Option<&'a str>,
}

impl ClientLogin<'_> {
    /// Lines of a properties file for the Java client and for Thalweg's commands.
    pub fn java(&self) -> String {
        let jaas = format!(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{}\" password=\"{}\";",
            in_jaas(self.user),
            in_jaas(self.password)
        );
        let mut lines = self.head();
        property(&mut lines, "bootstrap.servers", self.bootstrap);
        property(&mut lines, "security.protocol", self.protocol.unwrap_or("SASL_SSL"));
        property(&mut lines, "sasl.mechanism", self.mechanism);
        property(&mut lines, "sasl.jaas.config", &jaas);
        if let Some(group) = self.group {
            property(&mut lines, "group.id", group);
        }
        if self.has_tls() {
            lines.push_str("# Unless the Java runtime trusts the brokers' certificates:\n");
            lines.push_str("# ssl.truststore.type=PEM\n# ssl.truststore.location=/path/to/ca.pem\n");
        }
        lines
    }

    /// Lines for librdkafka and the clients that are made with it. The file has no escapes.
    pub fn librdkafka(&self) -> String {
        let mut lines = self.head();
        let _ = write!(
            lines,
            "bootstrap.servers={}\nsecurity.protocol={}\nsasl.mechanisms={}\nsasl.username={}\nsasl.password={}\n",
            self.bootstrap,
            self.protocol.unwrap_or("SASL_SSL"),
            self.mechanism,
            self.user,
            self.password
        );
        if let Some(group) = self.group {
            let _ = writeln!(lines, "group.id={group}");
        }
        if self.has_tls() {
            lines.push_str(
                "# Unless the system trusts the brokers' certificates:\n# ssl.ca.location=/path/to/ca.pem\n",
            );
        }
        lines
    }

    fn has_tls(&self) -> bool {
        self.protocol != Some("SASL_PLAINTEXT")
    }

    fn head(&self) -> String {
        match self.protocol {
            Some(_) => String::new(),
            None => "# This console connects to a listener without SASL: replace address and protocol by those of a \
                     listener with SASL.\n"
                .to_owned(),
        }
    }
}

/// A text within the quotes of a JAAS configuration.
fn in_jaas(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"")
}

/// Adds a line of a Java properties file, which is read as ISO 8859-1: other characters are escapes.
fn property(lines: &mut String, key: &str, value: &str) {
    lines.push_str(key);
    lines.push('=');
    for (at, c) in value.char_indices() {
        match c {
            '\\' => lines.push_str(r"\\"),
            ' ' if at == 0 => lines.push_str(r"\ "),
            ' '..='~' => lines.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(lines, "\\u{unit:04x}");
                }
            }
        }
    }
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use thalweg_client::Properties;

    use super::*;

    const LOGIN: ClientLogin<'static> = ClientLogin {
        bootstrap: "b1:9093,b2:9093",
        protocol: Some("SASL_PLAINTEXT"),
        mechanism: "SCRAM-SHA-512",
        user: "žofka",
        password: r#"a\b"c d"#,
        group: Some("billing"),
    };

    #[test]
    fn java_reads_the_name_and_the_password_as_they_are() {
        let java = LOGIN.java();
        let expected = "bootstrap.servers=b1:9093,b2:9093\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n";
        assert!(java.starts_with(expected), "{java}");
        let jaas = r#"required username="\u017eofka" password="a\\\\b\\"c d";"#;
        assert!(java.contains(jaas), "{java}");
        assert!(java.is_ascii() && java.ends_with("group.id=billing\n"), "{java}");
        let read = Properties::parse(&java);
        let jaas = r#"org.apache.kafka.common.security.scram.ScramLoginModule required username="žofka" password="a\\b\"c d";"#;
        assert_eq!(read.get("sasl.jaas.config"), Some(jaas));
    }

    #[test]
    fn librdkafka_gets_plain_lines() {
        let lines = LOGIN.librdkafka();
        assert!(
            lines.contains("sasl.username=žofka\nsasl.password=a\\b\"c d\ngroup.id=billing\n"),
            "{lines}"
        );
        let secured = ClientLogin { protocol: Some("SASL_SSL"), group: None, ..LOGIN };
        assert!(
            secured.librdkafka().contains("# ssl.ca.location=") && !secured.librdkafka().contains("group.id")
        );
        let unknown = ClientLogin { protocol: None, ..LOGIN };
        assert!(unknown.java().starts_with("# This console connects to a listener without SASL"));
        assert!(unknown.java().contains("security.protocol=SASL_SSL\n"));
    }
}
