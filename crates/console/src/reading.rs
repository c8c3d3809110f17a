//! Rules for reading messages, shared by all users: masks, the schema registry, and limits on concurrent
//! reads, in total and per user.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use thalweg_browse::{Capacity, Masking, PrincipalCapacity, Registry};
use thalweg_places::{FairPermit, FairSemaphore, ReachedLimit};

use crate::problem::Problem;

/// Concurrent searches, in total and per user. Further searches wait.
const SEARCHES_MAX: usize = 8;
const SEARCHES_OF_USER_MAX: usize = 2;
/// Concurrent live tails, in total and per user. Further tails are refused.
const TAILS_MAX: usize = 32;
const TAILS_OF_USER_MAX: usize = 8;
/// Concurrent downloads of messages, in total and per user. Further downloads are refused.
const DOWNLOADS_MAX: usize = 4;
const DOWNLOADS_OF_USER_MAX: usize = 2;

/// Watched stages of streams, in total and per user.
const TAPS_MAX: usize = 16;
const TAPS_OF_USER_MAX: usize = 4;

/// Rules and limits for reading messages.
pub struct ReadingRules {
    pub masking: Masking,
    pub registry: Option<Arc<Registry>>,
    searches: FairSemaphore<Arc<str>>,
    tails: FairSemaphore<Arc<str>>,
    downloads: FairSemaphore<Arc<str>>,
    taps: FairSemaphore<Arc<str>>,
    capacity: Arc<Capacity>,
}

/// Access to messages for one user.
pub struct Reader {
    reading: Arc<ReadingRules>,
    /// The user name; empty without logins, so that all people share one name.
    user: Arc<str>,
}

impl ReadingRules {
    /// Limits per user apply only with logins. Without logins, all people share the total.
    pub fn new(masking: Masking, registry: Option<Arc<Registry>>, has_login: bool) -> Arc<ReadingRules> {
        let shares = |all, of_user| FairSemaphore::new(all, if has_login { of_user } else { all });
        Arc::new(ReadingRules {
            masking,
            registry,
            searches: shares(SEARCHES_MAX, SEARCHES_OF_USER_MAX),
            tails: shares(TAILS_MAX, TAILS_OF_USER_MAX),
            downloads: shares(DOWNLOADS_MAX, DOWNLOADS_OF_USER_MAX),
            taps: shares(TAPS_MAX, TAPS_OF_USER_MAX),
            capacity: Arc::default(),
        })
    }

    /// Access for a user.
    pub fn of(self: &Arc<ReadingRules>, user: Option<&str>) -> Reader {
        Reader { reading: Arc::clone(self), user: Arc::from(user.unwrap_or_default()) }
    }
}

impl Reader {
    /// The shared rules.
    pub fn reading(&self) -> &ReadingRules {
        &self.reading
    }

    /// The user's share of processors and memory.
    pub fn share(&self) -> PrincipalCapacity {
        PrincipalCapacity::new(&self.reading.capacity, &self.user)
    }

    /// Waits for a place to search, up to `patience`.
    pub async fn search_place(&self, patience: Duration) -> Result<FairPermit, Problem> {
        let searches = &self.reading.searches;
        let place = tokio::time::timeout(patience, searches.take(&self.user)).await;
        place.map_err(|_| match searches.full(&self.user) {
            ReachedLimit::Share(most) => busy(format!(
                "You have {most} searches going on, the most of one user: try again in a moment"
            )),
            ReachedLimit::All(most) => {
                busy(format!("{most} searches are going on at this console: try again in a moment"))
            }
        })
    }

    /// Takes a place for a live tail if one is free.
    pub fn tail(&self) -> Result<FairPermit, Problem> {
        self.reading.tails.try_take(&self.user).map_err(|full| match full {
            ReachedLimit::Share(most) => {
                busy(format!("You have {most} live tails, the most of one user: close one"))
            }
            ReachedLimit::All(most) => busy(format!("{most} live tails are open at this console: close one")),
        })
    }

    /// Takes a place for a download if one is free.
    pub fn download(&self) -> Result<FairPermit, Problem> {
        self.reading.downloads.try_take(&self.user).map_err(|full| match full {
            ReachedLimit::Share(most) => busy(format!(
                "You have {most} downloads going on, the most of one user: wait for the end of one"
            )),
            ReachedLimit::All(most) => {
                busy(format!("{most} downloads are going on at this console: try again in a moment"))
            }
        })
    }

    /// Takes a place to watch a stage of a stream if one is free.
    pub fn tap(&self) -> Result<FairPermit, Problem> {
        self.reading.taps.try_take(&self.user).map_err(|full| {
            let looked = match full {
                ReachedLimit::Share(most) => {
                    format!("You look at {most} stages already, the most of one user")
                }
                ReachedLimit::All(most) => format!("{most} stages are looked at already"),
            };
            busy(format!("{looked}: close a page of another, and try again in a moment"))
        })
    }
}

/// A problem for a reached limit.
pub fn busy(message: String) -> Problem {
    Problem { status: StatusCode::TOO_MANY_REQUESTS, kind: "busy".to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    async fn searches(reader: &Reader, most: usize) -> Vec<FairPermit> {
        let mut places = Vec::new();
        while places.len() < most
            && let Ok(place) = reader.search_place(SOON).await
        {
            places.push(place);
        }
        places
    }

    #[tokio::test]
    async fn a_user_with_its_whole_share_leaves_room_for_others() {
        let reading = ReadingRules::new(Masking::default(), None, true);
        let [eve, ann] = ["eve", "ann"].map(|user| reading.of(Some(user)));
        for (take, share, words) in [
            (
                Reader::tail as fn(&Reader) -> Result<FairPermit, Problem>,
                TAILS_OF_USER_MAX,
                "You have 8 live tails",
            ),
            (Reader::download, DOWNLOADS_OF_USER_MAX, "You have 2 downloads"),
            (Reader::tap, TAPS_OF_USER_MAX, "You look at 4 stages"),
        ] {
            let held: Vec<FairPermit> = std::iter::from_fn(|| take(&eve).ok()).collect();
            let of_ann = take(&ann);
            assert!(of_ann.is_ok(), "eve has {} places: {of_ann:?}", held.len());
            let refused = take(&eve).expect_err("it has its share");
            assert_eq!((refused.status, held.len()), (StatusCode::TOO_MANY_REQUESTS, share));
            assert!(refused.message.starts_with(words), "{}", refused.message);
        }

        let held = searches(&eve, SEARCHES_MAX).await;
        let of_ann = ann.search_place(SOON).await;
        assert!(of_ann.is_ok(), "eve has {} searches: {of_ann:?}", held.len());
        let refused = eve.search_place(SOON).await.expect_err("it has its share");
        assert!(refused.message.contains("2 searches going on, the most of one user"), "{}", refused.message);
    }

    #[tokio::test]
    async fn without_logins_all_places_are_everyones() {
        let everyone = ReadingRules::new(Masking::default(), None, false).of(None);
        let tails: Vec<FairPermit> = std::iter::from_fn(|| everyone.tail().ok()).collect();
        assert_eq!((tails.len(), searches(&everyone, 100).await.len()), (TAILS_MAX, SEARCHES_MAX));
    }
}
