//! Limits that traffic control (`tc`) sets on what interfaces send, from the kernel by netlink.
//!
//! Two disciplines at the root of an interface are known: `tbf` by its rate, and `htb` by the ceilings of
//! its root classes together. Other disciplines share or order what an interface sends, and limit nothing
//! that is known here. Nothing limits what an interface receives but the sender.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, sendto, socket_with, sockopt};

/// Message types of `linux/netlink.h` and `linux/rtnetlink.h`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_CLASS: u16 = 40;
const GET_CLASS: u16 = 42;
const NEW_DISCIPLINE: u16 = 36;
const GET_DISCIPLINE: u16 = 38;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// The parent of a root discipline or class, `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

const HEADER_BYTES: usize = 16;
/// The size of `struct tcmsg`.
const SUBJECT_BYTES: usize = 20;
/// Attributes of `linux/rtnetlink.h`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Attributes of `linux/pkt_sched.h`: `TCA_TBF_PARMS`, `TCA_TBF_RATE64`, `TCA_HTB_PARMS`, `TCA_HTB_CEIL64`.
const TBF: (u16, u16) = (1, 4);
const HTB: (u16, u16) = (1, 7);
/// The rate within `struct tc_tbf_qopt` and the ceiling within `struct tc_htb_opt`, in bytes per second. A
/// `struct tc_ratespec` has 12 bytes, the last four of which are the rate.
const TBF_RATE_AT: usize = 8;
const HTB_CEILING_AT: usize = 20;

/// The largest answer of the kernel, and the time limit for one.
const ANSWER_BYTES: usize = 1 << 16;
const TIMEOUT: Duration = Duration::from_secs(1);

/// Bits per second that an interface may send, by the name of the interface. Empty where the kernel does not
/// answer.
pub(crate) fn limits() -> BTreeMap<String, u64> {
    read().unwrap_or_default()
}

fn read() -> io::Result<BTreeMap<String, u64>> {
    // Without a protocol it is number 0, NETLINK_ROUTE.
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&kernel, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    let ask = |kind: u16, interface: i32| -> io::Result<Vec<Subject>> {
        sendto(&kernel, &request(kind, interface), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut found = Vec::new();
        let mut answer = vec![0; ANSWER_BYTES];
        loop {
            let (_, count) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
            if count == 0 || subjects(&answer[..count], &mut found) {
                return Ok(found);
            }
        }
    };
    let mut limits = BTreeMap::new();
    for discipline in ask(GET_DISCIPLINE, 0)?.iter().filter(|subject| subject.parent == ROOT) {
        let bytes_per_s = match discipline.kind.as_str() {
            "tbf" => discipline.rate(TBF, TBF_RATE_AT),
            "htb" => ceilings(&ask(GET_CLASS, discipline.interface)?),
            _ => None,
        };
        if let Some(bytes_per_s) = bytes_per_s
            && let Ok(index) = u32::try_from(discipline.interface)
            && let Ok(name) = rustix::net::netdevice::index_to_name(&kernel, index)
        {
            limits.insert(name, bytes_per_s.saturating_mul(8));
        }
    }
    Ok(limits)
}

/// A discipline or class of an interface.
#[derive(Debug, Default, PartialEq, Eq)]
struct Subject {
    /// The index of the interface.
    interface: i32,
    parent: u32,
    kind: String,
    options: Vec<u8>,
}

impl Subject {
    /// A rate in bytes per second: a number of 64 bits if the kernel has sent one, as for rates above 4 GB/s,
    /// or else one of 32 bits within the parameters.
    fn rate(&self, (parameters, large): (u16, u16), at: usize) -> Option<u64> {
        let find = |wanted: u16| attributes(&self.options).find(|(kind, _)| *kind == wanted);
        let large =
            find(large).and_then(|(_, bytes)| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?)));
        let small = || u32_at(find(parameters)?.1, at).map(u64::from);
        large.or_else(small).filter(|bytes_per_s| *bytes_per_s > 0)
    }
}

/// The ceilings of the root classes, summed.
fn ceilings(classes: &[Subject]) -> Option<u64> {
    let roots = classes.iter().filter(|class| class.parent == ROOT && class.kind == "htb");
    roots.map(|class| class.rate(HTB, HTB_CEILING_AT)).sum::<Option<u64>>().filter(|sum| *sum > 0)
}

/// A request for all disciplines, or for the classes of an interface.
fn request(kind: u16, interface: i32) -> Vec<u8> {
    let length = HEADER_BYTES + SUBJECT_BYTES;
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(DUMP.to_ne_bytes());
    // Sequence and port are the kernel's to choose.
    message.extend([0; 8]);
    // Family and padding.
    message.extend([0; 4]);
    message.extend(interface.to_ne_bytes());
    message.resize(length, 0);
    message
}

/// Adds the disciplines and classes in an answer. Returns true if the answer is the last one.
fn subjects(mut answer: &[u8], found: &mut Vec<Subject>) -> bool {
    while let Some(length) = u32_at(answer, 0).and_then(|length| usize::try_from(length).ok()) {
        let Some(message) = answer.get(..length).filter(|message| message.len() >= HEADER_BYTES) else {
            break;
        };
        match u16_at(message, 4) {
            Some(DONE | ERROR) | None => return true,
            Some(NEW_DISCIPLINE | NEW_CLASS) => found.extend(subject(&message[HEADER_BYTES..])),
            Some(_) => {}
        }
        answer = answer.get(aligned(length)..).unwrap_or_default();
    }
    false
}

fn subject(message: &[u8]) -> Option<Subject> {
    let interface = i32::from_ne_bytes(message.get(4..8)?.try_into().ok()?);
    let mut subject = Subject { interface, parent: u32_at(message, 12)?, ..Subject::default() };
    for (kind, value) in attributes(message.get(SUBJECT_BYTES..)?) {
        match kind {
            KIND => subject.kind = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            OPTIONS => value.clone_into(&mut subject.options),
            _ => {}
        }
    }
    Some(subject)
}

/// The attributes in some bytes: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn aligned(length: usize) -> usize {
    length.div_ceil(4) * 4
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn message(kind: u16, parent: u32, name: &str, options: &[u8]) -> Vec<u8> {
        let mut body = vec![0; SUBJECT_BYTES];
        body[4..8].copy_from_slice(&7i32.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        body.extend(attribute(KIND, format!("{name}\0").as_bytes()));
        body.extend(attribute(OPTIONS, options));
        let length = u32::try_from(HEADER_BYTES + body.len()).expect("short");
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    /// Parameters with the numbers of two `tc_ratespec`.
    fn parameters(rate: u32, ceiling: u32) -> Vec<u8> {
        let spec = |rate: u32| [&[0; 8][..], &rate.to_ne_bytes()].concat();
        attribute(1, &[spec(rate), spec(ceiling), vec![0; 20]].concat())
    }

    #[test]
    fn rates_of_disciplines_and_classes_are_read_from_the_kernels_answer() {
        let mut answer = message(NEW_DISCIPLINE, ROOT, "tbf", &parameters(12_500_000, 0));
        answer.extend(message(NEW_CLASS, ROOT, "htb", &parameters(1, 6_250_000)));
        answer.extend(message(NEW_CLASS, 0x1_0001, "htb", &parameters(1, 6_250_000)));
        let mut found = Vec::new();
        assert!(!subjects(&answer, &mut found), "more may follow");
        assert_eq!((found.len(), found[0].kind.as_str(), found[0].interface), (3, "tbf", 7));
        assert_eq!(found[0].rate(TBF, TBF_RATE_AT), Some(12_500_000));
        assert_eq!(ceilings(&found), Some(6_250_000), "those of root classes only");
        let large = [parameters(u32::MAX, 0), attribute(4, &5_000_000_000u64.to_ne_bytes())].concat();
        let mut found = Vec::new();
        let mut answer = message(NEW_DISCIPLINE, ROOT, "tbf", &large);
        answer.extend([16u32.to_ne_bytes().to_vec(), DONE.to_ne_bytes().to_vec(), vec![0; 10]].concat());
        assert!(subjects(&answer, &mut found), "it is the last one");
        assert_eq!(found[0].rate(TBF, TBF_RATE_AT), Some(5_000_000_000));
    }

    #[test]
    fn broken_answers_end_the_reading() {
        let whole = message(NEW_DISCIPLINE, ROOT, "tbf", &parameters(12_500_000, 0));
        for length in 0..whole.len() {
            let mut found = Vec::new();
            subjects(&whole[..length], &mut found);
            assert_eq!(found, [], "{length}");
        }
        let mut endless = whole.clone();
        endless[..4].copy_from_slice(&0u32.to_ne_bytes());
        assert!(!subjects(&endless, &mut Vec::new()));
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0);
    }

    #[test]
    fn the_kernel_answers() {
        let found = read();
        assert!(found.is_ok(), "{found:?}");
    }
}
