// Why a packet was dropped (index of the counter ingress.drops), and what aggregation did with the others
// (index of the counter ingress.aggregation.events). controller/telemetry.py has the same names for them; a test holds
// the two together.

#ifndef FANIN_REASONS_P4
#define FANIN_REASONS_P4

const bit<8> REASON_NONE = 0;
const bit<8> REASON_LOST = 1;          // the emulated link lost it
const bit<8> REASON_TRUNCATED = 2;     // shorter than its headers say
const bit<8> REASON_MALFORMED = 3;     // IPv4 of another version, or with options
const bit<8> REASON_BAD_CHECKSUM = 4;  // of IPv4's header, or of UDP
const bit<8> REASON_NOT_IP = 5;        // neither IPv4 nor an ARP request that is ours to answer
const bit<8> REASON_NO_ROUTE = 6;
const bit<8> REASON_TTL = 7;
const bit<8> REASON_NOT_ADMITTED = 8;  // to this switch, but no member that the admission table knows, or an old lease
const bit<8> REASON_BAD_TYPE = 9;      // a result from a child, an update from the parent, an unknown type
const bit<8> REASON_BAD_SLOT = 10;     // outside the job's slots
const bit<8> REASON_BAD_SIZE = 11;     // not 64 or 256 values, or another size than the chunk's
const bit<8> REASON_OLD_CHUNK = 12;    // a late duplicate of a chunk that is over
const bit<8> REASON_BAD_CHUNK = 13;    // outside the lease's chunk numbers: of an earlier holder of its id
const bit<8> REASON_DUPLICATE = 14;    // already added, and nothing to answer yet
const bit<8> REASON_STALE_RESULT = 15; // from the parent, for a chunk that is done or not ours
const bit<8> REASON_MISMATCH = 16;     // of the chunk, but of another all-reduce: the workers do not sum the same vector
const bit<8> REASON_FORGED = 17;       // to be routed, in the name of a switch
const bit<8> REASON_NO_CHECKSUM = 18;  // a UDP checksum of 0 ("none") in a lease whose entries require one
#define REASONS 19

const bit<32> EVENT_NEW_CHUNK = 0;
const bit<32> EVENT_ADDED = 1;
const bit<32> EVENT_COMPLETED = 2;     // at the root: multicast; elsewhere: sent up
const bit<32> EVENT_RESULT_DOWN = 3;   // the parent's result, multicast to the children
const bit<32> EVENT_SERVED_AGAIN = 4;  // the stored result, to the one child that asked again
const bit<32> EVENT_SENT_UP_AGAIN = 5; // the stored partial sum, since a child asked again
const bit<32> EVENT_SATURATED = 6;     // updates in whose addition a value met the limits of int32
#define EVENTS 7

#endif
