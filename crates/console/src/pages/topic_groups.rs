//! The groups that read a topic.

use std::collections::BTreeSet;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::group::{age, path, state};
use super::topic::tabs;
use crate::cluster::topic_groups::{self, TopicReader, TopicReaders};
use crate::format;
use crate::page::{Section, Shell, or_dash, read_at};

/// Clients named in the row of a group.
const CLIENTS_MAX: usize = 3;

/// Shows the groups.
pub async fn show(shell: Shell, Path(name): Path<String>) -> Response {
    let readers = topic_groups::read(shell.view(), &name).await;
    let body = readers.map(|readers| html! { (tabs(&name, "groups")) (list(&readers)) });
    shell.answer(Section::Topics, &name, body)
}

fn list(readers: &TopicReaders) -> Markup {
    html! {
        div id="groups" data-live {
            @for missing in &readers.missing { p class="note warn" { (missing) "." } }
            @if readers.omitted > 0 {
                p class="note warn" {
                    (format::counted(readers.omitted, "more group"))
                    " could not be read completely: your login may not describe them, their coordinators do not answer, or there are too many."
                }
            }
            @if readers.groups.is_empty() {
                p class="quiet" {
                    @if readers.is_whole() { "No group reads this topic: none has a committed offset in it, or a member assigned to it." }
                    @else { "No group that could be read reads this topic. Others may." }
                }
            } @else {
                div class="table" tabindex="0" role="region" aria-label="Groups" {
                    table {
                        thead { tr {
                            th scope="col" { "Group" } th scope="col" { "Type" } th scope="col" { "State" }
                            th scope="col" class="number" { "Partitions" } th scope="col" { "Read by" }
                            th scope="col" class="number lag" { "Lag" } th scope="col" class="number" { "Lag in time" }
                        } }
                        tbody { @for group in &readers.groups { (row(group)) } }
                    }
                }
            }
            (read_at(readers.read_at_ms))
        }
    }
}

fn row(group: &TopicReader) -> Markup {
    let readers = group.partitions.iter().filter_map(|found| found.reader.as_ref());
    let clients: BTreeSet<(&str, &str)> =
        readers.map(|reader| (reader.client.as_str(), reader.host.as_str())).collect();
    let beyond = group.partitions.iter().filter(|found| found.lag.is_some_and(|lag| lag < 0)).count();
    let named: Vec<&(&str, &str)> = clients.iter().take(CLIENTS_MAX).collect();
    html! {
        tr {
            th scope="row" { a href=(path(&group.group)) { bdi { (format::id(&group.group)) } } }
            td { (group.kind) }
            td { (state(&group.state)) }
            td class="number" { (format::count(group.partitions.len())) }
            td class="value" {
                @for (client, host) in &named { p { bdi { (format::id(client)) } " " span class="quiet" { (host) } } }
                @if group.members > named.len() { p class="quiet" { "and " (group.members - named.len()) " more" } }
            }
            td class="number lag" {
                (or_dash(group.lag.map(format::count)))
                @if beyond > 0 { p class="quiet" { (beyond) " beyond the end" } }
            }
            td class="number" { (or_dash(group.lag_ms.map(age))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::group::PartitionReader;
    use crate::cluster::topic_groups::ReadPartition;

    #[test]
    fn a_group_of_a_topic_is_linked_with_its_lag_and_clients() {
        let partition = |partition, client: &str| ReadPartition {
            partition,
            offset: Some(1),
            lag: Some(1),
            lag_ms: Some(1_500),
            reader: Some(PartitionReader {
                member: format!("{client}-1"),
                client: client.to_owned(),
                host: "/10.0.0.1".to_owned(),
            }),
            readers: 1,
        };
        let mut readers = TopicReaders { groups: Vec::new(), omitted: 0, missing: Vec::new(), read_at_ms: 0 };
        assert!(list(&readers).into_string().contains("No group reads this topic"));
        readers.missing.push("The groups of these brokers are missing: 2 (silent)".to_owned());
        let page = list(&readers).into_string();
        assert!(page.contains("No group that could be read reads this topic. Others may."), "{page}");
        readers.groups.push(TopicReader {
            group: "a&b".to_owned(),
            kind: "consumer".to_owned(),
            state: "Stable".to_owned(),
            members: 5,
            lag: Some(1234),
            lag_ms: Some(1_500),
            partitions: (0..4).map(|index| partition(index, &format!("client-{index}"))).collect(),
        });
        readers.omitted = 2;
        readers.read_at_ms = 1_800_000_000_000;
        let page = list(&readers).into_string();
        assert!(
            page.contains("Read at <time datetime=\"2027-01-15T08:00:00.000Z\">08:00:00</time> UTC"),
            "{page}"
        );
        for part in ["/group?id=a%26b", "1,234", "1.5 s", "client-2", "and 2 more", "2 more groups could not"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("client-3") && !page.contains("beyond the end"));
        readers.groups[0].partitions[0].lag = Some(-40);
        let page = list(&readers).into_string();
        assert!(page.contains("1,234<p class=\"quiet\">1 beyond the end</p>"), "{page}");
    }
}
