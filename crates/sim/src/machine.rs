//! A simulated machine: its disk, its clocks, and its process.
//!
//! A process has its own runtime with one thread and a paused clock, which the simulation advances tick by
//! tick. A process can therefore be killed between two ticks with all its tasks, or be paused while time
//! continues.

use crate::network::{MachineId, SharedNetwork};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use thalweg_broker::broker::Broker;
use thalweg_broker::{Loading, start_controller_on, start_on};
use thalweg_config::{BrokerConfig, ServerProperties};
use thalweg_log::Clock;
use thalweg_log::disk::{Disk, Draw, MemoryDisk};
use thalweg_net::Machine;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The start time of a simulation, in milliseconds since 1970.
const BEGINS_MS: i64 = 1_800_000_000_000;

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process stopped on request.
    Stopped,
    /// The process failed for this reason.
    Failed(String),
}

/// The externally visible state of a process.
#[derive(Default)]
struct ProcessState {
    broker: Option<Arc<Broker>>,
    ended: Option<ProcessEnd>,
}

/// A machine and its process, if one runs.
pub struct SimMachine {
    /// Name in the network.
    pub name: String,
    /// Disk of the machine.
    pub disk: Arc<MemoryDisk>,
    id: MachineId,
    network: SharedNetwork,
    clock: Clock,
    /// Offset of the wall clock from the true time.
    clock_off_ms: i64,
    process: Option<Process>,
    held_until_ms: u64,
}

struct Process {
    runtime: Runtime,
    /// Start of the process by the runtime's clock and by simulated time.
    began: (Instant, u64),
    seen: Arc<Mutex<ProcessState>>,
    stop: Option<oneshot::Sender<()>>,
}

impl SimMachine {
    /// A machine without a process, with an empty disk.
    pub fn new(id: MachineId, name: &str, network: &SharedNetwork) -> SimMachine {
        let clock = Clock::manual(BEGINS_MS);
        SimMachine {
            name: name.to_owned(),
            disk: MemoryDisk::new(clock.clone()),
            id,
            network: network.clone(),
            clock,
            clock_off_ms: 0,
            process: None,
            held_until_ms: 0,
        }
    }

    /// True if a process runs.
    pub fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.seen.lock().ended.is_none())
    }

    /// The running broker, once it serves.
    pub fn broker(&self) -> Option<Arc<Broker>> {
        self.process.as_ref()?.seen.lock().broker.clone()
    }

    /// The end of the process, once it has ended.
    pub fn ended(&self) -> Option<ProcessEnd> {
        self.process.as_ref()?.seen.lock().ended.clone()
    }

    /// Starts a broker, a controller or both, by the properties.
    pub fn start_node(&mut self, now_ms: u64, properties: &ServerProperties) {
        let machine = Machine {
            clock: self.clock.clone(),
            disk: Disk::in_memory(Arc::clone(&self.disk)),
            network: self.network.of_broker(self.id),
            loggers: None,
        };
        let properties = properties.clone();
        self.start(now_ms, move |seen, stopped| run_node(machine, properties, seen, stopped));
    }

    /// Starts any other process.
    pub fn start_program<F: Future<Output = ()> + Send + 'static>(&mut self, now_ms: u64, program: F) {
        self.start(now_ms, move |_, _| async move {
            program.await;
            ProcessEnd::Stopped
        });
    }

    fn start<F, Fut>(&mut self, now_ms: u64, program: F)
    where
        F: FnOnce(Arc<Mutex<ProcessState>>, oneshot::Receiver<()>) -> Fut,
        Fut: Future<Output = ProcessEnd> + Send + 'static,
    {
        self.kill();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without a driver for the network can be made");
        let began = (runtime.block_on(async { Instant::now() }), now_ms);
        let seen = Arc::new(Mutex::new(ProcessState::default()));
        let (stop, stopped) = oneshot::channel();
        let program = program(Arc::clone(&seen), stopped);
        let told = Arc::clone(&seen);
        runtime.spawn(async move {
            let ended = program.await;
            let mut seen = told.lock();
            seen.broker = None;
            seen.ended = Some(ended);
        });
        self.held_until_ms = 0;
        self.process = Some(Process { runtime, began, seen, stop: Some(stop) });
    }

    /// Asks the process to stop cleanly.
    pub fn stop(&mut self) {
        if let Some(process) = &mut self.process {
            drop(process.stop.take());
        }
    }

    /// True if the process was asked to stop and has not ended yet.
    pub fn is_stopping(&self) -> bool {
        self.is_running() && self.process.as_ref().is_some_and(|process| process.stop.is_none())
    }

    /// Kills the process, like SIGKILL.
    pub fn kill(&mut self) {
        self.end(true);
    }

    /// Cuts the machine's power. `draw` decides which unsynced data survives.
    pub fn lose_power(&mut self, draw: Draw<'_>) {
        self.end(false);
        self.disk.lose_power(draw);
    }

    /// Kills the process and replaces the disk by an empty one.
    pub fn replace_disk(&mut self) {
        self.kill();
        self.disk = MemoryDisk::new(self.clock.clone());
    }

    fn end(&mut self, has_power: bool) {
        let Some(process) = self.process.take() else { return };
        // The disk and network end first, so that dropped tasks cannot reach them.
        self.disk.end_process();
        self.network.end_process(self.id, has_power);
        drop(process);
    }

    /// Pauses the process until this time, without its knowledge.
    pub fn hold_until(&mut self, until_ms: u64) {
        self.held_until_ms = until_ms;
    }

    /// True if the process is paused.
    pub fn is_held(&self, now_ms: u64) -> bool {
        now_ms < self.held_until_ms
    }

    /// Sets the offset of the wall clock from the true time.
    pub fn set_clock_off(&mut self, off_ms: i64) {
        self.clock_off_ms = off_ms;
    }

    /// Lets the process run until this time.
    pub fn run_until(&mut self, now_ms: u64) {
        let true_ms = BEGINS_MS + i64::try_from(now_ms).unwrap_or(i64::MAX);
        self.clock.set_ms(true_ms + self.clock_off_ms);
        if now_ms < self.held_until_ms {
            return;
        }
        let Some(process) = &self.process else { return };
        let (began, began_ms) = process.began;
        let target = began + Duration::from_millis(now_ms - began_ms);
        let span = tracing::info_span!("machine", name = self.name, at_ms = now_ms);
        let _entered = span.enter();
        let was_held = std::mem::take(&mut self.held_until_ms) != 0;
        process.runtime.block_on(async {
            if was_held {
                // The elapsed time passes in one step.
                tokio::time::advance(target.saturating_duration_since(Instant::now())).await;
            }
            tokio::time::sleep_until(target).await;
        });
    }
}

async fn run_node(
    machine: Machine,
    properties: ServerProperties,
    seen: Arc<Mutex<ProcessState>>,
    stopped: oneshot::Receiver<()>,
) -> ProcessEnd {
    let config = match BrokerConfig::new(&properties) {
        Ok(config) => config,
        Err(error) => return ProcessEnd::Failed(error.to_string()),
    };
    if !config.node.roles.broker {
        let server = match start_controller_on(&machine, config).await {
            Ok(server) => server,
            Err(error) => return ProcessEnd::Failed(error.to_string()),
        };
        let failed = tokio::select! {
            biased;
            _ = stopped => None,
            why = server.failed() => Some(why),
        };
        server.stop().await;
        return failed.map_or(ProcessEnd::Stopped, ProcessEnd::Failed);
    }
    let server = match start_on(&machine, config, &Loading::default()).await {
        Ok(server) => server,
        Err(error) => return ProcessEnd::Failed(error.to_string()),
    };
    seen.lock().broker = Some(Arc::clone(&server.broker));
    let failed = tokio::select! {
        biased;
        _ = stopped => None,
        why = server.failed() => Some(why),
    };
    server.stop().await;
    failed.map_or(ProcessEnd::Stopped, ProcessEnd::Failed)
}
