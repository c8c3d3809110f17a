//! Many requests at once.

use std::sync::Arc;

use thalweg_wire::request::ApiVersionsRequest;

use crate::support::Bench;

fn versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_burst_is_answered() {
    let bench = Arc::new(Bench::new().await);
    let asked: Vec<_> = (0..500)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(
                async move { bench.send_version(versions(), 3).await.map(|answer| answer.error_code) },
            )
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.expect("does not panic").expect("an answer"), 0);
    }
}
