"""The batches in bytes of records, by the fields of their headers."""

import struct

HEAD = ">qiibIhiqqqhii"
NAMES = ("baseOffset", "length", "epoch", "magic", "crc", "attributes", "lastOffsetDelta", "baseTimestamp", "maxTimestamp")
NAMES += ("producerId", "producerEpoch", "baseSequence", "count")
CONTROL = 0x20


def batches(data):
    """A dict for each batch; a batch that is not whole, or of an old format, is its bytes."""
    found, at = [], 0
    while at + struct.calcsize(HEAD) <= len(data):
        head = dict(zip(NAMES, struct.unpack_from(HEAD, data, at)))
        end = at + 12 + head["length"]
        head["records"] = data[at + struct.calcsize(HEAD) : end].hex()
        # The checksum covers the producer's id and the times of control records, which are each node's own.
        del head["crc"]
        if head["attributes"] & CONTROL:
            del head["baseTimestamp"], head["maxTimestamp"]
        found.append(head)
        at = max(end, at + 1)
    if at < len(data):
        found.append({"rest": data[at:].hex()})
    return found
