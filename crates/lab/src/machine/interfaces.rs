//! Network interfaces, as the kernel lists them.

use std::path::Path;

use super::line;
use crate::result::Interface;

/// The kernel's directory of interfaces.
pub(crate) const INTERFACES: &str = "/sys/class/net";

/// The interfaces in such a directory, the loopback one included, by name.
pub(crate) fn list(dir: &Path) -> Vec<Interface> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    // The bonding driver has a file beside the interfaces.
    let dirs = entries.flatten().filter(|entry| entry.path().is_dir());
    let names = dirs.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Interface> = names
        .map(|name| {
            let read = |file: &str| line(dir.join(&name).join(file).to_str()?);
            Interface {
                state: read("operstate").unwrap_or_else(|| "unknown".to_owned()),
                speed_mbit_per_s: link_speed(dir, &name),
                mtu_bytes: read("mtu").and_then(|mtu| mtu.parse().ok()),
                name,
            }
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The speed of the slowest interface that is up and backed by a device; `None` if unknown.
pub(super) fn slowest_link(dir: &Path) -> Option<u64> {
    let up = list(dir).into_iter().filter(|interface| interface.state == "up");
    up.filter_map(|interface| interface.speed_mbit_per_s).min()
}

/// The speed of an interface in Mbit/s, below `/sys/class/net`; `None` if unknown. The speed of a link
/// without a device, as of containers, bridges and bonds, is no capacity of a network.
pub(crate) fn link_speed(interfaces: &Path, name: &str) -> Option<u64> {
    let dir = interfaces.join(name);
    // An unknown speed is -1.
    let speed = line(dir.join("speed").to_str()?)?.parse().ok().filter(|speed| *speed > 0);
    speed.filter(|_| dir.join("device").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_link_that_is_up_with_a_known_speed_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let interface = |name: &str, state: &str, speed: &str, is_device: bool| {
            let own = dir.path().join(name);
            std::fs::create_dir_all(if is_device { own.join("device") } else { own.clone() }).expect("made");
            std::fs::write(own.join("operstate"), state).expect("written");
            std::fs::write(own.join("speed"), speed).expect("written");
        };
        interface("eth0", "up\n", "-1\n", true);
        interface("docker0", "up\n", "10\n", false);
        interface("eth3", "down\n", "100\n", true);
        assert_eq!(slowest_link(dir.path()), None);
        interface("eth1", "up\n", "25000\n", true);
        interface("eth2", "up\n", "1000\n", true);
        assert_eq!(slowest_link(dir.path()), Some(1000));
        std::fs::write(dir.path().join("bonding_masters"), "bond0\n").expect("written");
        let names = list(dir.path()).into_iter().map(|interface| interface.name);
        assert_eq!(names.collect::<Vec<_>>(), ["docker0", "eth0", "eth1", "eth2", "eth3"]);
    }
}
