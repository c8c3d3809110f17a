//! The quota of changes to the cluster, as one request uses it (Kafka's `StrictControllerMutationQuota` and
//! `PermissiveControllerMutationQuota`, KIP-599).
//!
//! A request takes one token per created or deleted partition. While the bucket is in debt, clients that know
//! THROTTLING_QUOTA_EXCEEDED get this error. Older clients get their change, and are throttled.

use super::TokenBucket;

/// The treatment of changes above the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Changes are refused.
    Strict,
    /// Changes are made, and the client is throttled.
    Permissive,
}

/// A refused change of a client above its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded;

/// The quota of one request: the client's bucket, and the tokens taken by the request.
#[derive(Clone, Debug)]
pub struct MutationQuota {
    limited: Option<LimitedBucket>,
    taken: f64,
    throttle_ms: i64,
}

#[derive(Clone, Debug)]
struct LimitedBucket {
    before: TokenBucket,
    bucket: TokenBucket,
    limit: f64,
    enforcement: Enforcement,
    now_ms: i64,
}

impl MutationQuota {
    /// A quota without a limit.
    pub fn unlimited() -> MutationQuota {
        MutationQuota { limited: None, taken: 0.0, throttle_ms: 0 }
    }

    /// A quota with a limit in tokens per second, for a request at time `now_ms`. `bucket` is a copy;
    /// [`MutationQuota::spend`] updates the original.
    pub fn limited(bucket: TokenBucket, limit: f64, enforcement: Enforcement, now_ms: i64) -> MutationQuota {
        let limited = LimitedBucket { before: bucket.clone(), bucket, limit, enforcement, now_ms };
        MutationQuota { limited: Some(limited), taken: 0.0, throttle_ms: 0 }
    }

    /// Takes one token per partition.
    pub fn take(&mut self, partitions: usize) -> Result<(), QuotaExceeded> {
        let Some(LimitedBucket { bucket, limit, enforcement, now_ms, .. }) = &mut self.limited else {
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

    /// Takes the tokens of this request from the original bucket. Other requests may have taken tokens in the
    /// meantime.
    pub fn spend(self, bucket: &mut TokenBucket, now_ms: i64) {
        match self.limited {
            Some(limited) if limited.before == *bucket => *bucket = limited.bucket,
            Some(limited) => bucket.take(self.taken, limited.limit, now_ms),
            None => {}
        }
    }

    /// The number of tokens taken.
    pub fn taken(&self) -> f64 {
        self.taken
    }

    /// The throttle time of the client in milliseconds.
    pub fn throttle_ms(&self) -> i64 {
        self.throttle_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Window;

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
