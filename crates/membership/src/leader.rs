//! Search for the leader of the quorum by answers (Kafka's `KafkaRaftClient` as an observer). Pure.
//!
//! Any node of the quorum can be asked: it returns the leader and the leader's address. Answers of older
//! epochs are ignored. A leader that does not answer is dropped, and the configured servers are asked in
//! turn.

use std::collections::BTreeMap;

/// The active controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Node id of the controller.
    pub id: i32,
    /// Quorum epoch of its leadership.
    pub epoch: i32,
    /// Address of its listener: `host:port`.
    pub address: String,
}

/// The leader according to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaderInfo {
    /// Node id of the leader; negative if there is no known leader.
    pub leader_id: i32,
    /// Epoch of the answering node.
    pub epoch: i32,
    /// Address of the leader. Answers before version 17 of Fetch lack it.
    pub address: Option<String>,
    /// True if the answering node acted as the leader.
    pub by_leader: bool,
}

/// The search for the leader.
#[derive(Debug)]
pub(super) struct LeaderSearch {
    /// Addresses to ask: `host:port`. Configured servers first, then the voters in the log.
    servers: Vec<String>,
    /// Number of configured servers.
    configured: usize,
    /// Addresses of the voters of a static quorum.
    voters: BTreeMap<i32, String>,
    next_server: usize,
    epoch: i32,
    leader: Option<Leader>,
}

impl LeaderSearch {
    /// Starts with the first of `servers`, which must not be empty.
    pub fn new(servers: Vec<String>, voters: BTreeMap<i32, String>) -> LeaderSearch {
        assert!(!servers.is_empty(), "the configuration demands a server to ask");
        LeaderSearch { configured: servers.len(), servers, voters, next_server: 0, epoch: 0, leader: None }
    }

    /// Adds the voters in the log, because the configured servers may have been replaced.
    pub fn learn(&mut self, voters: Vec<String>) {
        self.servers.truncate(self.configured);
        let fresh: Vec<String> = voters.into_iter().filter(|voter| !self.servers.contains(voter)).collect();
        self.servers.extend(fresh);
        self.next_server %= self.servers.len();
    }

    /// The leader, if known.
    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    /// The node to ask next.
    pub fn target(&self) -> &str {
        self.leader.as_ref().map_or(&self.servers[self.next_server], |leader| &leader.address)
    }

    /// Handles an answer of `asked`.
    pub fn on_answer(&mut self, asked: &str, info: &LeaderInfo) {
        if info.epoch < self.epoch {
            // A node with an older epoch does not lead the current one.
            return self.failed(asked);
        }
        if info.epoch > self.epoch {
            self.epoch = info.epoch;
            self.leader = None;
        }
        if info.leader_id < 0 {
            return self.failed(asked);
        }
        let answered_as_leader = info.by_leader.then(|| asked.to_owned());
        let known = || self.voters.get(&info.leader_id).cloned();
        match info.address.clone().or(answered_as_leader).or_else(known) {
            Some(address) => self.leader = Some(Leader { id: info.leader_id, epoch: info.epoch, address }),
            // The leader is among the servers, or cannot be found.
            None => self.failed(asked),
        }
    }

    /// Handles a missing or useless answer of `asked`.
    pub fn failed(&mut self, asked: &str) {
        if self.leader.as_ref().is_some_and(|leader| leader.address == asked) {
            self.leader = None;
        }
        if self.servers[self.next_server] == asked || self.leader.is_none() {
            self.next_server = (self.next_server + 1) % self.servers.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> LeaderSearch {
        let servers = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
        LeaderSearch::new(servers, BTreeMap::from([(7, "voter:7".to_owned())]))
    }

    fn info(leader_id: i32, epoch: i32, address: Option<&str>) -> LeaderInfo {
        LeaderInfo { leader_id, epoch, address: address.map(str::to_owned), by_leader: false }
    }

    #[test]
    fn any_voter_leads_to_the_leader() {
        let mut search = search();
        assert_eq!(search.target(), "a:1");
        search.on_answer("a:1", &info(2, 5, Some("b:1")));
        assert_eq!((search.target(), search.leader().map(|leader| leader.id)), ("b:1", Some(2)));
        search.on_answer("b:1", &info(3, 6, Some("c:1")));
        assert_eq!(search.target(), "c:1");
        search.on_answer("a:1", &info(2, 5, Some("b:1")));
        assert_eq!(search.target(), "c:1", "an older epoch says nothing of the present one");
    }

    #[test]
    fn a_leader_that_does_not_answer_is_searched_for_anew() {
        let mut search = search();
        search.on_answer("a:1", &info(2, 5, Some("b:1")));
        search.failed("b:1");
        assert_eq!(search.leader(), None);
        let mut asked = Vec::new();
        for _ in 0..4 {
            let target = search.target().to_owned();
            search.failed(&target);
            asked.push(target);
        }
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), 3, "every server is asked in turn");
    }

    #[test]
    fn voters_in_place_of_the_configured_servers_get_requests_too() {
        let mut search = LeaderSearch::new(vec!["a:1".to_owned()], BTreeMap::new());
        search.learn(["a:1", "d:1", "e:1"].map(str::to_owned).into());
        search.learn(["d:1", "e:1"].map(str::to_owned).into());
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(search.target().to_owned());
            search.failed(&asked[asked.len() - 1]);
        }
        assert_eq!(asked, ["a:1", "d:1", "e:1"]);
        search.learn(vec!["e:1".to_owned()]);
        assert_eq!(search.target(), "a:1");
    }

    #[test]
    fn an_epoch_without_a_leader_is_no_leader() {
        let mut search = search();
        search.on_answer("a:1", &info(2, 5, Some("b:1")));
        search.on_answer("b:1", &info(-1, 6, None));
        assert_eq!(search.leader(), None);
        search.on_answer("c:1", &info(2, 5, Some("b:1")));
        assert_eq!(search.leader(), None, "who led before the election leads no longer");
    }

    #[test]
    fn a_leader_without_an_address_is_a_voter_or_the_answering_node() {
        let mut search = search();
        search.on_answer("a:1", &info(7, 5, None));
        assert_eq!(search.target(), "voter:7");
        search.on_answer("voter:7", &info(8, 6, None));
        assert_eq!(search.leader(), None);
        search.on_answer("c:1", &LeaderInfo { by_leader: true, ..info(8, 6, None) });
        assert_eq!(search.target(), "c:1");
    }
}
