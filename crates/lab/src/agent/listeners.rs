//! The process behind a listening port, from `/proc/net/tcp` and the open files of processes.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The kernel's number of the state of a listening socket.
const LISTENING: &str = "0A";
/// Maximum number of open files that are looked at.
const FILES_MAX: usize = 4 << 20;

/// The processes that listen at one of these addresses of this machine; at least one, by their ids.
pub(super) fn processes(addresses: &[SocketAddr]) -> Result<Vec<u32>, String> {
    let read = |file: &str| std::fs::read_to_string(file);
    let (tcp, tcp6) = (read("/proc/net/tcp"), read("/proc/net/tcp6"));
    if let (Err(error), Err(_)) = (&tcp, &tcp6) {
        return Err(format!("this machine does not list its sockets (/proc/net/tcp: {error})"));
    }
    let text = tcp.unwrap_or_default() + &tcp6.unwrap_or_default();
    let inodes = sockets(&text, addresses);
    match inodes.is_empty() {
        true => Err(format!(
            "no program listens at {} here: the port may be that of a proxy or a container",
            addresses.iter().map(SocketAddr::to_string).collect::<Vec<String>>().join(" or ")
        )),
        false => holders(Path::new("/proc"), &inodes),
    }
}

/// The inodes of the sockets that accept connections to one of these addresses: those of the address itself,
/// or else those of all addresses with its port.
fn sockets(listed: &str, addresses: &[SocketAddr]) -> BTreeSet<u64> {
    let listening: Vec<(SocketAddr, u64)> = listed.lines().filter_map(listening).collect();
    let of = |accepts: &dyn Fn(&SocketAddr, &SocketAddr) -> bool| -> BTreeSet<u64> {
        let matching = listening.iter().filter(|(at, _)| addresses.iter().any(|wanted| accepts(at, wanted)));
        matching.map(|(_, inode)| *inode).collect()
    };
    let exact =
        of(&|at, wanted| at.port() == wanted.port() && at.ip().to_canonical() == wanted.ip().to_canonical());
    match exact.is_empty() {
        true => of(&|at, wanted| at.port() == wanted.port() && at.ip().is_unspecified()),
        false => exact,
    }
}

/// Address and inode in a line of a listening socket:
/// `0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 12345 1 …`.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
    if state != LISTENING {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    Some((SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?), inode.parse().ok()?))
}

/// An address as words of 32 bits in the order of the machine.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (part, at) in bytes.chunks_exact_mut(4).zip([0, 8, 16, 24]) {
                part.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// The processes that have one of these sockets open: several, as a process and its children, or the one that
/// opened it for another.
fn holders(proc: &Path, inodes: &BTreeSet<u64>) -> Result<Vec<u32>, String> {
    let entries = std::fs::read_dir(proc).map_err(|error| format!("{}: {error}", proc.display()))?;
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let (mut seen, mut hidden, mut found) = (0, 0, Vec::new());
    for pid in pids {
        let files = match std::fs::read_dir(proc.join(pid.to_string()).join("fd")) {
            Ok(files) => files,
            // Processes end meanwhile.
            Err(error) => {
                hidden += usize::from(error.kind() == ErrorKind::PermissionDenied);
                continue;
            }
        };
        for file in files.flatten() {
            seen += 1;
            if seen > FILES_MAX {
                return Err(format!("it is not among the first {FILES_MAX} open files of this machine"));
            }
            let link = std::fs::read_link(file.path()).ok();
            let inode = link
                .as_deref()
                .and_then(Path::to_str)
                .and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
            if inode.is_some_and(|inode| inodes.contains(&inode)) {
                found.push(pid);
                break;
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(unknown_holder(hidden, rustix::process::geteuid().is_root()))
}

/// The reason why no process has a socket open, among which this many hide their open files.
fn unknown_holder(hidden: usize, is_root: bool) -> String {
    match (hidden, is_root) {
        (0, _) => "it belongs to no process that this machine lists: it may just have ended",
        (_, true) => {
            "it belongs to a process that hides its open files even from this root: start the agent outside of \
             its container, or with CAP_SYS_PTRACE"
        }
        (_, false) => {
            "it belongs to another user, whose processes the agent cannot see: start the agent as the \
             broker's user, or as root"
        }
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                       \x20  0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
                       \x20  1: 00000000:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0\n\
                       \x20  2: 0100007F:2385 0100007F:2384 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1\n\
                       \x20  3: 00000000000000000000000000000000:2386 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 14 1\n";

    fn inodes(address: &str) -> Vec<u64> {
        sockets(TCP, &[address.parse().expect("an address")]).into_iter().collect()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_socket_of_an_address_comes_before_that_of_all_addresses() {
        assert_eq!(inodes("127.0.0.1:9092"), [11]);
        assert_eq!(inodes("10.0.0.7:9092"), [12]);
        assert_eq!(inodes("127.0.0.1:9094"), [14], "a socket of all addresses of IPv6 takes those of IPv4");
        assert_eq!(inodes("127.0.0.1:9093"), [0; 0], "a connection does not listen");
        assert_eq!(inodes("127.0.0.1:1"), [0; 0]);
    }

    #[test]
    fn the_process_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        assert_eq!(processes(&[address]), Ok(vec![std::process::id()]));
        drop(listener);
        let why = processes(&[address]).expect_err("nothing listens");
        assert!(why.contains(&format!("no program listens at {address}")), "{why}");
    }

    #[test]
    fn a_hidden_socket_of_another_user_has_its_reason() {
        let why = unknown_holder(1, false);
        assert!(why.contains("as the broker's user, or as root"), "{why}");
        let why = unknown_holder(1, true);
        assert!(why.contains("CAP_SYS_PTRACE") && !why.contains("as root"), "{why}");
    }

    #[test]
    fn a_process_that_ended_meanwhile_is_not_that_of_another_user() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("7")).expect("made");
        let why = holders(dir.path(), &[11].into()).expect_err("it has no files any more");
        assert!(why.contains("it may just have ended"), "{why}");
    }
}
