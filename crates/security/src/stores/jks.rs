//! JKS, Java's own store format (`sun.security.provider.JavaKeyStore`), for reading only.
//!
//! ```text
//! u32 0xfeedfeed | u32 version 1 or 2 | u32 entries | entry ... | SHA-1(password, "Mighty Aphrodite", above)
//! entry: u32 1, alias, u64 date, protected key, u32 certificates, certificate ...
//!    or: u32 2, alias, u64 date, certificate
//! alias: u16 length, text      certificate: [version 2: u16 length, "X.509"], u32 length, DER
//! protected key: u32 length, EncryptedPrivateKeyInfo(20 bytes salt | key XOR stream | SHA-1(password, key))
//! stream: d1 = SHA-1(password, salt), d2 = SHA-1(password, d1), ...
//! ```
//!
//! Passwords are hashed as big-endian UTF-16. JCEKS, Java's other format of this shape, is refused.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};

use crate::der::{self, Elements};

pub(super) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
pub(super) const JCEKS_MAGIC: [u8; 4] = [0xce, 0xce, 0xce, 0xce];

const WHITENER: &[u8] = b"Mighty Aphrodite";
/// The object identifier 1.3.6.1.4.1.42.2.17.1.1.
const KEY_PROTECTOR: [u8; 10] = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];

/// The reason for an unreadable store.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JksFault {
    #[error("it ends too early or has a wrong length")]
    Malformed,
    #[error("it has version {0}, and only 1 and 2 are known")]
    Version(u32),
    #[error("the password is wrong, or the file is damaged")]
    Password,
    #[error("the key has another password than the store")]
    KeyPassword,
}

/// The content of a store.
#[derive(Debug, Default)]
pub(super) struct Jks {
    pub(super) trusted: Vec<Vec<u8>>,
    pub(super) keys: Vec<ProtectedKey>,
}

/// An encrypted key with its certificate chain, own certificate first.
#[derive(Debug)]
pub(super) struct ProtectedKey {
    info: Vec<u8>,
    pub(super) chain: Vec<Vec<u8>>,
}

impl Jks {
    /// Reads a store. As in Java, the integrity is not checked without a password.
    pub(super) fn read(bytes: &[u8], password: Option<&str>) -> Result<Jks, JksFault> {
        let at = bytes.len().checked_sub(SHA1_OUTPUT_LEN).ok_or(JksFault::Malformed)?;
        let (content, digest) = bytes.split_at(at);
        if let Some(password) = password
            && sha1(&[&utf16(password), WHITENER, content]) != digest
        {
            return Err(JksFault::Password);
        }
        let mut reader = Reader(content);
        reader.take(MAGIC.len())?;
        let version = reader.u32()?;
        if !matches!(version, 1 | 2) {
            return Err(JksFault::Version(version));
        }
        let mut store = Jks::default();
        for _ in 0..reader.u32()? {
            let tag = reader.u32()?;
            reader.text()?;
            reader.take(8)?;
            match tag {
                1 => {
                    let info = reader.bytes()?.to_vec();
                    let certificates = reader.u32()?;
                    let chain = (0..certificates).map(|_| reader.certificate(version));
                    store.keys.push(ProtectedKey { info, chain: chain.collect::<Result<_, _>>()? });
                }
                2 => store.trusted.push(reader.certificate(version)?),
                _ => return Err(JksFault::Malformed),
            }
        }
        Ok(store)
    }
}

impl ProtectedKey {
    /// Decrypts the key, in PKCS8.
    pub(super) fn open(&self, password: &str) -> Result<Vec<u8>, JksFault> {
        let protected = self.protected().ok_or(JksFault::Malformed)?;
        let at = protected.len().checked_sub(SHA1_OUTPUT_LEN).ok_or(JksFault::Malformed)?;
        let (rest, check) = protected.split_at(at);
        let (salt, encrypted) = rest.split_at_checked(SHA1_OUTPUT_LEN).ok_or(JksFault::Malformed)?;
        let password = utf16(password);
        let mut stream = salt.to_vec();
        let mut key = encrypted.to_vec();
        for block in key.chunks_mut(SHA1_OUTPUT_LEN) {
            stream = sha1(&[&password, &stream]);
            block.iter_mut().zip(&stream).for_each(|(byte, with)| *byte ^= with);
        }
        if sha1(&[&password, &key]) == check { Ok(key) } else { Err(JksFault::KeyPassword) }
    }

    fn protected(&self) -> Option<&[u8]> {
        let mut info = Elements(der::only(&self.info, der::SEQUENCE)?);
        let algorithm = info.expect(der::SEQUENCE)?;
        let id = Elements(algorithm).expect(der::OBJECT_ID)?;
        if id != KEY_PROTECTOR {
            return None;
        }
        info.expect(der::OCTETS)
    }
}

fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn sha1(parts: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().to_vec()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], JksFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(JksFault::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, JksFault> {
        let bytes = self.take(4)?.first_chunk().ok_or(JksFault::Malformed)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    fn bytes(&mut self) -> Result<&'a [u8], JksFault> {
        let length = usize::try_from(self.u32()?).map_err(|_| JksFault::Malformed)?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a [u8], JksFault> {
        let bytes = self.take(2)?.first_chunk().ok_or(JksFault::Malformed)?;
        self.take(usize::from(u16::from_be_bytes(*bytes)))
    }

    fn certificate(&mut self, version: u32) -> Result<Vec<u8>, JksFault> {
        if version == 2 {
            self.text()?;
        }
        Ok(self.bytes()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(entries: &[u8], count: u32, password: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0, 0, 0, 2]);
        bytes.extend(count.to_be_bytes());
        bytes.extend(entries);
        let digest = sha1(&[&utf16(password), WHITENER, &bytes]);
        bytes.extend(digest);
        bytes
    }

    #[test]
    fn no_prefix_of_a_store_is_a_panic() {
        let mut entry = vec![0, 0, 0, 2, 0, 1, b'a'];
        entry.extend([0; 8]);
        entry.extend([0, 5]);
        entry.extend(b"X.509");
        entry.extend([0, 0, 0, 3, 1, 2, 3]);
        let whole = store(&entry, 1, "secret");
        assert_eq!(Jks::read(&whole, Some("secret")).expect("a store").trusted, [[1, 2, 3]]);
        assert_eq!(Jks::read(&whole, None).expect("no check").trusted, [[1, 2, 3]]);
        assert_eq!(Jks::read(&whole, Some("Secret")).err(), Some(JksFault::Password));
        for end in 0..whole.len() {
            assert!(Jks::read(&whole[..end], None).is_err(), "{end} bytes");
        }
        let many = store(&entry, u32::MAX, "secret");
        assert_eq!(Jks::read(&many, Some("secret")).err(), Some(JksFault::Malformed));
    }
}
