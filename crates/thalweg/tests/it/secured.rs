//! Every tool against an Apache Kafka that requires TLS and a password: settings in a file of client settings
//! work for every client, and no result contains the password. Skipped without Kafka's jars.
#![allow(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use thalweg_lab::result;
use thalweg_lab::worker::Driver;
use thalweg_ports::free_port;

use super::binary::{run, run_with_input, thalweg, until};
use super::node::{self, Node};

const PASSWORD: &str = "the-secret-of-ann";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required";

/// Kafka with one listener for clients: SASL_SSL.
struct Kafka {
    child: Child,
    dir: TempDir,
    address: String,
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The certificate of an authority, and that of a broker with its key.
fn certificates() -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let broker = KeyPair::generate().expect("a key");
    let params = params_of(&["localhost", "127.0.0.1"]).signed_by(&broker, &Issuer::new(params, key));
    (authority, broker.serialize_pem() + &params.expect("a certificate").pem())
}

fn params_of(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .expect("host names")
}

impl Kafka {
    #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn start() -> Option<Kafka> {
        let Ok(classpath) = std::env::var("KAFKA_CLASSPATH") else {
            eprintln!("SKIPPED: the tools against a secured Kafka: KAFKA_CLASSPATH is not set");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let (authority, broker) = certificates();
        let (ca, store) = (dir.path().join("ca.pem"), dir.path().join("broker.pem"));
        std::fs::write(&ca, authority).expect("written");
        std::fs::write(&store, broker).expect("written");
        let (port, controller) = (free_port(), free_port());
        let properties = dir.path().join("server.properties");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},INSIDE://127.0.0.1:0\n\
             listener.security.protocol.map=CLIENTS:SASL_SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=INSIDE\nlog.dirs={}\nnum.partitions=3\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n\
             ssl.keystore.type=PEM\nssl.keystore.location={}\nsasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.clients.scram-sha-512.sasl.jaas.config={SCRAM};\n",
            dir.path().join("data").display(),
            store.display()
        );
        std::fs::write(&properties, text).expect("written");
        let client = format!(
            "security.protocol=SASL_SSL\nssl.truststore.location={}\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config={SCRAM} username=\"ann\" password=\"{PASSWORD}\";\n",
            ca.display()
        );
        std::fs::write(dir.path().join("client.properties"), &client).expect("written");
        std::fs::write(dir.path().join("wrong.properties"), client.replace(PASSWORD, "hunter2"))
            .expect("written");
        let java = |heap: &str| {
            let mut java = Command::new("java");
            java.args([heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &classpath])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            java
        };
        let format = java("-Xmx256m")
            .args(["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "--add-scram"])
            .arg(format!("SCRAM-SHA-512=[name=ann,password={PASSWORD}]"))
            .arg("-c")
            .arg(&properties)
            .status();
        assert!(format.expect("java runs").success(), "the data directory is formatted");
        let child = java("-Xmx512m").arg("kafka.Kafka").arg(&properties).spawn().expect("java runs");
        let kafka = Kafka { child, dir, address: format!("127.0.0.1:{port}") };
        let began = Instant::now();
        while run(&mut kafka.tool("topic list", "")).0 != Some(0) {
            assert!(began.elapsed() < Duration::from_secs(60), "Kafka did not start within a minute");
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(kafka)
    }

    /// A tool with the right settings.
    fn tool(&self, line: &str, more: &str) -> Command {
        let settings = self.file("client.properties");
        thalweg(&format!("{line} --bootstrap-server {} --command-config {settings} {more}", self.address))
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("UTF-8").to_owned()
    }
}

/// Runs a command that must succeed, and returns its output.
fn well(command: &mut Command, input: &str) -> String {
    let (code, out, error) = run_with_input(command, input.as_bytes());
    assert_eq!(code, Some(0), "{command:?}: {out}{error}");
    assert!(!format!("{out}{error}").contains("has no effect"), "{command:?}: {error}");
    out
}

#[test]
fn every_tool_speaks_to_a_cluster_that_wants_tls_and_a_password() {
    let Some(kafka) = Kafka::start() else { return };
    the_command_line_does(&kafka);
    the_lab_does_and_keeps_the_password_to_itself(&kafka);
    streams_do(&kafka);
    streams_of_a_broker_do_and_keep_the_password_to_themselves(&kafka);
}

fn the_command_line_does(kafka: &Kafka) {
    well(&mut kafka.tool("topic create lines", "--partitions 1"), "");
    well(&mut kafka.tool("produce lines", ""), "one\ntwo\nthree\n");
    let read = well(&mut kafka.tool("consume lines", "--from-beginning --max-messages 3"), "");
    assert_eq!(read, "one\ntwo\nthree\n");
    well(&mut kafka.tool("consume lines", "--from-beginning --max-messages 3 --group readers"), "");
    assert!(well(&mut kafka.tool("group list", ""), "").contains("readers"));
    well(&mut kafka.tool("cluster status", ""), "");
    let perf = "producer-perf-test --topic lines --num-records 1000 --record-size 100 --throughput -1";
    assert!(well(&mut kafka.tool(perf, ""), "").contains("1000 records sent"));
    well(&mut kafka.tool("consumer-perf-test --topic lines --num-records 1000", ""), "");
    let wrong = kafka.file("wrong.properties");
    let line = format!("topic list --bootstrap-server {} --command-config {wrong}", kafka.address);
    let (code, _, error) = run(&mut thalweg(&line));
    assert_ne!(code, Some(0));
    assert!(error.contains("rejects this client by SCRAM-SHA-512"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

fn the_lab_does_and_keeps_the_password_to_itself(kafka: &Kafka) {
    let workload = "title = \"A test\"\ndescription = \"A test.\"\nlabel = \"only\"\nrepetitions = 1\n\
                    topics.partitions = 2\nrecords.size_bytes = 100\n\
                    extent = { warm_up_s = 0.2, seconds = 1.0 }\n";
    std::fs::write(kafka.dir.path().join("small.toml"), workload).expect("written");
    let settings = kafka.file("client.properties");
    let drivers = match Driver::Librdkafka.check() {
        Ok(()) => "--driver thalweg --driver librdkafka",
        Err(_) => {
            let how = "cargo test -p thalweg --features librdkafka --test it secured";
            writeln!(std::io::stderr(), "SKIPPED: the driver librdkafka over TLS and SASL: {how}")
                .expect("standard error is open");
            "--driver thalweg"
        }
    };
    let line = format!(
        "lab run small.toml --out out --bootstrap {} --client-config {settings} {drivers}",
        kafka.address
    );
    let mut command = thalweg(&line);
    command
        .arg("--property")
        .arg(format!("sasl.jaas.config={SCRAM} username=\"ann\" password=\"{PASSWORD}\";"));
    let (code, out, error) = run(command.current_dir(kafka.dir.path()));
    assert_eq!(code, Some(0), "{out}{error}");
    let out = kafka.dir.path().join("out");
    let points = &result::read(&out.join("result.json")).expect("a result").workloads[0].points;
    assert_eq!(points.len(), drivers.split_whitespace().count() / 2, "one of each driver");
    for point in points {
        assert_eq!(point.failure, None, "{:?}", point.driver);
        let evidence = &point.repetitions[0].evidence;
        assert!(evidence.acknowledged > 0 && evidence.faults.is_empty(), "{evidence:?}");
    }
    for file in std::fs::read_dir(&out).expect("results").flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        assert!(!text.contains(PASSWORD), "{} holds the password", file.path().display());
    }
}

fn streams_do(kafka: &Kafka) {
    well(&mut kafka.tool("topic create streamed", "--partitions 1"), "");
    let stream = |text: &str| {
        let ours =
            format!("kafka --bootstrap={} --properties={} ", kafka.address, kafka.file("client.properties"));
        let mut command = thalweg("stream run");
        command.arg(text.replace("kafka ", &ours));
        command
    };
    well(&mut stream("stdin | kafka --topic=streamed"), "a\nb\nc\n");
    let read = well(&mut stream("kafka --topics=streamed --untilEnd=true | stdout"), "");
    assert_eq!(read, "a\nb\nc\n");
    // A wrong password is reported as such, long before a sink gives up.
    let (at, wrong) = (&kafka.address, kafka.file("wrong.properties"));
    for line in [
        format!("kafka --topics=streamed --bootstrap={at} --properties={wrong} | null"),
        format!("stdin | kafka --topic=streamed --bootstrap={at} --properties={wrong}"),
    ] {
        let mut command = thalweg("stream run");
        refused(command.arg(line));
    }
    let over = format!("stream run --transport=kafka --bootstrap-server={at} --transport-properties={wrong}");
    refused(thalweg(&over).arg("stdin | stdout"));
    let exactly = format!(
        "kafka --topics=streamed --group=g --bootstrap={at} --properties={} | kafka --topic=streamed --bootstrap={at} --properties={wrong}",
        kafka.file("client.properties")
    );
    refused(thalweg("stream run --guarantee=exactly-once").arg(exactly));
}

fn refused(command: &mut Command) {
    let began = Instant::now();
    let (code, _, error) = run_with_input(command, b"a\n");
    assert_eq!(code, Some(1), "{command:?}: {error}");
    assert!(error.contains("rejects this client by SCRAM-SHA-512"), "{command:?}: {error}");
    assert!(began.elapsed() < Duration::from_secs(100), "{command:?} took {:?}", began.elapsed());
}

fn streams_of_a_broker_do_and_keep_the_password_to_themselves(kafka: &Kafka) {
    let wanted = [
        "listeners=PLAINTEXT://127.0.0.1:0".to_owned(),
        "streams.enabled=true".to_owned(),
        format!("streams.bootstrap.servers={}", kafka.address),
        format!("streams.client.config={}", kafka.file("client.properties")),
    ];
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let host = Node::start(&kafka.dir.path().join("host"), &wanted);
    let streams = || host.get("/api/v1/streams?figures=true").body;
    until("the streams are known", || host.get("/api/v1/streams").status == 200);
    let create = |name: &str, definition: &str, properties: &str| {
        let body =
            json!({ "name": name, "definition": definition, "deploy": true, "properties": properties });
        let answer = node::ask(&host.http, "POST", "/api/v1/streams", "", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
        assert!(answer.body.contains("\"state\":\"deployed\""), "{}", answer.body);
    };
    for topic in ["seen", "end", "bad"] {
        well(&mut kafka.tool(&format!("topic create {topic}"), "--partitions 2"), "");
    }
    // A kafka source, a topic by name, topics between stages and one for bad messages: a connection of each
    // kind.
    create(
        "named",
        "kafka --topics=seen | filter --expression='payload.n > 1' | topic:large",
        "onError=dead-letter:topic:bad",
    );
    create(
        "counted",
        "topic:large > twice: filter --expression='payload.n > 2' | kafka --topic=end",
        "module.twice.count=2",
    );
    well(&mut kafka.tool("produce seen", ""), "{\"n\": 1}\n{\"n\": 2}\nbad\n{\"n\": 3}\n");
    let read = |topic: &str| {
        well(&mut kafka.tool(&format!("consume {topic}"), "--from-beginning --max-messages 1"), "")
    };
    assert_eq!((read("end").as_str(), read("bad").as_str()), ("{\"n\": 3}\n", "bad\n"));
    // A stage that may belong to another cluster gets none of the settings.
    create("elsewhere", "time --initialDelay=1h | kafka --topic=x --bootstrap=127.0.0.1:1", "");
    for told in [streams(), host.get("/metrics").body, host.output()] {
        assert!(told.contains("streams"), "{told}");
        assert!(!told.contains(PASSWORD), "{told}");
    }
    drop(host);

    let refused = |properties: &[String]| {
        let mut command = thalweg("serve --listen 127.0.0.1:0 --set streams.enabled=true --data-dir");
        command.arg(kafka.dir.path().join("refused"));
        for property in properties {
            command.args(["--set", property]);
        }
        let (code, _, error) = run(&mut command);
        assert_ne!(code, Some(0), "{error}");
        assert!(!error.contains(PASSWORD), "{error}");
        error
    };
    let error = refused(&[wanted[3].to_owned()]);
    assert!(
        error.contains("this broker's first listener is PLAINTEXT: streams.bootstrap.servers="),
        "{error}"
    );
    let error = refused(&["streams.bootstrap.servers=nowhere".to_owned()]);
    assert!(error.contains("streams.bootstrap.servers: \"nowhere\" is not a broker address"), "{error}");
    let error = refused(&["streams.client.config=/nowhere".to_owned()]);
    assert!(error.contains("streams.client.config: Cannot read /nowhere"), "{error}");
}
