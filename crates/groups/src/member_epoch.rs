//! Member epochs of requests that end a membership (KIP-848, KIP-932, KIP-1071).

/// The epoch of a member that leaves.
pub(super) const LEAVING: i32 = -1;
/// The epoch of a static member that leaves and will return.
pub(super) const LEAVING_FOR_A_WHILE: i32 = -2;
