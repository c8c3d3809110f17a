//! Member epochs in requests of groups whose coordinator assigns (KIP-848, KIP-932, KIP-1071).

/// The epoch of a member that leaves.
pub(super) const LEAVING: i32 = -1;
/// The epoch of a static member that leaves and will return.
pub(super) const LEAVING_FOR_A_WHILE: i32 = -2;

/// True if a member may send this epoch: 0, with which it joins again, or its current one. The previous epoch
/// is also valid if `is_retry` returns true, because the answer with the new epoch may be lost.
pub(super) fn is_valid(received: i32, current: i32, previous: i32, is_retry: impl FnOnce() -> bool) -> bool {
    received == 0 || received == current || (received < current && received == previous && is_retry())
}
