//! The disk and the file system that hold the data: what they are, how they are mounted, and how fast they really write.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::time::Instant;

use super::{Advice, size};
use crate::machine::mount::Mount;
use crate::machine::{chosen, line};

const HOST: &str = "host";

/// How long the write speed is measured, and up to how many bytes.
const WRITE_TIME: Duration = Duration::from_millis(700);
const WRITE_BYTES_MAX: u64 = 256 << 20;

/// Written between two syncs.
const WRITE_BYTES: usize = 8 << 20;

/// How long and how often a small write is synced.
const SYNC_TIME: Duration = Duration::from_millis(300);
const SYNCS_MAX: usize = 50;

/// A small write: a block.
const SYNC_BYTES: usize = 4096;

/// Looks at them.
pub(super) fn examine(data_dir: &Path) -> Vec<Advice> {
    let mut advice = Vec::new();
    if let Some(mount) = Mount::of(data_dir) {
        advice.push(file_system(&mount));
        advice.push(options(&mount));
        if let Some(disk) = mount.disk() {
            let queue = |name: &str| line(&format!("/sys/block/{disk}/queue/{name}"));
            let rotates = queue("rotational").as_deref() == Some("1");
            if let Some(scheduler) = queue("scheduler").and_then(|text| chosen(&text)) {
                advice.push(disk_scheduler(&disk, &scheduler, rotates));
            }
        }
    }
    if let Ok(space) = rustix::fs::statvfs(data_dir) {
        advice.push(free_space(space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize));
    }
    match write(data_dir) {
        Ok(measured) => advice.extend([write_speed(measured.bytes_per_s), sync_time(measured.sync)]),
        Err(error) => advice.push(
            Advice::fine(
                HOST,
                "write speed",
                format!("{} cannot be written: {error}", data_dir.display()),
                "A broker's data lies there.",
            )
            .warning("a directory that this user may write"),
        ),
    }
    advice
}

fn file_system(mount: &Mount) -> Advice {
    let found = format!("{} at {}", mount.kind, mount.point.display());
    let advice = |why| Advice::fine(HOST, "file system", found.clone(), why);
    match mount.kind.as_str() {
        "ext4" | "xfs" => advice("Logs are appended to and synced; ext4 and xfs do both well."),
        "tmpfs" | "ramfs" => advice(
            "Data in memory measures no disk, and does not outlive the machine: figures taken here hold for no \
             durable log.",
        )
        .warning("a directory on ext4 or xfs"),
        "overlay" | "aufs" => advice("A container's layer copies files when they are first changed, and is slower to sync.")
            .warning("a volume that is mounted into the container"),
        "nfs" | "nfs4" | "cifs" | "9p" | "fuse" | "fuseblk" | "virtiofs" => advice(
            "Each sync crosses a network or another process; Kafka is known to fail on NFS when it deletes open files.",
        )
        .warning("a local ext4 or xfs"),
        "btrfs" | "zfs" => advice("Copy on write costs processor time and memory for a log that is only appended to.")
            .note("ext4 or xfs, where a choice remains"),
        _ => advice("How well it appends and syncs is not known here.").note("ext4 or xfs, or a look at the speeds below"),
    }
}

fn options(mount: &Mount) -> Advice {
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    let found = mount.options.join(",");
    let advice = |why| Advice::fine(HOST, "mount options", found.clone(), why);
    if has("nobarrier") || has("barrier=0") {
        return advice("Without barriers a sync returns before the disk has the data: a power cut loses what was synced.")
            .warning("without nobarrier");
    }
    if has("sync") {
        return advice("Every write waits for the disk, whatever flush.messages says.")
            .warning("without sync");
    }
    if has("data=journal") {
        return advice("All data is written twice.").warning("data=ordered, the default");
    }
    if has("strictatime") {
        return advice("Every read of a segment writes its time of access.").warning("noatime");
    }
    if has("discard") {
        return advice(
            "Deleting a segment tells the disk of each freed range at once, which some disks take long for.",
        )
        .note("fstrim from time to time instead, if deletions show in the latency");
    }
    advice("Times of access cost writes; noatime has none, relatime next to none.")
}

fn disk_scheduler(disk: &str, scheduler: &str, rotates: bool) -> Advice {
    let kind = if rotates { ", a disk that says it rotates" } else { "" };
    let found = format!("{scheduler} for {disk}{kind}");
    let why = "A log writes large pieces in order: sorting them gains nothing on a disk without heads, and costs time.";
    let advice = Advice::fine(HOST, "disk scheduler", found, why);
    match (scheduler, rotates) {
        ("bfq" | "cfq", false) => {
            advice.warning("none or mq-deadline: bfq's fairness costs throughput and latency")
        }
        ("kyber", true) | ("none", true) if !disk.starts_with("vd") && !disk.starts_with("nvme") => {
            advice.note("mq-deadline: it orders requests for the heads")
        }
        _ => advice,
    }
}

fn free_space(free_bytes: u64, all_bytes: u64) -> Advice {
    let found = format!("{} of {}", size(free_bytes), size(all_bytes));
    let advice =
        Advice::fine(HOST, "free space", found, "A full disk stops a broker; a nearly full one is slower.");
    if free_bytes < 2 << 30 {
        return advice.warning("at least 2 GB, and what retention keeps");
    }
    if free_bytes < all_bytes / 10 {
        return advice.note("a tenth of the disk or more, so that the file system finds room in one piece");
    }
    advice
}

fn write_speed(bytes_per_s: f64) -> Advice {
    let records = bytes_per_s / 128.0 / 1e6;
    let found = format!(
        "{:.0} MB/s with fdatasync, enough for {records:.1} M records/s of 128 bytes, one replica",
        bytes_per_s / f64::from(1 << 20)
    );
    let why = "Until the kernel's dirty limit a broker writes to memory; beyond it, and in the long run, no faster than \
               the disk.";
    let advice = Advice::fine(HOST, "write speed", found, why);
    match bytes_per_s / f64::from(1 << 20) {
        speed if speed < 100.0 => advice
            .warning("several disks as log.dirs, or a faster one; a run that stays below the dirty limit"),
        speed if speed < 300.0 => advice.note("a faster disk, when the load is in the long run above this"),
        _ => advice,
    }
}

fn sync_time(sync: Duration) -> Advice {
    let ms = sync.as_secs_f64() * 1e3;
    let found = format!("{ms:.2} ms for 4 KB, the median");
    let why = "With flush.messages=1 each acknowledgement waits for it, and Kafka's controllers wait for it at each \
               change of metadata.";
    let advice = Advice::fine(HOST, "fdatasync", found, why);
    if ms > 10.0 {
        advice.warning("a disk with a write cache that survives a power cut, or replication instead of syncs")
    } else if ms > 3.0 {
        advice.note("replication instead of syncs, or a linger.ms that lets one sync serve many records")
    } else if ms < 0.05 {
        advice.note("a look at the disk's write cache: so quick an answer does not come from a disk, and may not survive a power cut")
    } else {
        advice
    }
}

/// What writing found.
struct Measured {
    bytes_per_s: f64,
    sync: Duration,
}

fn write(dir: &Path) -> io::Result<Measured> {
    let path = dir.join(format!(".thalweg-lab-doctor-{}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    // Without a name it goes away with this process, however that ends.
    rustix::fs::unlink(&path)?;
    // No file system and no disk makes less of it: neither zeros nor a short pattern.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut data = Vec::with_capacity(WRITE_BYTES);
    while data.len() < WRITE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    let began = Instant::now();
    let mut written = 0;
    while written < WRITE_BYTES_MAX && began.elapsed() < WRITE_TIME {
        let mut left = &data[..];
        while !left.is_empty() {
            let count = rustix::io::pwrite(&file, left, written)?;
            written += count as u64;
            left = &left[count..];
        }
        rustix::fs::fdatasync(&file)?;
    }
    let bytes_per_s = written as f64 / began.elapsed().as_secs_f64().max(1e-6);
    let mut syncs = Vec::new();
    let began = Instant::now();
    while syncs.is_empty() || (syncs.len() < SYNCS_MAX && began.elapsed() < SYNC_TIME) {
        rustix::io::pwrite(&file, &data[..SYNC_BYTES], written)?;
        written += SYNC_BYTES as u64;
        let at = Instant::now();
        rustix::fs::fdatasync(&file)?;
        syncs.push(at.elapsed());
    }
    syncs.sort();
    Ok(Measured { bytes_per_s, sync: syncs[syncs.len() / 2] })
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn mount(kind: &str, options: &str) -> Mount {
        let options = options.split(',').map(str::to_owned).collect();
        Mount { kind: kind.to_owned(), options, ..Mount::default() }
    }

    #[test]
    fn file_systems_that_lose_data_or_time_are_told() {
        let severity = |kind| file_system(&mount(kind, "rw")).severity;
        assert_eq!(severity("ext4"), Severity::Fine);
        assert_eq!(severity("tmpfs"), Severity::Warning);
        assert_eq!(severity("overlay"), Severity::Warning);
        assert_eq!(severity("zfs"), Severity::Note);
    }

    #[test]
    fn the_gravest_mount_option_is_told() {
        let told = |options| options_severity(options);
        assert_eq!(told("rw,noatime"), Severity::Fine);
        assert_eq!(told("rw,relatime,discard"), Severity::Note);
        assert_eq!(told("rw,discard,nobarrier"), Severity::Warning);
    }

    fn options_severity(text: &str) -> Severity {
        options(&mount("ext4", text)).severity
    }

    #[test]
    fn a_scheduler_is_judged_by_the_disk() {
        assert_eq!(disk_scheduler("nvme0n1", "none", false).severity, Severity::Fine);
        assert_eq!(disk_scheduler("sda", "bfq", false).severity, Severity::Warning);
        assert_eq!(disk_scheduler("sda", "none", true).severity, Severity::Note);
        assert_eq!(disk_scheduler("vda", "none", true).severity, Severity::Fine);
    }

    #[test]
    fn speeds_are_judged_by_what_they_carry() {
        assert_eq!(write_speed(50e6).severity, Severity::Warning);
        assert_eq!(write_speed(200e6).severity, Severity::Note);
        assert_eq!(write_speed(800e6).severity, Severity::Fine);
        assert_eq!(sync_time(Duration::from_millis(20)).severity, Severity::Warning);
        assert_eq!(sync_time(Duration::from_micros(700)).severity, Severity::Fine);
        assert_eq!(sync_time(Duration::from_micros(5)).severity, Severity::Note);
    }
}
