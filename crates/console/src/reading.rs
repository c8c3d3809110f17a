//! The rules of reading messages, the same for all users: masks, the registry that decodes, and the limits of what goes on at once,
//! of all people and of one.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use thalweg_browse::{Capacity, Masking, Registry, Share};
use thalweg_places::{Full, Place, Places};

use crate::problem::Problem;

/// Searches at once, and those of one user; further ones wait.
const SEARCHES_MAX: usize = 8;
const SEARCHES_OF_USER_MAX: usize = 2;
/// Live tails at once, and those of one user; further ones are refused.
const TAILS_MAX: usize = 32;
const TAILS_OF_USER_MAX: usize = 8;

/// Stages of streams that are looked at, and those that one user looks at.
const TAPS_MAX: usize = 16;
const TAPS_OF_USER_MAX: usize = 4;

/// How messages are read.
pub struct Reading {
    pub masking: Masking,
    pub registry: Option<Arc<Registry>>,
    searches: Places<Arc<str>>,
    tails: Places<Arc<str>>,
    taps: Places<Arc<str>>,
    capacity: Arc<Capacity>,
}

/// How one user reads messages.
pub struct Reader {
    reading: Arc<Reading>,
    /// The user's name; empty where there are no logins, so that all people are one.
    user: Arc<str>,
}

impl Reading {
    /// With shares of users where they log in; without logins, all people have all of it.
    pub fn new(masking: Masking, registry: Option<Arc<Registry>>, has_login: bool) -> Arc<Reading> {
        let shares = |all, of_user| Places::new(all, if has_login { of_user } else { all });
        Arc::new(Reading {
            masking,
            registry,
            searches: shares(SEARCHES_MAX, SEARCHES_OF_USER_MAX),
            tails: shares(TAILS_MAX, TAILS_OF_USER_MAX),
            taps: shares(TAPS_MAX, TAPS_OF_USER_MAX),
            capacity: Arc::default(),
        })
    }

    /// How a user reads.
    pub fn of(self: &Arc<Reading>, user: Option<&str>) -> Reader {
        Reader { reading: Arc::clone(self), user: Arc::from(user.unwrap_or_default()) }
    }
}

impl Reader {
    /// The rules, the same for all users.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The share of processors and memory.
    pub fn share(&self) -> Share {
        Share::new(&self.reading.capacity, &self.user)
    }

    /// Waits for a place to search, for at most this long.
    pub async fn search(&self, patience: Duration) -> Result<Place, Problem> {
        let searches = &self.reading.searches;
        let place = tokio::time::timeout(patience, searches.take(&self.user)).await;
        place.map_err(|_| match searches.full(&self.user) {
            Full::Share(most) => busy(format!(
                "You have {most} searches going on, the most of one user: try again in a moment"
            )),
            Full::All(most) => {
                busy(format!("{most} searches are going on at this console: try again in a moment"))
            }
        })
    }

    /// A place for a live tail, if there is one.
    pub fn tail(&self) -> Result<Place, Problem> {
        self.reading.tails.try_take(&self.user).map_err(|full| match full {
            Full::Share(most) => busy(format!("You have {most} live tails, the most of one user: close one")),
            Full::All(most) => busy(format!("{most} live tails are open at this console: close one")),
        })
    }

    /// A place to look at a stage of a stream, if there is one.
    pub fn tap(&self) -> Result<Place, Problem> {
        self.reading.taps.try_take(&self.user).map_err(|full| {
            let looked = match full {
                Full::Share(most) => format!("You look at {most} stages already, the most of one user"),
                Full::All(most) => format!("{most} stages are looked at already"),
            };
            busy(format!("{looked}: close a page of another, and try again in a moment"))
        })
    }
}

/// A limit is reached.
pub fn busy(message: String) -> Problem {
    Problem { status: StatusCode::TOO_MANY_REQUESTS, kind: "busy".to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    async fn searches(reader: &Reader, most: usize) -> Vec<Place> {
        let mut places = Vec::new();
        while places.len() < most
            && let Ok(place) = reader.search(SOON).await
        {
            places.push(place);
        }
        places
    }

    #[tokio::test]
    async fn a_user_with_its_whole_share_leaves_room_for_others() {
        let reading = Reading::new(Masking::default(), None, true);
        let [eve, ann] = ["eve", "ann"].map(|user| reading.of(Some(user)));
        for (take, share, words) in [
            (
                Reader::tail as fn(&Reader) -> Result<Place, Problem>,
                TAILS_OF_USER_MAX,
                "You have 8 live tails",
            ),
            (Reader::tap, TAPS_OF_USER_MAX, "You look at 4 stages"),
        ] {
            let held: Vec<Place> = std::iter::from_fn(|| take(&eve).ok()).collect();
            let of_ann = take(&ann);
            assert!(of_ann.is_ok(), "eve has {} places: {of_ann:?}", held.len());
            let refused = take(&eve).expect_err("it has its share");
            assert_eq!((refused.status, held.len()), (StatusCode::TOO_MANY_REQUESTS, share));
            assert!(refused.message.starts_with(words), "{}", refused.message);
        }

        let held = searches(&eve, SEARCHES_MAX).await;
        let of_ann = ann.search(SOON).await;
        assert!(of_ann.is_ok(), "eve has {} searches: {of_ann:?}", held.len());
        let refused = eve.search(SOON).await.expect_err("it has its share");
        assert!(refused.message.contains("2 searches going on, the most of one user"), "{}", refused.message);
    }

    #[tokio::test]
    async fn without_logins_all_places_are_everyones() {
        let everyone = Reading::new(Masking::default(), None, false).of(None);
        let tails: Vec<Place> = std::iter::from_fn(|| everyone.tail().ok()).collect();
        assert_eq!((tails.len(), searches(&everyone, 100).await.len()), (TAILS_MAX, SEARCHES_MAX));
    }
}
