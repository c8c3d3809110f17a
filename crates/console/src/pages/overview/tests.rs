//! The page of overviews with faults, and of logins that see a part of a cluster.

use super::*;
use crate::cluster::overview::tests::{empty, healthy, one_topic_of_two, silent_broker, without_rights};

fn text(overview: &Overview) -> String {
    body(overview, &html! {}).0
}

/// The value of a figure, with its detail.
fn shown(page: &str, name: &str) -> String {
    let (_, after) = page.split_once(&format!("<dt>{name}</dt><dd>")).expect("the page has the figure");
    let (value, _) = after.split_once("</dd>").expect("it ends");
    value.replace("<small>", "").replace("</small>", "")
}

#[test]
fn only_a_cluster_that_is_known_to_be_in_order_is_called_so() {
    let words = "Everything is in order: all 2 brokers answer, and all 2 partitions have a leader";
    assert!(text(&healthy()).contains(words), "{}", text(&healthy()));
    let words = "Everything is in order: the broker answers. There are no partitions yet.";
    assert!(text(&empty()).contains(words), "{}", text(&empty()));
    for overview in [without_rights(), one_topic_of_two(), silent_broker()] {
        assert!(!text(&overview).contains("in order"), "{}", text(&overview));
    }
}

#[test]
fn a_login_without_rights_sees_dashes_with_their_reason() {
    let page = text(&without_rights());
    for name in ["Records in", "Log growth", "Topics", "Partitions", "Under-replicated", "Data", "Controller"]
    {
        assert_eq!(shown(&page, name), "– not visible to this login", "{name}");
    }
    assert!(page.contains("No fault is visible, but this login does not see everything that is checked."));
    assert!(
        page.contains("<strong>Unknown: </strong>Topics that this login may not describe are not counted.")
    );
    assert!(page.contains("Broker 2: not visible to this login"), "{page}");
    assert!(!page.contains("0 B"), "{page}");
}

#[test]
fn a_part_of_the_topics_names_its_coverage() {
    let page = text(&one_topic_of_two());
    assert_eq!(shown(&page, "Topics"), "1 and 0 internal, visible to this login");
    assert_eq!(shown(&page, "Under-replicated"), "0 visible to this login");
    assert!(page.contains("1 topic is not visible to this login, and not counted."), "{page}");
}

#[test]
fn a_broker_without_an_answer_is_named_beside_what_lacks_it() {
    let page = text(&silent_broker());
    assert_eq!(shown(&page, "Data"), "– broker 2 does not answer");
    assert_eq!(shown(&page, "Brokers"), "1 of 2");
    assert!(
        page.contains("<strong>Critical: </strong>1 of 2 partitions has no leader that answers"),
        "{page}"
    );
    assert!(page.contains("<span class=\"badge bad\">not reached</span>"), "{page}");
}
