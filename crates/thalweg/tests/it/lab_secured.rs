//! `thalweg lab` over TLS and with logins, on brokers that it starts.

use thalweg_lab::result::State;

use crate::lab::{LabDirectory, assert_ends_with, place, ran, text, workload};

#[test]
fn the_same_workload_runs_in_the_clear_and_over_tls_with_logins() {
    let _place = place();
    // Long enough for a stream that logs in on a busy machine.
    let lab = LabDirectory::with(&workload(
        2.0,
        "consumers.count = 1\ncluster.security_protocol = [\"PLAINTEXT\", \"SASL_SSL\"]\n\
         cluster.properties.super.users = \"User:ANONYMOUS;User:lab\"\n\
         cluster.properties.authorizer.class.name = \"org.apache.kafka.metadata.authorizer.StandardAuthorizer\"",
    ));
    let drivers = ["--driver", "thalweg", "--driver", "stream"];
    let text_of_file = std::fs::read_to_string(lab.dir.path().join("small.toml")).expect("it is there");
    let labelled = text_of_file
        .replace("label = \"only\"", "label = \"{cluster.security_protocol}\"")
        .replace("repetitions = 2", "repetitions = 1");
    std::fs::write(lab.dir.path().join("small.toml"), labelled).expect("written");
    let output = ran(lab.run(&drivers));
    assert_ends_with(&output, 0);
    assert!(
        text(&output.stderr).contains("Starting Thalweg: 1 broker, SASL_SSL"),
        "{}",
        text(&output.stderr)
    );
    let result = lab.result();
    assert_eq!(result.state, State::Complete);
    let secured = "SASL_SSL, TLSv1.3, TLS_AES_256_GCM_SHA384, SCRAM-SHA-512";
    let seen: Vec<(&str, String)> = result.workloads[0]
        .points
        .iter()
        .map(|point| {
            for repetition in &point.repetitions {
                assert_eq!(repetition.evidence.faults, [""; 0]);
                assert_eq!(repetition.evidence.acknowledged, repetition.evidence.in_log);
            }
            (point.driver.words(), point.security.as_ref().expect("it was talked to").to_string())
        })
        .collect();
    let expected =
        [("thalweg", "PLAINTEXT"), ("stream", "PLAINTEXT"), ("thalweg", secured), ("stream", secured)];
    assert_eq!(seen, expected.map(|(driver, security)| (driver, security.to_owned())));
    let report = std::fs::read_to_string(lab.out().join("report.html")).expect("a report");
    assert!(report.contains(secured));
    for file in ["report.html", "result.json"] {
        let text = std::fs::read_to_string(lab.out().join(file)).expect("it is there");
        assert!(!text.contains("LoginModule"), "{file} has a login");
    }
    lab.assert_nothing_is_left();
}

#[test]
fn a_protocol_that_would_have_no_effect_is_refused() {
    let lab = LabDirectory::with(&workload(0.5, ""));
    for (arguments, said) in [
        (&["--bootstrap", "127.0.0.1:1", "--security-protocol", "SSL"][..], "--client-config"),
        (&["--sasl-mechanism", "plain"], "add --security-protocol SASL_SSL"),
        (&["--security-protocol", "TLS"], "SASL_PLAINTEXT"),
    ] {
        let output = ran(lab.run(arguments));
        assert_ends_with(&output, 2);
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
        assert!(!lab.out().exists(), "nothing is made for nothing");
    }
}
