//! The memory of Pulsar's JVM: its heap, and the buffers outside of it, in which the bookie collects entries
//! and the broker caches them.

use crate::target::apache_kafka::sets_heap;

/// The environment variable with the options of Pulsar's memory, as for Pulsar's script.
pub(super) const VARIABLE: &str = "PULSAR_MEM";
/// Pulsar's own sizes (`conf/pulsar_env.sh`), in MiB.
const HEAP_MB: u64 = 2048;
const BUFFERS_MB: u64 = 4096;
/// The minimum of both.
const MB_MIN: u64 = 256;

/// The minimum memory of a node: below it nothing is left for threads, code and cached pages.
pub(crate) const NODE_MB_MIN: u32 = 1024;

/// The sizes of a JVM in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PulsarMemory {
    heap_mb: u64,
    buffers_mb: u64,
}

impl PulsarMemory {
    /// Pulsar's own sizes, as far as three eighths of the machine suffice: others run there, too.
    pub(crate) fn on_machine(memory_mb: u64) -> PulsarMemory {
        PulsarMemory::within(memory_mb / 8 * 3)
    }

    /// Pulsar's own sizes, as far as the memory of a limited node suffices. `None` if it is too little.
    pub(super) fn on_node(memory_mb: u32) -> Option<PulsarMemory> {
        (memory_mb >= NODE_MB_MIN).then(|| PulsarMemory::within(memory_mb.into()))
    }

    /// Pulsar's own sizes, but at most a quarter for the heap and three eighths for the buffers. The rest is
    /// for threads, code and cached pages.
    fn within(memory_mb: u64) -> PulsarMemory {
        PulsarMemory {
            heap_mb: (memory_mb / 4).clamp(MB_MIN, HEAP_MB),
            buffers_mb: (memory_mb / 8 * 3).clamp(MB_MIN, BUFFERS_MB),
        }
    }

    /// The bytes of both.
    pub(crate) fn bytes(self) -> u64 {
        (self.heap_mb + self.buffers_mb) << 20
    }

    /// The options of the JVM, without those that are among `more`. `named` takes the place of all.
    pub(super) fn options(self, named: Option<String>, more: &[String]) -> String {
        if let Some(named) = named.filter(|named| !named.trim().is_empty()) {
            return named;
        }
        let PulsarMemory { heap_mb, buffers_mb } = self;
        let heap = (!sets_heap(more)).then(|| format!("-Xms{heap_mb}m -Xmx{heap_mb}m"));
        let has_buffers = more.iter().any(|option| option.starts_with("-XX:MaxDirectMemorySize="));
        let buffers = (!has_buffers).then(|| format!("-XX:MaxDirectMemorySize={buffers_mb}m"));
        heap.into_iter().chain(buffers).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_pulsars_if_the_memory_suffices() {
        let options = |memory_mb| PulsarMemory::within(memory_mb).options(None, &[]);
        assert_eq!(options(16_384), "-Xms2048m -Xmx2048m -XX:MaxDirectMemorySize=4096m");
        assert_eq!(options(4096), "-Xms1024m -Xmx1024m -XX:MaxDirectMemorySize=1536m");
        assert_eq!(options(100), "-Xms256m -Xmx256m -XX:MaxDirectMemorySize=256m");
        assert_eq!(PulsarMemory::on_node(4096), Some(PulsarMemory::within(4096)));
        assert_eq!(PulsarMemory::on_node(1023), None);
        assert_eq!(PulsarMemory::on_machine(32_768).bytes(), 6 << 30);
        assert_eq!(PulsarMemory::on_machine(16_384), PulsarMemory::within(6144));
    }

    #[test]
    fn the_users_sizes_take_the_place_of_the_labs() {
        let memory = PulsarMemory::within(16_384);
        let more = |options: &[&str]| options.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(memory.options(None, &more(&["-Xmx1g"])), "-XX:MaxDirectMemorySize=4096m");
        let both = more(&["-Xmx1g", "-XX:MaxDirectMemorySize=1g"]);
        assert_eq!(memory.options(None, &both), "");
        assert_eq!(memory.options(Some("-Xmx3g".to_owned()), &both), "-Xmx3g");
        assert!(memory.options(Some(" ".to_owned()), &[]).starts_with("-Xms2048m"));
    }
}
