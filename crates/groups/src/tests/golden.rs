//! `__consumer_offsets` written by Apache Kafka 4.3.1 (`tests/golden/ConsumerOffsetsWriter.java`): it loads
//! to Kafka's description of its groups, and each record is encoded to Kafka's bytes.

use super::harness::{fetch_request, moment, shared_state};
use crate::offsets::TransactionOutcome;
use crate::record::CoordinatorRecord;
use crate::shard::{EndOfTransaction, GroupShard};
use std::fmt::Write;
use thalweg_record::{DecompressBuffer, ProducerEpoch, ProducerId, batches};
use thalweg_shard::{Piece, Shard as _, Ticket};
use thalweg_wire::data::ConsumerProtocolAssignment;
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_wire::{Decoder, Message};

const PLAIN: &[u8] = include_bytes!("../../tests/golden/consumer-offsets.log");
const PLAIN_STATE: &str = include_str!("../../tests/golden/consumer-offsets.txt");
const ZSTD: &[u8] = include_bytes!("../../tests/golden/consumer-offsets-zstd.log");
const ZSTD_STATE: &str = include_str!("../../tests/golden/consumer-offsets-zstd.txt");

fn load(log: &[u8]) -> GroupShard {
    let now = moment(0);
    let mut shard = GroupShard::new(&shared_state(), 0, now);
    shard.replay(Piece::acknowledged(log), &mut DecompressBuffer::default(), now).expect("Kafka wrote it");
    shard.loaded(None, now);
    shard
}

/// The partitions in a consumer's assignment, formatted like Kafka's admin client.
fn partitions_of(assignment: &bytes::Bytes) -> Vec<String> {
    let mut d = Decoder::new(assignment.clone());
    let Ok(version) = d.i16() else { return Vec::new() };
    let assignment = ConsumerProtocolAssignment::decode(&mut d, version.min(3)).expect("a consumer's");
    let topics = assignment.assigned_partitions.iter();
    let mut all: Vec<String> =
        topics.flat_map(|t| t.partitions.iter().map(|p| format!("{}-{p}", t.topic))).collect();
    all.sort();
    all
}

/// The shard in the format of the golden text.
fn picture(shard: &GroupShard) -> String {
    let mut text = String::new();
    for listed in shard.list_groups(&[], &["classic".to_owned()]) {
        let id = &listed.group_id;
        let group = shard.describe_group(id, 6);
        let (state, kind, data) = (&group.group_state, &group.protocol_type, &group.protocol_data);
        writeln!(text, "group\t{id}\t{state}\t{kind}\t{data}").expect("a string takes all");
        let mut members = group.members;
        members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
        for member in members {
            let instance = member.group_instance_id.as_deref().unwrap_or("-");
            let partitions = partitions_of(&member.member_assignment).join(", ");
            let (id, client, host) = (&member.member_id, &member.client_id, &member.client_host);
            writeln!(text, "member\t{id}\t{instance}\t{client}\t{host}\t[{partitions}]").expect("as above");
        }
        let all = OffsetFetchRequestGroup { group_id: id.clone(), topics: None, ..Default::default() };
        for topic in shard.fetch_offsets(&all).topics {
            for p in topic.partitions {
                let (name, metadata) = (&topic.name, p.metadata.unwrap_or_default());
                let (index, offset, epoch) =
                    (p.partition_index, p.committed_offset, p.committed_leader_epoch);
                writeln!(text, "offset\t{name}\t{index}\t{offset}\t{epoch}\t{metadata}").expect("as above");
            }
        }
    }
    text
}

#[test]
fn what_kafka_wrote_loads_to_what_kafka_knew() {
    assert_eq!(picture(&load(PLAIN)), PLAIN_STATE);
    assert_eq!(picture(&load(ZSTD)), ZSTD_STATE);
}

#[test]
fn a_transaction_that_kafka_left_open_is_open() {
    for log in [PLAIN, ZSTD] {
        let mut shard = load(log);
        let request = fetch_request("open", 0);
        shard.fetch_offsets_after_writes(&request, true, Ticket(1));
        let answers = format!("{:?}", shard.answers());
        assert!(answers.contains("error_code: 88"), "UNSTABLE_OFFSET_COMMIT: {answers}");
        let open: Vec<_> = (0..10).map(ProducerId).collect();
        open.into_iter().for_each(|id| end(&mut shard, id));
        assert_eq!(shard.fetch_offsets(&request).topics[0].partitions[0].committed_offset, 300);
    }
}

fn end(shard: &mut GroupShard, producer_id: ProducerId) {
    let outcome = TransactionOutcome::Commit;
    let end = EndOfTransaction { outcome, coordinator_epoch: 0, transaction_version: 0 };
    shard.complete_transaction(producer_id, ProducerEpoch(0), end, Ticket(2));
    let write = shard.next_write().expect("a marker is written");
    shard.written(write, 1_000_000, moment(0));
    shard.acknowledged(1_000_000, moment(0));
}

#[test]
fn records_are_encoded_to_the_bytes_that_kafka_wrote() {
    let mut buffer = DecompressBuffer::default();
    let (mut served, mut passed_over, mut tombstones) = (0, 0, 0);
    for log in [PLAIN, ZSTD] {
        for batch in batches(log) {
            let batch = batch.expect("Kafka wrote it");
            if batch.header.attributes.is_control() {
                continue;
            }
            for record in batch.records(&mut buffer).expect("Kafka wrote it") {
                let record = record.expect("Kafka wrote it");
                let Some(decoded) = CoordinatorRecord::decode(record.key, record.value).expect("Kafka's")
                else {
                    passed_over += 1;
                    continue;
                };
                let (key, value) = decoded.encode().expect("it was short enough for Kafka");
                assert_eq!(Some(&*key), record.key, "{decoded:?}");
                assert_eq!(value.as_deref(), record.value, "{decoded:?}");
                served += 1;
                tombstones += i32::from(value.is_none());
            }
        }
    }
    assert!(served >= 48 && passed_over == 0 && tombstones >= 8, "{served} {passed_over} {tombstones}");
}

#[test]
fn a_group_is_written_as_kafka_wrote_it() {
    let mut last = None;
    let mut buffer = DecompressBuffer::default();
    for batch in batches(PLAIN).map(|batch| batch.expect("Kafka wrote it")) {
        for record in batch.records(&mut buffer).expect("Kafka wrote it") {
            let record = record.expect("Kafka wrote it");
            if let Ok(Some(decoded)) = CoordinatorRecord::decode(record.key, record.value)
                && matches!(&decoded, CoordinatorRecord::GroupMetadata(key, Some(_)) if key.group == "members")
            {
                last = Some(decoded);
            }
        }
    }
    let Some(CoordinatorRecord::GroupMetadata(key, Some(value))) = last else { panic!("it is in the log") };
    let group = crate::classic::ClassicGroup::from_record(key.group.as_str().into(), value.clone());
    assert_eq!(group.snapshot(), CoordinatorRecord::GroupMetadata(key, Some(value)));
}

#[test]
fn damaged_logs_are_refused_and_never_a_panic() {
    // Flips bits of one byte at a time: loading fails, or the result differs.
    for at in 0..PLAIN.len() {
        let mut damaged = PLAIN.to_vec();
        damaged[at] ^= 0x55;
        let now = moment(0);
        let mut shard = GroupShard::new(&shared_state(), 0, now);
        if shard.replay(Piece::acknowledged(&damaged), &mut DecompressBuffer::default(), now).is_ok() {
            shard.loaded(None, now);
        }
    }
}
