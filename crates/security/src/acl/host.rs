//! The text form of peer addresses in ACLs.

use std::net::IpAddr;

/// The address in Java's format: IPv6 in eight groups without leading zeros or abbreviation, and IPv4-mapped
/// IPv6 as IPv4.
pub fn host_address(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_java_writes_them() {
        for (address, expected) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "0:0:0:0:0:0:0:1"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("fe80::a0b:1", "fe80:0:0:0:0:0:a0b:1"),
        ] {
            assert_eq!(host_address(address.parse().expect(address)), expected);
        }
    }
}
