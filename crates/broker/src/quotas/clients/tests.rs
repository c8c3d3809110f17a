use super::*;

const WINDOW: Window = Window { samples: 11, sample_ms: 1000 };

fn clients(client_default: f64) -> Clients {
    let mut clients = Clients::new(WINDOW);
    clients.limits[QuotaType::Produce as usize].set(None, Some(None), client_default);
    clients
}

fn counter(clients: &mut Clients, client_id: &str, now_ms: i64) -> Arc<Counter> {
    let client = clients.find("ann", client_id).unwrap_or_else(|| clients.add("ann", client_id, now_ms));
    client.counters[QuotaType::Produce as usize].clone().expect("a limit holds")
}

#[test]
fn clients_without_number_use_bounded_memory_and_do_not_help_those_that_stay() {
    let mut clients = clients(1000.0);
    let mut throttled = 0;
    for at_ms in 0..50_000 {
        counter(&mut clients, &format!("new-{at_ms}"), at_ms).charge(1.0, at_ms);
        if at_ms % 10 == 0 {
            throttled += i32::from(counter(&mut clients, "steady", at_ms).charge(100.0, at_ms) > 0);
        }
        assert!(clients.counters[0].len() <= COUNTERS_MAX && clients.known_len <= CLIENTS_MAX);
        assert!(clients.known.values().map(HashMap::len).sum::<usize>() <= CLIENTS_MAX);
    }
    assert!(throttled > 3_000, "a client at ten times its limit was throttled {throttled} times");
}

#[test]
fn a_batch_larger_than_the_window_is_sent_when_nothing_else_was() {
    let counter = Counter::new(QuotaType::Fetch, 10.0, WINDOW, 0);
    assert_eq!(counter.charge_fetch(5000.0, false, 0), 0);
    assert!(counter.charge_fetch(5000.0, false, 1) > 0);
    let after = 11_001;
    assert_eq!(counter.charge_fetch(5000.0, false, after), 0);
}

#[test]
fn bytes_that_are_not_sent_do_not_count() {
    let counter = Counter::new(QuotaType::Fetch, 1000.0, WINDOW, 0);
    assert_eq!(counter.charge_fetch(10_000.0, false, 0), 0);
    let pause = counter.charge_fetch(2000.0, false, 0);
    assert_eq!(counter.charge_fetch(2000.0, false, 0), pause, "the first was taken back");
    assert_eq!(counter.charge_fetch(0.0, true, 0), 0);
}

#[test]
fn a_user_with_a_thousand_names_hides_no_other() {
    let mut clients = Clients::new(WINDOW);
    clients.limits[QuotaType::Produce as usize].set(Some(None), Some(None), 1000.0);
    let mut charge = |user: &str, client_id: &str, now_ms| {
        let client = clients.find(user, client_id).unwrap_or_else(|| clients.add(user, client_id, now_ms));
        let counter = client.counters[QuotaType::Produce as usize].clone().expect("a limit holds");
        counter.charge(1.0, now_ms);
        counter
    };
    let of_ann = charge("ann", "app", 0);
    for at_ms in 1..25_000 {
        charge("eve", &format!("new-{at_ms}"), at_ms);
    }
    assert!(Arc::ptr_eq(&charge("ann", "app", 25_000), &of_ann), "her use keeps counting");
    charge("ann", "app", 0);
    let usage = clients.usage(QuotaType::Produce, 100, 25_000);
    let users = usage.iter().map(|usage| usage.sharers.user.as_deref());
    assert_eq!((usage.len(), users.filter(|user| *user == Some("ann")).count()), (100, 1));
}
