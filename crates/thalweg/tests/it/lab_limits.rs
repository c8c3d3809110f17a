//! Limits that are planted, and named by the verdict: a heap, a lock, a device, an interface and a client
//! machine. The same run without the plant names another one.
//!
//! In the nightly form of `scripts/test`, which runs nothing else meanwhile. A device and an interface need
//! root; without it these tests are skipped.
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

mod plants;

use std::path::Path;
use std::process::Command;

use thalweg_lab::result::{PointResult, Verdict};

use crate::lab::{LabDirectory, alone, assert_ends_with, ran};
use crate::lab_agents::Agent;
use crate::node::Node;
pub(crate) use plants::Spinning;
use plants::{NamespacePair, SlowDevice};

/// Maximum number of runs: another program may have used the processors.
const ATTEMPTS: u32 = 3;

/// A workload of 1 KB records, with more settings.
fn workload(more: &str) -> LabDirectory {
    LabDirectory::with(&format!(
        "title = \"A limit\"\ndescription = \"A limit.\"\nlabel = \"only\"\nverify = \"off\"\n\
         records.size_bytes = 1000\n{more}\n"
    ))
}

/// The result of a run, which is repeated where other programs used the processors: their limit comes
/// before that of locks and interfaces.
fn measured(lab: &LabDirectory, run: impl Fn() -> Command) -> Option<PointResult> {
    for _ in 0..ATTEMPTS {
        let _ = std::fs::remove_dir_all(lab.out());
        assert_ends_with(&ran(run()), 0);
        let point = lab.point();
        if point.verdict.limit != "machine CPU" {
            return Some(point);
        }
        eprintln!("the processors were busy: {:?}", point.verdict.reasons);
    }
    eprintln!("SKIPPED: a planted limit: other programs use the processors: run it when nothing else runs");
    None
}

fn names(verdict: &Verdict, text: &str) -> bool {
    verdict.reasons.iter().any(|reason| reason.contains(text))
}

/// Kafka's jars, or a notice that a test without them is skipped.
fn kafka_classpath(what: &str) -> Option<String> {
    let jars = std::env::var("KAFKA_CLASSPATH").ok().filter(|jars| !jars.trim().is_empty());
    if jars.is_none() {
        let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with a JDK from 17 on";
        eprintln!("SKIPPED: {what}: {how}");
    }
    jars
}

/// Kafka's log cleaner takes 128 MB of the heap, and 165 MB leave little for a load.
#[test]
#[ignore = "it measures, half a minute long: alone, in the nightly form of scripts/test"]
fn a_heap_that_is_too_small_is_named_and_a_larger_one_is_not() {
    let _alone = alone();
    if kafka_classpath("a heap that is too small").is_none() {
        return;
    }
    let limit = |heap: &str| {
        let lab = workload(
            "producers.properties = { \"batch.size\" = 65536, \"linger.ms\" = 5 }\n\
             extent = { warm_up_s = 2, seconds = 5 }",
        );
        let options = format!("-Xms{heap} -Xmx{heap}");
        let arguments = ["--target", "apache-kafka", "--repetitions", "1", "--jvm-options", &options];
        assert_ends_with(&ran(lab.run(&arguments)), 0);
        lab.point().verdict
    };
    let small = limit("165m");
    assert_eq!(small.limit, "garbage collection", "{small:?}");
    assert!(small.reasons[0].starts_with("the JVM of broker-1 used"), "{small:?}");
    let enough = limit("1g");
    assert_ne!(enough.limit, "garbage collection", "{enough:?}");
}

/// An authorizer whose check of a Produce request takes 20 ms under one lock, if a property says so.
const AUTHORIZER: &str = "
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.server.authorizer.*;

public class PlantedLock implements Authorizer {
  static final Object LOCK = new Object();
  public void configure(Map<String, ?> settings) {}
  public void close() {}
  public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
    Map<Endpoint, CompletionStage<Void>> ready = new HashMap<>();
    for (Endpoint endpoint : info.endpoints()) ready.put(endpoint, CompletableFuture.completedFuture(null));
    return ready;
  }
  public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
    if (Boolean.getBoolean(\"planted.lock\") && context.requestType() == 0) hold();
    return Collections.nCopies(actions.size(), AuthorizationResult.ALLOWED);
  }
  static void hold() {
    synchronized (LOCK) {
      try { Thread.sleep(20); } catch (InterruptedException error) { throw new RuntimeException(error); }
    }
  }
  public List<? extends CompletionStage<AclCreateResult>> createAcls(AuthorizableRequestContext c, List<AclBinding> b) { return List.of(); }
  public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(AuthorizableRequestContext c, List<AclBindingFilter> f) { return List.of(); }
  public Iterable<AclBinding> acls(AclBindingFilter filter) { return List.of(); }
}
";

/// Compiles the authorizer. Returns the class path with it.
fn with_authorizer(jars: &str, dir: &Path) -> Result<String, String> {
    let source = dir.join("PlantedLock.java");
    std::fs::write(&source, AUTHORIZER).expect("written");
    let compiled = Command::new("javac").args(["-cp", jars, "-d"]).arg(dir).arg(source).output();
    let compiled = compiled.map_err(|error| format!("javac: {error}: install a JDK"))?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Ok(format!("{jars}:{}", dir.display()))
}

#[test]
#[ignore = "it measures, a minute long: alone, in the nightly form of scripts/test"]
fn a_lock_in_apache_kafka_is_named_with_its_holder_and_not_without_it() {
    let _alone = alone();
    let Some(jars) = kafka_classpath("a lock in Apache Kafka") else { return };
    // Eight request handlers, and a rate of eight times that of the lock.
    let lab = workload(
        "cluster.properties = { \"authorizer.class.name\" = \"PlantedLock\" }\nproducers.count = 8\n\
         producers.properties = { \"batch.size\" = 1, \"linger.ms\" = 0, \"enable.idempotence\" = \"false\" }\n\
         load = { kind = \"rate\", records_per_s = 400 }\nextent = { warm_up_s = 2, seconds = 10 }",
    );
    let classpath = match with_authorizer(&jars, lab.dir.path()) {
        Ok(classpath) => classpath,
        Err(why) => return eprintln!("SKIPPED: a lock in Apache Kafka: {why}"),
    };
    let measure = |is_planted: bool| {
        measured(&lab, || {
            let options = format!("-Dplanted.lock={is_planted}");
            let mut command = lab.run(&["--target", "apache-kafka", "--repetitions", "1", "--look-inside"]);
            command.args(["--jvm-options", &options]).env("KAFKA_CLASSPATH", &classpath);
            command
        })
    };
    let Some(planted) = measure(true) else { return };
    assert_eq!(planted.verdict.limit, "lock", "{:?}", planted.verdict);
    for text in
        ["waited for java.lang.Object, at PlantedLock.hold(", "data-plane-kafka-request-handler-* held it"]
    {
        assert!(names(&planted.verdict, text), "{text}: {:?}", planted.verdict);
    }
    let Some(plain) = measure(false) else { return };
    assert_eq!(plain.verdict.limit, "asked rate", "{:?}", plain.verdict);
    lab.assert_nothing_is_left();
}

#[test]
#[ignore = "it measures, half a minute long: alone, in the nightly form of scripts/test"]
fn a_slow_device_is_named_with_its_chain_and_a_fast_one_is_not() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let device = match SlowDevice::mount(dir.path()) {
        Ok(device) => device,
        Err(why) => return eprintln!("SKIPPED: a slow device: {why}"),
    };
    // Each record is synced, so that the device is waited for.
    let lab = workload(
        "topics.properties.\"flush.messages\" = 1\nload = { kind = \"rate\", records_per_s = 2000 }\n\
         extent = { warm_up_s = 1, seconds = 5 }",
    );
    let work = device.directory.join("work").display().to_string();
    let measure = || measured(&lab, || lab.run(&["--repetitions", "1", "--work-dir", &work]));
    device.set_limit(Some(1_000_000));
    let Some(slow) = measure() else { return };
    assert_eq!(slow.verdict.limit, "disk", "{:?}", slow.verdict);
    let busy = format!("{} was busy for", device.name());
    let chain = format!("is on {} → ", device.name());
    for text in [&busy, &chain] {
        assert!(names(&slow.verdict, text), "{text}: {:?}", slow.verdict);
    }
    device.set_limit(None);
    let Some(fast) = measure() else { return };
    assert_eq!(fast.verdict.limit, "asked rate", "{:?}", fast.verdict);
    lab.assert_nothing_is_left();
}

#[test]
#[ignore = "it measures, half a minute long: alone, in the nightly form of scripts/test"]
fn a_full_interface_is_named_with_the_limit_of_traffic_control_and_a_free_one_is_not() {
    let _alone = alone();
    let pair = match NamespacePair::make() {
        Ok(pair) => pair,
        Err(why) => return eprintln!("SKIPPED: a full interface: {why}"),
    };
    let data = tempfile::tempdir().expect("a directory");
    let broker = pair.broker(data.path());
    // 80 Mbit/s.
    let lab = workload(
        "load = { kind = \"rate\", records_per_s = 10000 }\nextent = { warm_up_s = 1, seconds = 5 }",
    );
    let measure = || {
        let arguments = ["--repetitions", "1", "--bootstrap", broker.address.as_str()];
        measured(&lab, || pair.of_clients(&lab.run(&arguments)))
    };
    let Some(free) = measure() else { return };
    assert_eq!(free.verdict.limit, "asked rate", "{:?}", free.verdict);
    for (discipline, mbit_per_s) in [("tbf", 40), ("htb", 30)] {
        pair.limit(discipline, mbit_per_s);
        let Some(full) = measure() else { return };
        assert_eq!(full.verdict.limit, "network", "{:?}", full.verdict);
        let limit = format!("{}, which traffic control (tc) limits to {mbit_per_s} Mbit/s", pair.interface());
        assert!(names(&full.verdict, &limit), "{:?}", full.verdict);
    }
    lab.assert_nothing_is_left();
}

#[test]
#[ignore = "it measures, half a minute long: alone, in the nightly form of scripts/test"]
fn a_full_client_machine_is_named_and_a_free_one_is_not() {
    let _alone = alone();
    let data = tempfile::tempdir().expect("a directory");
    let node = Node::start(data.path(), &[]);
    let lab = workload("extent = { warm_up_s = 0.5, seconds = 3 }\nproducers.count = 1");
    let measure = || {
        // This machine, under the name of another one.
        let agent = Agent::start(&lab, &["--insecure", "--boot-id", "a-client-machine"]);
        let _ = std::fs::remove_dir_all(lab.out());
        let arguments = ["--repetitions", "1", "--bootstrap", &node.address, "--agents", &agent.address];
        assert_ends_with(
            &ran({
                let mut command = lab.run(&arguments);
                command.arg("--agents-insecure");
                command
            }),
            0,
        );
        let point = lab.point();
        let host = &point.repetitions[0].agents[0].host;
        let is_named = names(&point.verdict, &format!("processors of the agent {} were busy", agent.address));
        (host.cpu_busy + host.cpu_steal, is_named, point.verdict)
    };
    let spinning = Spinning::start();
    let (busy, is_named, verdict) = measure();
    drop(spinning);
    assert!(busy > 0.92 && is_named && verdict.limit == "generator CPU", "{busy} {verdict:?}");
    // Other programs may use this machine, too.
    let (busy, is_named, verdict) = measure();
    assert_eq!(is_named, busy >= 0.92, "{busy} {verdict:?}");
    lab.assert_nothing_is_left();
}
