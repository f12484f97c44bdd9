/* Replay of egress for the packets of a superframe. Egress mostly does the same to the n-th replica of each packet:
 * the same lookups, the same new addresses. What it did to one packet's replicas is recorded here and repeated for
 * those of the next packet, as long as that packet is equal in everything that egress reads or writes. The program
 * compares (same_for_egress) and repeats (repeat_egress; codegen/analysis/replaying.py). All packets of a superframe
 * are processed under one lock, so that tables do not change in between. Operations with a different result each
 * time (a register, a random number) are not replayed. Included between struct packet and struct state. */

#ifndef P4SWITCH_REPLAY_H
#define P4SWITCH_REPLAY_H

#define REPLAYED 128      /* first bytes of a packet, which must contain everything that egress uses */
#define MAX_REPLAYED 32  /* replicas of a packet */
#define MAX_COUNTED 4    /* counters that egress increments for one replica */
#define MAX_RECORDINGS 4 /* in a superframe, because its packets may all be different */

/* A header up to the last byte that egress uses. */
struct beginning {
    uint16_t header, bytes;
};

/* Bytes of a header that egress may write. */
struct stretch {
    uint16_t header, first, count;
};

/* The effect of egress on one replica. */
struct replica_record {
    uint8_t after[REPLAYED];
    uint64_t changed; /* by stretch: whether its bytes differ from those of the replica before */
    struct counter *counter[MAX_COUNTED];
    uint32_t counted;
    bool dropped;
};

struct replay {
    uint64_t superframe;           /* the recorded superframe */
    uint32_t recordings;           /* recordings in it; each replaces the one before */
    bool complete;                 /* the records may be replayed */
    struct replica_record *record; /* of the current replica; NULL: it is not recorded */
    /* The packet before egress: */
    const struct replicas *group;
    uint64_t now;
    uint32_t length;
    bool valid[HEADERS + 1];
    ptrdiff_t at[HEADERS + 1]; /* of the headers that egress uses */
    struct metadata meta;
    uint8_t before[REPLAYED];
    struct replica_record records[MAX_REPLAYED + 1];
};

/* Returns whether the recording is of this superframe and of a similar packet. Its fields have yet to be compared. */
INLINE bool replay_fits(const struct replay *r, const struct packet *p, const struct replicas *group, uint64_t superframe)
{
    return r->complete && r->superframe == superframe && r->group == group && r->now == p->now && r->length == p->length &&
           !p->dirty && p->end - p->start >= REPLAYED && memcmp(p->valid, r->valid, sizeof p->valid) == 0;
}

/* Returns whether `count` bytes from `first` in a header that egress uses equal those of the recorded packet. */
INLINE bool replay_same(const struct replay *r, const struct packet *p, unsigned header, unsigned first, unsigned count)
{
    const uint8_t *then = r->before + r->at[header];
    return !p->valid[header] || memcmp(p->header[header] + first, then + first, count) == 0;
}

/* Writes the bytes that egress wrote to the recorded replica. */
INLINE void replay_write(const struct replay *r, const struct replica_record *record, struct packet *p, unsigned header,
                         unsigned first, unsigned count)
{
    if (p->valid[header])
        memcpy(p->header[header] + first, record->after + r->at[header] + first, count);
}

/* Does the same for stretch number `number`, unless the replica before has the same bytes there. This saves more than
 * the copy: a read of a whole word has to wait if a part of it has just been written. */
INLINE void replay_change(const struct replay *r, const struct replica_record *record, struct packet *p, unsigned number,
                          unsigned header, unsigned first, unsigned count)
{
    if (record->changed >> number & 1)
        replay_write(r, record, p, header, first, count);
}

/* Starts to record what egress does to the replicas of a packet, if that is possible. */
__attribute__((noinline, unused)) static void replay_open(struct replay *r, const struct packet *p,
                                                          const struct replicas *group, uint64_t superframe,
                                                          const struct beginning *used, unsigned count)
{
    if (r->superframe != superframe)
        r->recordings = 0;
    r->superframe = superframe;
    r->complete = false;
    if (superframe == ALONE || !group || group->count > MAX_REPLAYED || p->dirty || p->end - p->start < REPLAYED ||
        r->recordings == MAX_RECORDINGS)
        return;
    for (unsigned i = 0; i < count; i++) {
        unsigned header = used[i].header;
        r->at[header] = p->header[header] - p->start;
        if (p->valid[header] && (r->at[header] < 0 || r->at[header] + used[i].bytes > REPLAYED))
            return;
    }
    r->recordings++;
    r->group = group;
    r->now = p->now;
    r->length = p->length;
    memcpy(r->valid, p->valid, sizeof r->valid);
    r->meta = p->meta;
    memcpy(r->before, p->start, REPLAYED);
    r->complete = true; /* unless egress does something that cannot be replayed */
    r->record = r->records;
    r->record->counted = 0;
}

/* Called when egress has incremented a counter. */
INLINE void replay_counted(struct replay *r, struct counter *counter)
{
    if (!r->record)
        return;
    if (r->record->counted < MAX_COUNTED)
        r->record->counter[r->record->counted++] = counter;
    else
        r->complete = false;
}

/* Called when egress is done with a replica. */
INLINE void replay_record(struct replay *r, const struct packet *p, bool dropped, const struct stretch *written,
                          unsigned count)
{
    if (!r->record)
        return;
    memcpy(r->record->after, p->start, REPLAYED);
    const uint8_t *before = r->record == r->records ? r->before : r->record[-1].after;
    r->record->changed = 0;
    for (unsigned i = 0; i < count; i++) {
        ptrdiff_t at = r->at[written[i].header] + written[i].first;
        bool differs = p->valid[written[i].header] && memcmp(r->record->after + at, before + at, written[i].count) != 0;
        r->record->changed |= (uint64_t)differs << i;
    }
    r->record->dropped = dropped;
    r->record++;
    r->record->counted = 0;
}

/* Called before egress does something whose result may differ for an equal packet. */
INLINE void replay_refuse(struct replay *r) { r->complete = false; }

#endif
