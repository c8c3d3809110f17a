//! Sessions of many clients at once: none waits for another's partitions, and the rules of giving up hold.

use super::*;

const NOW_MS: i64 = 1_700_000_000_000;

fn request(id: i32, epoch: i32, partitions: i32) -> FetchRequest {
    let partition = |partition| FetchPartition { partition, ..Default::default() };
    let topic = FetchTopic {
        topic: "topic".to_owned(),
        partitions: (0..partitions).map(partition).collect(),
        ..Default::default()
    };
    let topics = if partitions == 0 { Vec::new() } else { vec![topic] };
    FetchRequest { session_id: id, session_epoch: epoch, topics, ..Default::default() }
}

fn open(sessions: &FetchSessions, partitions: i32, now_ms: i64) -> i32 {
    sessions.begin(12, request(0, 0, partitions), now_ms).expect("a session or none").0.id()
}

/// An answer in which nothing is new, or all partitions have records.
fn answered(wanted: &Wanted, has_records: bool) -> Vec<(Key, Answered, bool)> {
    let answered = Answered { error_code: 0, high_watermark: 7, log_start_offset: 0 };
    wanted.iter().map(|(key, _)| (key.clone(), answered, has_records)).collect()
}

#[test]
fn a_fetch_waits_for_no_other_session() {
    let sessions = FetchSessions::new(10);
    let (one, two) = (open(&sessions, 3, NOW_MS), open(&sessions, 3, NOW_MS));
    let slot = sessions.find(one).expect("it is open");
    let _walked_over = slot.session.lock();
    let (fetch, wanted) = sessions.begin(12, request(two, 1, 0), NOW_MS).expect("goes on");
    assert_eq!((fetch, wanted.len()), (SessionFetch::Incremental { id: two }, 3));
    assert_eq!(sessions.finish(fetch, &answered(&wanted, false)), [true; 3]);
    assert_ne!(open(&sessions, 3, NOW_MS), 0);
    sessions.begin(12, request(two, -1, 0), NOW_MS).expect("ends");
    assert_eq!(sessions.len(), 2);
}

#[test]
fn a_full_cache_gives_up_what_is_unused_or_smaller() {
    let sessions = FetchSessions::new(2);
    let (small, large) = (open(&sessions, 2, NOW_MS), open(&sessions, 5, NOW_MS));
    let later = NOW_MS + EVICTION_MS;
    assert_eq!(open(&sessions, 9, later), 0, "both are young");
    // Both are used, so only the smaller one makes room, for one that is larger.
    let used = later + 1;
    for id in [small, large] {
        sessions.begin(12, request(id, 1, 0), used).expect("goes on");
    }
    assert_eq!(open(&sessions, 2, used), 0, "none is smaller");
    let newcomer = open(&sessions, 3, used);
    assert_ne!(newcomer, 0);
    let gone = sessions.begin(12, request(small, 2, 0), used).expect_err("it was given up");
    assert_eq!(gone, SessionError::NotFound);
    // One that is not used makes room for any.
    sessions.begin(12, request(newcomer, 1, 0), used + 1).expect("goes on");
    assert_ne!(open(&sessions, 1, used + EVICTION_MS + 1), 0);
    assert_eq!(sessions.begin(12, request(large, 2, 0), used).expect_err("given up"), gone);
    assert_eq!(sessions.len(), 2);
}

#[test]
fn partitions_with_records_move_to_the_end_and_forgotten_ones_go() {
    let sessions = FetchSessions::new(1);
    let id = open(&sessions, 5, NOW_MS);
    let order = |wanted: &Wanted| wanted.iter().map(|(key, _)| key.partition.0).collect::<Vec<_>>();
    let (fetch, wanted) = sessions.begin(12, request(id, 1, 0), NOW_MS).expect("goes on");
    let mut answer = answered(&wanted, false);
    (answer[1].2, answer[3].2) = (true, true);
    sessions.finish(fetch, &answer);
    let (fetch, wanted) = sessions.begin(12, request(id, 2, 0), NOW_MS).expect("goes on");
    assert_eq!(order(&wanted), [0, 2, 4, 1, 3]);
    // The order may have changed since the fetch began.
    assert_eq!(sessions.finish(fetch, &answer), [false, true, false, true, false]);
    let forgotten =
        ForgottenTopic { topic: "topic".to_owned(), partitions: vec![2, 3], ..Default::default() };
    let request = FetchRequest { forgotten_topics_data: vec![forgotten], ..request(id, 3, 0) };
    let (fetch, wanted) = sessions.begin(12, request, NOW_MS).expect("goes on");
    assert_eq!(order(&wanted), [0, 4, 1]);
    assert_eq!(sessions.finish(fetch, &answered(&wanted, false)), [false; 3]);
}

/// Clients with 10,000 partitions each that fetch as fast as they can: prints fetches per second.
#[test]
#[ignore = "a measurement: cargo test --release -p thalweg-broker --lib sessions_of_many -- --ignored --nocapture"]
#[expect(clippy::print_stderr, reason = "the figures are what it is for")]
fn sessions_of_many_clients_go_on_side_by_side() {
    const PARTITIONS: i32 = 10_000;
    for clients in [1, 2, 4] {
        for has_records in [false, true] {
            let sessions = FetchSessions::new(100);
            let began = tokio::time::Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..clients {
                    scope.spawn(|| {
                        let id = open(&sessions, PARTITIONS, NOW_MS);
                        for epoch in 1..=100 {
                            let (fetch, wanted) =
                                sessions.begin(12, request(id, epoch, 0), NOW_MS).expect("goes on");
                            let mut answer = answered(&wanted, false);
                            answer.iter_mut().step_by(2).for_each(|answered| answered.2 = has_records);
                            sessions.finish(fetch, &answer);
                        }
                    });
                }
            });
            let rate = f64::from(clients * 100) / began.elapsed().as_secs_f64();
            eprintln!("{clients} clients, half with records {has_records}: {rate:.0} fetches/s");
        }
    }
}
