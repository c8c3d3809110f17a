//! Settings under librdkafka's names: a setting with an equivalent in Kafka's clients is renamed, and a
//! setting for other clients only is set aside. TLS and SASL are not included: [`Security`](crate::Security)
//! accepts both names of its settings.

use super::{InvalidSetting, Properties};

/// librdkafka's names, and Kafka's equivalents.
const NAMES: [(&str, &str); 12] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("message.max.bytes", "max.request.size"),
    ("message.send.max.retries", "retries"),
    ("message.timeout.ms", "delivery.timeout.ms"),
    ("compression.codec", "compression.type"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("request.required.acks", "acks"),
    ("fetch.wait.max.ms", "fetch.max.wait.ms"),
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    ("socket.timeout.ms", "request.timeout.ms"),
    ("topic.metadata.refresh.interval.ms", "metadata.max.age.ms"),
];

/// The same for settings in KiB.
const NAMES_KIB: [(&str, &str, u64); 2] = [
    ("queue.buffering.max.kbytes", "buffer.memory", u64::MAX),
    ("queued.max.messages.kbytes", "fetch.max.bytes", i32::MAX as u64),
];

/// librdkafka's values of `auto.offset.reset`.
const RESETS: [(&str, &str); 5] = [
    ("smallest", "earliest"),
    ("beginning", "earliest"),
    ("largest", "latest"),
    ("end", "latest"),
    ("error", "none"),
];

/// Settings of the internals of librdkafka and Java's client that this client ignores: they change the way of
/// working, not the result.
const WITHOUT_EFFECT: &str = "\
    api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family \
    broker.address.ttl broker.version.fallback client.dns.lookup connections.max.idle.ms coordinator.query.interval.ms debug \
    default.api.timeout.ms enable.auto.offset.store enable.metrics.push enable.partition.eof enable.random.seed \
    fetch.error.backoff.ms fetch.queue.backoff.ms interceptor.classes log.connection.close log.queue log.thread.name log_level \
    max.poll.records message.copy.max.bytes metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms \
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms \
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms \
    queue.buffering.backpressure.threshold queue.buffering.max.messages queued.min.messages receive.message.max.bytes \
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms send.buffer.bytes \
    socket.connection.setup.timeout.max.ms socket.keepalive.enable socket.max.fails socket.nagle.disable \
    socket.receive.buffer.bytes socket.send.buffer.bytes statistics.interval.ms sticky.partitioning.linger.ms \
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms \
    topic.metadata.refresh.sparse";

/// Settings here that replace some of these.
const INSTEAD: [(&str, &str); 3] = [
    ("queue.buffering.max.messages", "buffer.memory"),
    ("queued.min.messages", "fetch.max.bytes"),
    ("sticky.partitioning.linger.ms", "batch.size"),
];

impl Properties {
    /// Renames settings from librdkafka's names to Kafka's; if both are set, Kafka's wins. Takes settings for
    /// other clients only, and returns their names, each with the replacement if there is one.
    pub fn rename_librdkafka(&mut self) -> Result<Vec<(&'static str, Option<&'static str>)>, InvalidSetting> {
        // Other partitioners would send keys to other partitions.
        self.take_choice("partitioner", (), &[("murmur2_random", ()), ("murmur2", ())])?;
        let mut unused = Vec::new();
        for key in WITHOUT_EFFECT.split_whitespace() {
            if self.take(key).is_some() {
                unused.push((key, INSTEAD.iter().find(|(old, _)| *old == key).map(|(_, instead)| *instead)));
            }
        }
        for (key, name) in NAMES {
            if let Some(value) = self.take(key) {
                self.set_default_from(key, name, &value);
            }
        }
        for (key, name, bytes_max) in NAMES_KIB {
            let kib: u64 = self.take_number(key, 0, 0, u64::MAX >> 10)?;
            if kib > 0 {
                self.set_default_from(key, name, &(kib << 10).min(bytes_max).to_string());
            }
        }
        if let Some(level) = self.take("compression.level") {
            self.set_level(&level);
        }
        let reset = self.get("auto.offset.reset").unwrap_or_default().trim();
        if let Some((_, word)) = RESETS.iter().find(|(theirs, _)| *theirs == reset) {
            self.set("auto.offset.reset", word);
        }
        Ok(unused)
    }

    /// -1 is the codec's default level, and snappy has no levels.
    fn set_level(&mut self, level: &str) {
        let codec = self.get("compression.type").unwrap_or("none").trim().to_owned();
        if level.trim() != "-1" && matches!(&*codec, "gzip" | "lz4" | "zstd") {
            self.set_default_from("compression.level", &format!("compression.{codec}.level"), level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(text: &str) -> Result<Properties, InvalidSetting> {
        let mut properties = Properties::parse(text);
        properties.rename_librdkafka().map(|_unused| properties)
    }

    #[test]
    fn settings_of_other_clients_are_set_aside_unless_they_change_what_is_done() {
        let mut properties = Properties::parse("queued.min.messages=10\nlog_level=7\nacks=1");
        let unused = properties.rename_librdkafka().expect("no mistake");
        assert_eq!(unused, [("log_level", None), ("queued.min.messages", Some("fetch.max.bytes"))]);
        assert_eq!(properties.rest().collect::<Vec<_>>(), ["acks"]);
        for (text, told) in [
            ("partitioner=consistent", "partitioner=consistent is invalid: expected murmur2_random, murmur2"),
            (
                "queue.buffering.max.kbytes=x",
                "queue.buffering.max.kbytes=x is invalid: expected a number from 0",
            ),
        ] {
            let error = renamed(text).map(drop).expect_err(text).to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }
}
