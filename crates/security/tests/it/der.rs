//! Writes DER.

/// A tag with its content.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    match content.len() {
        length @ 0..=0x7f => der.push(u8::try_from(length).expect("short")),
        length @ 0x80..=0xff => der.extend([0x81, u8::try_from(length).expect("short")]),
        length => der.extend([0x82, u8::try_from(length >> 8).expect("short"), (length & 0xff) as u8]),
    }
    der.extend(content);
    der
}
