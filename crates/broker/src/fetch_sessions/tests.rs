//! Sessions of many concurrent clients: no session waits for another session's partitions, and the rules of
//! eviction hold.

use super::*;
use thalweg_security::Principal;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

const NOW_MS: i64 = 1_700_000_000_000;

fn holder(user: &str) -> Holder {
    Holder::of(&Arc::new(Principal::user(user)), [10, 0, 0, 1].into())
}

fn ann() -> Holder {
    holder("ann")
}

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
    let begun = sessions.begin(&ann(), 12, request(0, 0, partitions), Scope::Whole, now_ms);
    begun.expect("a session or none").fetch.id()
}

/// The next fetch of a session, without changes.
fn go_on(sessions: &FetchSessions, id: i32, epoch: i32, scope: Scope, now_ms: i64) -> StartedFetch {
    sessions.begin(&ann(), 12, request(id, epoch, 0), scope, now_ms).expect("goes on")
}

fn order(wanted: &[WantedPartition]) -> Vec<i32> {
    wanted.iter().map(|wanted| wanted.key.partition.0).collect()
}

/// An answer without news, or with records in all partitions.
fn answered(wanted: &[WantedPartition], has_records: bool) -> Vec<PartitionResult> {
    let answered = PartitionAnswer { error_code: 0, high_watermark: 7, log_start_offset: 0 };
    let read = |WantedPartition { key, slot, .. }: &WantedPartition| PartitionResult {
        key: key.clone(),
        slot: *slot,
        answered,
        has_news: has_records,
        is_read_to_end: !has_records,
    };
    wanted.iter().map(read).collect()
}

#[test]
fn a_fetch_waits_for_no_other_session() {
    let sessions = FetchSessions::new(10);
    let (one, two) = (open(&sessions, 3, NOW_MS), open(&sessions, 3, NOW_MS));
    let slot = sessions.find(one).expect("it is open");
    let _walked_over = slot.session.lock();
    let StartedFetch { fetch, wanted, .. } = go_on(&sessions, two, 1, Scope::Whole, NOW_MS);
    assert_eq!((fetch, wanted.len()), (SessionFetch::Incremental { id: two }, 3));
    assert_eq!(sessions.finish(fetch, &answered(&wanted, false)), [true; 3]);
    assert_ne!(open(&sessions, 3, NOW_MS), 0);
    sessions.begin(&ann(), 12, request(two, -1, 0), Scope::Whole, NOW_MS).expect("ends");
    assert_eq!(sessions.len(), 2);
}

#[test]
fn a_full_cache_gives_up_what_is_unused_or_smaller() {
    let sessions = FetchSessions::new(2);
    let (small, large) = (open(&sessions, 2, NOW_MS), open(&sessions, 5, NOW_MS));
    let later = NOW_MS + EVICTION_MS;
    assert_eq!(open(&sessions, 9, later), 0, "both are young");
    // Both sessions are in use, so only the smaller one makes room, for a larger one.
    let used = later + 1;
    for id in [small, large] {
        go_on(&sessions, id, 1, Scope::Whole, used);
    }
    assert_eq!(open(&sessions, 2, used), 0, "none is smaller");
    let newcomer = open(&sessions, 3, used);
    assert_ne!(newcomer, 0);
    let gone =
        sessions.begin(&ann(), 12, request(small, 2, 0), Scope::Whole, used).expect_err("it was given up");
    assert_eq!(gone, SessionError::NotFound);
    // An unused session makes room for any session.
    go_on(&sessions, newcomer, 1, Scope::Whole, used + 1);
    assert_ne!(open(&sessions, 1, used + EVICTION_MS + 1), 0);
    let refused = sessions.begin(&ann(), 12, request(large, 2, 0), Scope::Whole, used);
    assert_eq!(refused.expect_err("given up"), gone);
    assert_eq!(sessions.len(), 2);
}

#[test]
fn partitions_with_records_move_to_the_end_and_forgotten_ones_go() {
    let sessions = FetchSessions::new(1);
    let id = open(&sessions, 5, NOW_MS);
    let StartedFetch { fetch, wanted, .. } = go_on(&sessions, id, 1, Scope::Whole, NOW_MS);
    let mut answer = answered(&wanted, false);
    (answer[1].has_news, answer[3].has_news) = (true, true);
    sessions.finish(fetch, &answer);
    let StartedFetch { fetch, wanted, .. } = go_on(&sessions, id, 2, Scope::Whole, NOW_MS);
    assert_eq!(order(&wanted), [0, 2, 4, 1, 3]);
    assert_eq!(sessions.finish(fetch, &answer), [false, true, false, true, false]);
    let forgotten =
        ForgottenTopic { topic: "topic".to_owned(), partitions: vec![2, 3], ..Default::default() };
    let request = FetchRequest { forgotten_topics_data: vec![forgotten], ..request(id, 3, 0) };
    let StartedFetch { fetch, wanted, .. } =
        sessions.begin(&ann(), 12, request, Scope::Whole, NOW_MS).expect("goes on");
    assert_eq!(order(&wanted), [0, 4, 1]);
    // The slots may have changed since the fetch began.
    let mut answer = answered(&wanted, false);
    answer.iter_mut().zip([0, 4, 1]).for_each(|(read, before)| read.slot = Some(before));
    assert_eq!(sessions.finish(fetch, &answer), [false; 3]);
}

/// Partitions that were read to their end are left out until they have news.
#[test]
fn a_fetch_reads_only_what_may_have_changed() {
    let sessions = FetchSessions::new(1);
    let begun = sessions.begin(&ann(), 12, request(0, 0, 4), Scope::Unread, NOW_MS).expect("opens");
    assert_eq!(order(&begun.wanted), [0, 1, 2, 3]);
    let id = begun.fetch.id();
    // The answer is not sent, so all partitions are read again.
    let begun = go_on(&sessions, id, 1, Scope::Unread, NOW_MS);
    assert_eq!(order(&begun.wanted), [0, 1, 2, 3]);
    let mut answer = answered(&begun.wanted, false);
    // One has records, and the others none.
    answer[2] = PartitionResult { has_news: true, is_read_to_end: false, ..answer[2].clone() };
    sessions.finish(begun.fetch, &answer);
    let begun = go_on(&sessions, id, 2, Scope::Unread, NOW_MS);
    assert_eq!(order(&begun.wanted), [2], "its client may want the same records again");
    sessions.finish(begun.fetch, &answered(&begun.wanted, false));
    assert!(go_on(&sessions, id, 3, Scope::Unread, NOW_MS).wanted.is_empty());
    // Another offset.
    let begun = sessions.begin(&ann(), 12, request(id, 4, 2), Scope::Unread, NOW_MS).expect("goes on");
    assert_eq!(order(&begun.wanted), [0, 1]);
    sessions.finish(begun.fetch, &answered(&begun.wanted, false));
    // All partitions, if permissions may have changed or after a while.
    assert_eq!(go_on(&sessions, id, 5, Scope::Whole, NOW_MS).wanted.len(), 4);
    assert!(go_on(&sessions, id, 6, Scope::Unread, NOW_MS).wanted.is_empty());
    assert_eq!(go_on(&sessions, id, 7, Scope::Unread, NOW_MS + 1_000).wanted.len(), 4);
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
                            let StartedFetch { fetch, wanted, .. } =
                                go_on(&sessions, id, epoch, Scope::Whole, NOW_MS);
                            let mut answer = answered(&wanted, false);
                            answer.iter_mut().step_by(2).for_each(|read| read.has_news = has_records);
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

#[test]
fn a_principal_that_fills_the_cache_gives_way_to_others() {
    let sessions = FetchSessions::new(8);
    let open = |user: &str, partitions, at_ms| {
        let begun = sessions.begin(&holder(user), 12, request(0, 0, partitions), Scope::Whole, at_ms);
        begun.expect("a session or none").fetch.id()
    };
    let of_eve: Vec<i32> = (0..8).map(|at| open("eve", 1, NOW_MS + at)).collect();
    assert_eq!(open("eve", 1, NOW_MS + 10), 0, "all are in use");
    let of_ann: Vec<i32> = (0..6).map(|_| open("ann", 1, NOW_MS + 20)).collect();
    assert!(of_ann[..4].iter().all(|id| *id != 0), "half of the sessions: {of_ann:?}");
    assert_eq!(of_ann[4..], [0, 0], "no principal has more than ann");
    let go_on = |user: &str, id| {
        let went_on = sessions.begin(&holder(user), 12, request(id, 1, 0), Scope::Whole, NOW_MS + 30);
        went_on.map(|begun| begun.wanted.len())
    };
    assert_eq!(go_on("eve", of_eve[3]), Err(SessionError::NotFound), "those that were used least recently");
    assert_eq!((go_on("eve", of_eve[4]), go_on("ann", of_ann[0])), (Ok(1), Ok(1)));

    // Old sessions of another holder give way to larger ones only if the new session's holder has fewer.
    let later = NOW_MS + EVICTION_MS + 10;
    sessions.state.lock().sessions.values().for_each(|slot| slot.used_ms.store(later, Ordering::Relaxed));
    assert_ne!(open("eve", 100, later), 0, "in place of a small one of eve's");
    assert_eq!(sessions.state.lock().order.count(&ann()), 4);
}

#[test]
fn sessions_of_brokers_displace_those_of_clients_and_are_not_displaced() {
    let sessions = FetchSessions::new(3);
    let open = |holder: &Holder, partitions| {
        let begun = sessions.begin(holder, 12, request(0, 0, partitions), Scope::Whole, NOW_MS);
        begun.expect("a session or none").fetch.id()
    };
    assert_ne!(open(&ann(), 1), 0);
    assert!((0..3).all(|_| open(&Holder::Brokers, 1) != 0), "the last one in place of ann's");
    assert_eq!((open(&ann(), 100), open(&Holder::Brokers, 1)), (0, 0), "all are of brokers");
}

#[test]
fn a_session_is_unknown_to_other_principals() {
    let sessions = FetchSessions::new(2);
    let id = open(&sessions, 3, NOW_MS);
    let eve = holder("eve");
    let taken = sessions.begin(&eve, 12, request(id, 1, 0), Scope::Whole, NOW_MS);
    assert_eq!(taken.expect_err("it is ann's"), SessionError::NotFound);
    for epoch in [0, -1] {
        sessions.begin(&eve, 12, request(id, epoch, 0), Scope::Whole, NOW_MS).expect("it ends none");
    }
    assert_eq!(go_on(&sessions, id, 1, Scope::Whole, NOW_MS).wanted.len(), 3);
}

/// The rules of eviction by iterating over all sessions, each with holder, start, last use and size.
fn gives_way(
    all: &HashMap<i32, (Holder, i64, i64, usize)>,
    holder: &Holder,
    size: usize,
    now_ms: i64,
) -> Vec<i32> {
    let count = |of: &Holder| match of {
        Holder::Brokers => 0,
        _ => all.values().filter(|(holder, ..)| holder == of).count(),
    };
    let least = |these: Vec<(i32, i64)>| -> Vec<i32> {
        let min = these.iter().map(|(_, key)| *key).min();
        these.into_iter().filter(|(_, key)| Some(*key) == min).map(|(id, _)| id).collect()
    };
    let entries =
        || all.iter().map(|(id, (holder, created, used, size))| (*id, holder, *created, *used, *size));
    let stale = entries().filter(|one| now_ms - one.3 > EVICTION_MS).map(|one| (one.0, one.3)).collect();
    let own = count(holder);
    let most = entries().map(|one| count(one.1)).max().unwrap_or(0);
    let may_displace = most > if *holder == Holder::Brokers { 0 } else { own + 1 };
    let of_largest: Vec<i32> = entries()
        .filter(|one| may_displace && count(one.1) == most)
        .map(|one| one.1.clone())
        .collect::<std::collections::BTreeSet<Holder>>()
        .into_iter()
        .flat_map(|of| least(entries().filter(|one| *one.1 == of).map(|one| (one.0, one.3)).collect()))
        .collect();
    let smaller = entries().filter(|one| now_ms - one.2 > EVICTION_MS && one.4 < size);
    let smaller = smaller.filter(|one| one.1 == holder || count(one.1) > own);
    let smaller = smaller.map(|one| (one.0, i64::try_from(one.4).expect("it is small")));
    [least(stale), of_largest, least(smaller.collect())]
        .into_iter()
        .find(|these| !these.is_empty())
        .unwrap_or_default()
}

#[test]
fn the_order_of_giving_way_is_that_of_a_walk_over_all_sessions() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut holders: Vec<Holder> = ["ann", "bob", "eve", "joe"].map(holder).into();
    holders.push(Holder::Brokers);
    let mut state = State::default();
    let mut model: HashMap<i32, (Holder, i64, i64, usize)> = HashMap::default();
    let (mut now_ms, mut displaced) = (NOW_MS, [0; 2]);
    for _ in 0..20_000 {
        now_ms += i64::try_from(below(4_000)).expect("it is small");
        let holder = holders[usize::try_from(below(5)).expect("an index")].clone();
        let size = usize::try_from(1 + below(50)).expect("it is small");
        let ids: Vec<i32> = model.keys().copied().collect();
        let one = ids.get(usize::try_from(below(12)).expect("an index")).copied();
        match (below(8), one) {
            (0, Some(id)) => {
                state.remove(id);
                model.remove(&id);
            }
            (1..=3, Some(id)) => {
                let slot = &state.sessions[&id];
                slot.used_ms.store(now_ms, Ordering::Relaxed);
                model.get_mut(&id).expect("it is there").2 = now_ms;
            }
            (4, Some(id)) => {
                state.order.resize(id, size);
                model.get_mut(&id).expect("it is there").3 = size;
            }
            _ => {
                match state.room(&holder, 12, size, now_ms) {
                    Some(Room::Free) => assert!(model.len() < 12),
                    Some(Room::Of(id)) => {
                        displaced[0] += 1;
                        let expected = gives_way(&model, &holder, size, now_ms);
                        assert!(expected.contains(&id), "{id} for {expected:?} of {model:?}");
                        state.remove(id);
                        model.remove(&id);
                    }
                    None => {
                        displaced[1] += 1;
                        assert_eq!(gives_way(&model, &holder, size, now_ms), Vec::<i32>::new(), "{model:?}");
                        continue;
                    }
                }
                let slot = CachedSession {
                    holder: holder.clone(),
                    used_ms: AtomicI64::new(now_ms),
                    session: Mutex::default(),
                };
                let id = state.add(Arc::new(slot), size, now_ms);
                model.insert(id, (holder, now_ms, now_ms, size));
            }
        }
    }
    assert!(displaced.iter().all(|count| *count > 100), "{displaced:?}");
    model.keys().for_each(|id| drop(state.remove(*id)));
    assert_eq!(format!("{:?}", state.order), format!("{:?}", Order::default()), "nothing is left");
}

#[test]
fn a_full_cache_of_any_size_refuses_and_displaces_without_a_walk_over_it() {
    const SLOTS: i32 = 20_000;
    let sessions = FetchSessions::new(usize::try_from(SLOTS).expect("it is positive"));
    (0..SLOTS).for_each(|_| assert_ne!(open(&sessions, 1, NOW_MS), 0));
    let began = tokio::time::Instant::now();
    let later = NOW_MS + EVICTION_MS;
    sessions.state.lock().sessions.values().for_each(|slot| slot.used_ms.store(later, Ordering::Relaxed));
    for _ in 0..5_000 {
        assert_eq!(open(&sessions, 1, later + 1), 0, "none of ann's is smaller");
    }
    for _ in 0..5_000 {
        let begun = sessions.begin(&holder("eve"), 12, request(0, 0, 1), Scope::Whole, later + 1);
        assert_ne!(begun.expect("a session").fetch.id(), 0, "in place of ann's");
    }
    // Iterating takes minutes, and all fetches wait for the lock meanwhile.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
