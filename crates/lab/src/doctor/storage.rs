//! The disk and file system of the data: type, mount options and measured write speed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::time::Instant;

use super::{Advice, size};
use crate::machine::mount::Mount;
use crate::machine::{chosen, line};

const HOST: &str = "host";

/// The test of the write speed.
#[derive(Clone)]
pub struct DiskTest {
    /// Bytes to write at most.
    bytes: u64,
    /// The time after which it ends; `None` for a test of all its bytes.
    time: Option<Duration>,
    /// Called with the bytes written so far.
    progress: Arc<dyn Fn(u64) + Send + Sync>,
}

impl DiskTest {
    /// At most 256 MB, for less than a second.
    pub fn short() -> DiskTest {
        DiskTest { bytes: 256 << 20, time: Some(Duration::from_millis(700)), progress: Arc::new(|_| ()) }
    }

    /// So many bytes, however long that takes: more than the caches of the disk and its controller hold.
    pub fn long(bytes: u64, progress: impl Fn(u64) + Send + Sync + 'static) -> DiskTest {
        DiskTest { bytes, time: None, progress: Arc::new(progress) }
    }
}

/// The bytes of which a long test shows the speed.
const STRETCH: u64 = 1 << 30;
/// Free space that a long test leaves.
const LEFT_FREE: u64 = 1 << 30;

/// Bytes between two syncs.
const WRITE_BYTES: usize = 8 << 20;

/// Duration and count of small synced writes.
const SYNC_TIME: Duration = Duration::from_millis(300);
const SYNCS_MAX: usize = 50;

/// Size of a small write: a block.
const SYNC_BYTES: usize = 4096;

/// Examines the file system of `data_dir` and its disk.
pub(super) fn examine(data_dir: &Path, test: &DiskTest) -> Vec<Advice> {
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
    match write(data_dir, test) {
        Ok(measured) => {
            advice.extend([write_speed(measured.bytes_per_s), sync_time(measured.sync)]);
            advice.extend(sustained(&measured.stretches));
        }
        Err(error) => advice.push(
            Advice::fine(
                HOST,
                "write speed",
                format!("cannot write to {}: {error}", data_dir.display()),
                "Brokers store their data there.",
            )
            .warning("use a directory that this user can write"),
        ),
    }
    advice
}

fn file_system(mount: &Mount) -> Advice {
    let found = format!("{} at {}", mount.kind, mount.point.display());
    let advice = |why| Advice::fine(HOST, "file system", found.clone(), why);
    match mount.kind.as_str() {
        "ext4" | "xfs" => advice("Logs are appended and synced; ext4 and xfs do both well."),
        "tmpfs" | "ramfs" => advice(
            "Data in memory does not exercise a disk and does not survive the machine: figures measured here hold for no \
             durable log.",
        )
        .warning("use a directory on ext4 or xfs"),
        "overlay" | "aufs" => advice("A container's layer copies files on their first change, and syncs more slowly.")
            .warning("mount a volume into the container"),
        "nfs" | "nfs4" | "cifs" | "9p" | "fuse" | "fuseblk" | "virtiofs" => advice(
            "Each sync crosses a network or another process; Kafka is known to fail on NFS when it deletes open files.",
        )
        .warning("use a local ext4 or xfs"),
        "btrfs" | "zfs" => advice("Copy on write costs processor time and memory, without use for append-only logs.")
            .note("use ext4 or xfs, if possible"),
        _ => advice("Its performance for appends and syncs is unknown.").note("use ext4 or xfs, or check the speeds below"),
    }
}

fn options(mount: &Mount) -> Advice {
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    let found = mount.options.join(",");
    let advice = |why| Advice::fine(HOST, "mount options", found.clone(), why);
    if has("nobarrier") || has("barrier=0") {
        return advice("Without barriers a sync returns before the disk has the data: a power failure loses synced data.")
            .warning("remove nobarrier");
    }
    if has("sync") {
        return advice("Every write waits for the disk, whatever flush.messages says.")
            .warning("remove sync");
    }
    if has("data=journal") {
        return advice("All data is written twice.").warning("use data=ordered, the default");
    }
    if has("strictatime") {
        return advice("Every read of a segment updates its access time.").warning("use noatime");
    }
    if has("discard") {
        return advice(
            "Deleting a segment sends a discard for each freed range at once, which is slow on some disks.",
        )
        .note("if deletions show in the latency, use periodic fstrim instead");
    }
    advice("Access times cost writes; noatime has none, relatime almost none.")
}

fn disk_scheduler(disk: &str, scheduler: &str, rotates: bool) -> Advice {
    let kind = if rotates { ", a rotating disk" } else { "" };
    let found = format!("{scheduler} for {disk}{kind}");
    let why = "Logs are written in large sequential pieces: reordering gains nothing on a disk without heads, and costs time.";
    let advice = Advice::fine(HOST, "disk scheduler", found, why);
    match (scheduler, rotates) {
        ("bfq" | "cfq", false) => {
            advice.warning("use none or mq-deadline: bfq's fairness costs throughput and latency")
        }
        ("kyber", true) | ("none", true) if !disk.starts_with("vd") && !disk.starts_with("nvme") => {
            advice.note("use mq-deadline, which orders requests for the heads")
        }
        _ => advice,
    }
}

fn free_space(free_bytes: u64, all_bytes: u64) -> Advice {
    let found = format!("{} of {}", size(free_bytes), size(all_bytes));
    let advice =
        Advice::fine(HOST, "free space", found, "A full disk stops a broker; a nearly full one is slower.");
    if free_bytes < 2 << 30 {
        return advice.warning("provide at least 2 GB, plus the retained data");
    }
    if free_bytes < all_bytes / 10 {
        return advice
            .note("keep a tenth of the disk free, so that the file system can allocate contiguously");
    }
    advice
}

fn write_speed(bytes_per_s: f64) -> Advice {
    let records = bytes_per_s / 128.0 / 1e6;
    let found = format!(
        "{:.0} MB/s with fdatasync, enough for {records:.1} M records/s of 128 bytes, one replica",
        bytes_per_s / f64::from(1 << 20)
    );
    let why = "Up to the kernel's dirty limit a broker writes to memory; beyond it, and in the long run, no faster than \
               the disk.";
    let advice = Advice::fine(HOST, "write speed", found, why);
    match bytes_per_s / f64::from(1 << 20) {
        speed if speed < 100.0 => advice
            .warning("use several disks in log.dirs, or a faster one, or keep runs below the dirty limit"),
        speed if speed < 300.0 => advice.note("use a faster disk if the sustained load exceeds this"),
        _ => advice,
    }
}

/// The speed of each stretch of a long test.
fn sustained(stretches: &[f64]) -> Option<Advice> {
    let (first, slowest) = (stretches.first()?, stretches.iter().copied().reduce(f64::min)?);
    let mb = |bytes_per_s: &f64| format!("{:.0}", bytes_per_s / f64::from(1 << 20));
    let each: Vec<String> = stretches.iter().map(mb).collect();
    let found = format!("{} MB/s for each GB in turn", each.join(", "));
    let why =
        "Caches of disks, controllers and clouds take the first gigabytes faster than the disk can go on.";
    let advice = Advice::fine(HOST, "sustained write speed", found, why);
    Some(match slowest < first * 0.7 {
        true => advice.warning(format!("plan with the slowest, {} MB/s", mb(&slowest))),
        false => advice,
    })
}

fn sync_time(sync: Duration) -> Advice {
    let ms = sync.as_secs_f64() * 1e3;
    let found = format!("{ms:.2} ms for 4 KB (median)");
    let why = "With flush.messages=1 each acknowledgement waits for a sync, and Kafka's controllers wait for one at each \
               metadata change.";
    let advice = Advice::fine(HOST, "fdatasync", found, why);
    if ms > 10.0 {
        advice.warning("use a disk with a power-loss-protected write cache, or replicate instead of syncing")
    } else if ms > 3.0 {
        advice.note("replicate instead of syncing, or use a linger.ms that lets one sync serve many records")
    } else if ms < 0.05 {
        advice.note("check the disk's write cache: a sync this fast does not reach a disk, and may not survive a power failure")
    } else {
        advice
    }
}

/// Results of the write test.
struct WriteResult {
    bytes_per_s: f64,
    /// Bytes per second of each whole stretch of a long test.
    stretches: Vec<f64>,
    sync: Duration,
}

fn write(dir: &Path, test: &DiskTest) -> io::Result<WriteResult> {
    let space = rustix::fs::statvfs(dir)?;
    let free = space.f_bavail * space.f_frsize;
    if test.time.is_none() && test.bytes + LEFT_FREE > free {
        let what = format!("{} of test data do not fit into the free {}", size(test.bytes), size(free));
        return Err(io::Error::new(io::ErrorKind::StorageFull, what));
    }
    let path = dir.join(format!(".thalweg-lab-doctor-{}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    // Unlinked, so that it is removed with this process.
    rustix::fs::unlink(&path)?;
    // Incompressible data: neither zeros nor a short pattern.
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
    let (mut stretches, mut stretch_began) = (Vec::new(), began);
    while written < test.bytes && test.time.is_none_or(|time| began.elapsed() < time) {
        let mut left = &data[..];
        while !left.is_empty() {
            let count = rustix::io::pwrite(&file, left, written)?;
            written += count as u64;
            left = &left[count..];
        }
        rustix::fs::fdatasync(&file)?;
        (test.progress)(written);
        if test.time.is_none() && written % STRETCH == 0 {
            stretches.push(STRETCH as f64 / stretch_began.elapsed().as_secs_f64().max(1e-6));
            stretch_began = Instant::now();
        }
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
    Ok(WriteResult { bytes_per_s, stretches, sync: syncs[syncs.len() / 2] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn mount(kind: &str, options: &str) -> Mount {
        let options = options.split(',').map(str::to_owned).collect();
        Mount { kind: kind.to_owned(), options, ..Mount::default() }
    }

    #[test]
    fn unsafe_and_slow_file_systems_are_reported() {
        let severity = |kind| file_system(&mount(kind, "rw")).severity;
        assert_eq!(severity("ext4"), Severity::Fine);
        assert_eq!(severity("tmpfs"), Severity::Warning);
        assert_eq!(severity("overlay"), Severity::Warning);
        assert_eq!(severity("zfs"), Severity::Note);
    }

    #[test]
    fn the_worst_mount_option_is_reported() {
        let severity = |options| options_severity(options);
        assert_eq!(severity("rw,noatime"), Severity::Fine);
        assert_eq!(severity("rw,relatime,discard"), Severity::Note);
        assert_eq!(severity("rw,discard,nobarrier"), Severity::Warning);
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
    fn a_disk_that_slows_down_is_planned_with_its_slowest_speed() {
        let mb = |speed: f64| speed * f64::from(1 << 20);
        let slowing = sustained(&[mb(900.0), mb(880.0), mb(300.0)]).expect("measured");
        assert_eq!(slowing.severity, Severity::Warning);
        assert!(
            slowing.found.starts_with("900, 880, 300 MB/s") && slowing.right.contains("300 MB/s"),
            "{slowing:?}"
        );
        assert_eq!(sustained(&[mb(900.0), mb(800.0)]).expect("measured").severity, Severity::Fine);
        assert_eq!(sustained(&[]), None);
    }

    #[test]
    fn a_long_test_writes_all_its_bytes_and_refuses_more_than_fit() {
        let dir = tempfile::tempdir().expect("a directory");
        let told = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let heard = Arc::clone(&told);
        let test =
            DiskTest::long(24 << 20, move |bytes| heard.store(bytes, std::sync::atomic::Ordering::Relaxed));
        let measured = write(dir.path(), &test).expect("it fits");
        assert!(measured.bytes_per_s > 0.0 && measured.stretches.is_empty(), "less than a stretch");
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 24 << 20);
        let Err(error) = write(dir.path(), &DiskTest::long(1 << 60, |_| ())) else { panic!("it cannot fit") };
        assert!(error.to_string().contains("do not fit into the free"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn speeds_are_judged_by_sustainable_load() {
        assert_eq!(write_speed(50e6).severity, Severity::Warning);
        assert_eq!(write_speed(200e6).severity, Severity::Note);
        assert_eq!(write_speed(800e6).severity, Severity::Fine);
        assert_eq!(sync_time(Duration::from_millis(20)).severity, Severity::Warning);
        assert_eq!(sync_time(Duration::from_micros(700)).severity, Severity::Fine);
        assert_eq!(sync_time(Duration::from_micros(5)).severity, Severity::Note);
    }
}
