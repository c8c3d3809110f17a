//! The quota of changes to the cluster, as one request uses it (Kafka's `StrictControllerMutationQuota` and
//! `PermissiveControllerMutationQuota`, KIP-599).
//!
//! A request takes a token for each partition that it creates or deletes. Clients that know the error are refused what they
//! want while their bucket is in debt. Older ones get it, and are asked to pause.

use super::TokenBucket;

/// What happens to a change above the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// It is refused.
    Strict,
    /// It is made, and the client is asked to pause.
    Permissive,
}

/// A change was refused, because the client is above its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded;

/// The quota of one request: its client's bucket, and what the request has taken from it.
#[derive(Clone, Debug)]
pub struct MutationQuota {
    limited: Option<Limited>,
    taken: f64,
    throttle_ms: i64,
}

#[derive(Clone, Debug)]
struct Limited {
    before: TokenBucket,
    bucket: TokenBucket,
    limit: f64,
    enforcement: Enforcement,
    now_ms: i64,
}

impl MutationQuota {
    /// Without a limit.
    pub fn unlimited() -> MutationQuota {
        MutationQuota { limited: None, taken: 0.0, throttle_ms: 0 }
    }

    /// With a limit in tokens per second, for a request at this time. `bucket` is a copy: [`MutationQuota::spend`] changes
    /// the original.
    pub fn limited(bucket: TokenBucket, limit: f64, enforcement: Enforcement, now_ms: i64) -> MutationQuota {
        let limited = Limited { before: bucket.clone(), bucket, limit, enforcement, now_ms };
        MutationQuota { limited: Some(limited), taken: 0.0, throttle_ms: 0 }
    }

    /// Takes a token for each of these partitions.
    pub fn take(&mut self, partitions: usize) -> Result<(), QuotaExceeded> {
        let Some(Limited { bucket, limit, enforcement, now_ms, .. }) = &mut self.limited else {
            return Ok(());
        };
        #[expect(clippy::cast_precision_loss, reason = "a request changes a bounded number of partitions")]
        let tokens = partitions as f64;
        if *enforcement == Enforcement::Strict
            && let Some(throttle_ms) = bucket.throttle_ms(*limit, *now_ms)
        {
            self.throttle_ms = throttle_ms;
            return Err(QuotaExceeded);
        }
        bucket.take(tokens, *limit, *now_ms);
        self.taken += tokens;
        if *enforcement == Enforcement::Permissive
            && let Some(throttle_ms) = bucket.throttle_ms(*limit, *now_ms)
        {
            self.throttle_ms = throttle_ms;
        }
        Ok(())
    }

    /// Takes from the bucket that was copied what the request has taken, at this time. Others may have taken something in
    /// between.
    pub fn spend(self, bucket: &mut TokenBucket, now_ms: i64) {
        match self.limited {
            Some(limited) if limited.before == *bucket => *bucket = limited.bucket,
            Some(limited) => bucket.take(self.taken, limited.limit, now_ms),
            None => {}
        }
    }

    /// The tokens that were taken.
    pub fn taken(&self) -> f64 {
        self.taken
    }

    /// How long the client has to pause, in milliseconds.
    pub fn throttle_ms(&self) -> i64 {
        self.throttle_ms
    }
}

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;

    fn quota(bucket: &TokenBucket, enforcement: Enforcement, now_ms: i64) -> MutationQuota {
        MutationQuota::limited(bucket.clone(), 5.0, enforcement, now_ms)
    }

    #[test]
    fn a_change_above_the_quota_is_refused_or_slowed_down() {
        let mut bucket = TokenBucket::new(Window { samples: 10, sample_ms: 1000 });
        let mut strict = quota(&bucket, Enforcement::Strict, 0);
        assert_eq!(strict.take(70), Ok(()), "there were 50, and none was owed");
        assert_eq!(strict.throttle_ms(), 0);
        assert_eq!(strict.take(1), Err(QuotaExceeded));
        assert_eq!((strict.throttle_ms(), strict.taken()), (4000, 70.0));

        let (mut other, again) = (bucket.clone(), strict.clone());
        strict.spend(&mut bucket, 0);
        other.take(3.0, 5.0, 0);
        again.spend(&mut other, 0);
        assert_eq!((bucket.throttle_ms(5.0, 0), other.throttle_ms(5.0, 0)), (Some(4000), Some(4600)));
        let mut permissive = quota(&bucket, Enforcement::Permissive, 3000);
        assert_eq!(permissive.take(5), Ok(()));
        assert_eq!((permissive.throttle_ms(), permissive.taken()), (2000, 5.0));
        assert_eq!(MutationQuota::unlimited().take(1_000_000), Ok(()));
    }
}
