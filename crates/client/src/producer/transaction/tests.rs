use thalweg_dial::RefusedRequest;

use super::*;
use crate::producer::delivery::BatchRefused;

fn ready(implicit: bool) -> Transaction {
    let mut transaction = Transaction::new("t".into());
    transaction.check_new().expect("it is new");
    transaction.initialised(implicit);
    transaction
}

fn open(implicit: bool) -> Transaction {
    let mut transaction = ready(implicit);
    transaction.begin().expect("it is ready");
    transaction
}

fn refusal(error_code: ErrorCode) -> ClientError {
    RefusedRequest { what: "a request".to_owned(), error_code, message: None }.into()
}

fn of_batch(error_code: ErrorCode) -> DeliveryError {
    BatchRefused { topic: "t".into(), partition: 0, error_code, message: None }.into()
}

#[test]
fn calls_are_taken_in_their_order_only() {
    let mut transaction = Transaction::new("t".into());
    let error = transaction.begin().expect_err("it is not initialised");
    assert!(error.to_string().contains("init_transactions has not succeeded yet"), "{error}");
    assert!(!error.is_fatal() && !error.is_abortable() && !error.is_retriable());
    transaction.initialised(true);
    assert!(transaction.check_new().is_err(), "once is enough");
    assert!(transaction.check_open("send").is_err());
    assert!(
        transaction.end(TransactionResult::Commit).is_err()
            && transaction.end(TransactionResult::Abort).is_err()
    );
    transaction.begin().expect("it is ready");
    assert!(transaction.begin().is_err(), "one at a time");
    transaction.end(TransactionResult::Commit).expect("it is open");
    assert!(transaction.end(TransactionResult::Abort).is_err(), "the commit may have been made");
    transaction.end(TransactionResult::Commit).expect("the same call goes on");
    transaction.ended(true);
    transaction.begin().expect("the next one");
}

#[test]
fn a_partition_joins_by_itself_or_is_registered_first() {
    let mut implicit = open(true);
    assert!(!implicit.joined(3) && implicit.may_produce(false));
    assert!(implicit.take_unregistered().is_empty());

    let mut explicit = open(false);
    assert!(explicit.joined(3) && !explicit.may_produce(false) && explicit.may_produce(true));
    assert_eq!(explicit.take_unregistered(), [3]);
    assert!(explicit.is_registering());
    explicit.registered();
    explicit.end(TransactionResult::Commit).expect("it is open");
    let expected = EndSteps { tells_coordinator: true, bumps_epoch: false };
    assert_eq!(explicit.flushed().expect("nothing failed"), expected);
}

#[test]
fn an_empty_transaction_costs_no_request() {
    for (implicit, end) in [
        (true, TransactionResult::Commit),
        (false, TransactionResult::Commit),
        (true, TransactionResult::Abort),
        (false, TransactionResult::Abort),
    ] {
        let mut transaction = open(implicit);
        transaction.end(end).expect("it is open");
        let expected = EndSteps { tells_coordinator: false, bumps_epoch: false };
        assert_eq!(transaction.flushed().expect("nothing failed"), expected);
    }
}

#[test]
fn a_failed_batch_makes_the_transaction_abortable() {
    for implicit in [true, false] {
        let mut transaction = open(implicit);
        transaction.joined(0);
        transaction.registered();
        transaction.batch_failed(&of_batch(ErrorCode::MessageTooLarge), true);
        assert!(transaction.drops_batches() && !transaction.may_retry() && !transaction.may_produce(true));
        assert!(transaction.check_open("send").expect_err("it has failed").is_abortable());
        assert!(transaction.end(TransactionResult::Commit).expect_err("it has failed").is_abortable());
        transaction.end(TransactionResult::Abort).expect("that is left");
        // The newer protocol returns the next epoch with the end; the older protocol needs a separate
        // request.
        let expected = EndSteps { tells_coordinator: true, bumps_epoch: !implicit };
        assert_eq!(transaction.flushed().expect("an abort cannot fail"), expected);
        transaction.coordinator_ended();
        transaction.ended(implicit);
        transaction.begin().expect("the next one");
    }
}

#[test]
fn a_batch_that_fails_during_the_commit_takes_it_back() {
    let mut transaction = open(true);
    transaction.joined(0);
    transaction.end(TransactionResult::Commit).expect("it is open");
    transaction.batch_failed(&of_batch(ErrorCode::InvalidRecord), true);
    let error = transaction.flushed().expect_err("a record is missing");
    assert!(error.is_abortable());
    assert_eq!(error.error_code(), Some(ErrorCode::InvalidRecord));
    transaction.end(TransactionResult::Abort).expect("it is open again");
}

#[test]
fn answers_are_fatal_abortable_or_undecided() {
    let judged = |error_code| {
        let mut transaction = open(true);
        let error = transaction.refused(refusal(error_code));
        assert_eq!(error.error_code(), Some(error_code));
        (error.is_fenced(), error.is_fatal(), error.is_abortable(), error.is_retriable())
    };
    for fenced in [ErrorCode::ProducerFenced, ErrorCode::InvalidProducerEpoch] {
        assert_eq!(judged(fenced), (true, true, false, false), "{fenced}");
    }
    for fatal in [
        ErrorCode::InvalidTxnState,
        ErrorCode::InvalidProducerIdMapping,
        ErrorCode::TransactionalIdAuthorizationFailed,
        ErrorCode::UnknownServerError,
    ] {
        assert_eq!(judged(fatal), (false, true, false, false), "{fatal}");
    }
    for abortable in [
        ErrorCode::TransactionAbortable,
        ErrorCode::IllegalGeneration,
        ErrorCode::UnknownMemberId,
        ErrorCode::UnknownProducerId,
        ErrorCode::FencedInstanceId,
        ErrorCode::TopicAuthorizationFailed,
        ErrorCode::GroupAuthorizationFailed,
    ] {
        assert_eq!(judged(abortable), (false, false, true, false), "{abortable}");
    }
    for undecided in [ErrorCode::ConcurrentTransactions, ErrorCode::NotCoordinator] {
        assert_eq!(judged(undecided), (false, false, false, true), "{undecided}");
    }
}

#[test]
fn a_stale_epoch_in_a_partition_is_decided_by_the_coordinator() {
    let mut transaction = open(true);
    transaction.joined(0);
    transaction.batch_failed(&of_batch(ErrorCode::InvalidProducerEpoch), true);
    transaction.end(TransactionResult::Abort).expect("it is abortable");
    transaction.flushed().expect("it may be ended");
    let error = transaction.refused(refusal(ErrorCode::InvalidProducerEpoch));
    assert!(error.is_fenced());
    assert!(transaction.end(TransactionResult::Abort).expect_err("it is over").is_fenced());
    assert!(transaction.begin().expect_err("it is over").is_fatal());
}

#[test]
fn a_fatal_failure_stays_and_covers_an_abortable_one() {
    let mut transaction = open(true);
    transaction.joined(0);
    transaction.batch_failed(&of_batch(ErrorCode::InvalidRecord), true);
    transaction.batch_failed(&of_batch(ErrorCode::ProducerFenced), true);
    transaction.batch_failed(&of_batch(ErrorCode::InvalidRecord), true);
    assert!(transaction.end(TransactionResult::Abort).expect_err("it is over").is_fenced());
}

#[test]
fn what_the_coordinator_may_have_registered_is_ended_by_another_epoch() {
    let mut transaction = open(false);
    transaction.joined(0);
    transaction.take_unregistered();
    transaction.not_registered(refusal(ErrorCode::RequestTimedOut));
    transaction.end(TransactionResult::Abort).expect("it is abortable");
    let expected = EndSteps { tells_coordinator: false, bumps_epoch: true };
    assert_eq!(transaction.flushed().expect("an abort cannot fail"), expected);
}

#[test]
fn a_refused_commit_leaves_the_abort() {
    let mut transaction = open(false);
    transaction.joined(0);
    transaction.registered();
    transaction.end(TransactionResult::Commit).expect("it is open");
    transaction.flushed().expect("nothing failed");
    assert!(transaction.refused(refusal(ErrorCode::TransactionAbortable)).is_abortable());
    transaction.end(TransactionResult::Abort).expect("that is left");
    let expected = EndSteps { tells_coordinator: true, bumps_epoch: true };
    assert_eq!(transaction.flushed().expect("an abort cannot fail"), expected);
}
