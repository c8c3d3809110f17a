//! PEM: base64 DER between a BEGIN and an END line. White space inside is ignored, because settings may
//! contain PEM on one line, with spaces or `\n` as line ends. Keys in OpenSSL's old encryption are recognised
//! but not decrypted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A section between a BEGIN and an END line.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    /// The label after BEGIN, such as `CERTIFICATE`.
    pub label: String,
    /// The decoded bytes.
    pub der: Vec<u8>,
}

/// The reason for invalid PEM.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemFault {
    /// The END line is missing.
    #[error("-----BEGIN {0}----- has no -----END {0}-----")]
    NoEnd(String),
    /// The content is not base64.
    #[error("the content of -----BEGIN {0}----- is not base64")]
    NotBase64(String),
    /// A key in OpenSSL's old encryption.
    #[error(
        "the key uses OpenSSL's old encryption; convert it with openssl pkcs8 -topk8 -in KEY -out NEW_KEY"
    )]
    OldEncryption,
}

/// All sections of a text, in order. Text between sections is ignored.
pub fn sections(text: &str) -> Result<Vec<Section>, PemFault> {
    let text = text.replace("\\n", "\n");
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, behind)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = behind.split_once("-----") else { break };
        let (body, after) = body
            .split_once(&format!("-----END {label}-----"))
            .ok_or_else(|| PemFault::NoEnd(label.to_owned()))?;
        if body.contains("Proc-Type:") {
            return Err(PemFault::OldEncryption);
        }
        let base64: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let der = STANDARD.decode(base64).map_err(|_| PemFault::NotBase64(label.to_owned()))?;
        found.push(Section { label: label.to_owned(), der });
        rest = after;
    }
    Ok(found)
}

/// A section as text.
pub fn text(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let base64 = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_read_with_and_without_lines() {
        let der: Vec<u8> = (0..200).collect();
        let of_lines = text("CERTIFICATE", &der);
        for text in [of_lines.clone(), of_lines.replace('\n', " "), of_lines.replace('\n', "\\n")] {
            let twice = format!("# a comment\n{text}{text}");
            let found = sections(&twice).expect("PEM");
            assert_eq!(found.len(), 2);
            assert_eq!(found[1], Section { label: "CERTIFICATE".to_owned(), der: der.clone() });
        }
        assert_eq!(sections("no PEM at all"), Ok(Vec::new()));
    }

    #[test]
    fn broken_files_are_reported() {
        let broken = [
            ("-----BEGIN X-----\nAAAA", PemFault::NoEnd("X".to_owned())),
            ("-----BEGIN X-----\n????\n-----END X-----", PemFault::NotBase64("X".to_owned())),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----",
                PemFault::OldEncryption,
            ),
        ];
        for (text, fault) in broken {
            assert_eq!(sections(text), Err(fault));
        }
    }
}
