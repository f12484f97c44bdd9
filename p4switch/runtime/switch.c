/* The control plane's functions on a switch: its lock, multicast groups, and single packets for tests and traces. */

#include "switch.h"

#include <stdlib.h>

#include "meter.h"
#include "report.h"
#include "shared.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)
#define ASAN_UNPOISON_MEMORY_REGION(at, size)
#endif

enum { COUNTER_BYTES = sizeof(struct counter), METER_WORDS = sizeof(struct meter) / 8 };

SHARE_NUMBER(LONGEST_PACKET);
SHARE_NUMBER(MULTICAST_GROUPS);
SHARE_NUMBER(SESSIONS);
SHARE_NUMBER(COUNTER_BYTES);
SHARE_NUMBER(METER_WORDS);
SHARE_NUMBER(MAX_KEY_WORDS);
SHARE_NUMBER(MESSAGE_OF_DROP);
SHARE_STRUCT(drops, FIELD(too_long) FIELD(too_often) FIELD(no_room) FIELD(too_many_jumps))
SHARE_STRUCT(counter, FIELD(packets) FIELD(bytes))
SHARE_STRUCT(replica, FIELD(port) FIELD(instance))
SHARE_STRUCT(meter_rate, FIELD(per_microsecond) FIELD(burst) FIELD(tokens) FIELD(last) FIELD(per_second))
SHARE_STRUCT(meter, FIELD(rates) FIELD(excess) FIELD(rate) FIELD(count))
SHARE_STRUCT(hash_state, FIELD(next) FIELD(seen) FIELD(places) FIELD(key_words) FIELD(key)
             FIELD(crc_set) FIELD(reflects_input) FIELD(reflects_output) FIELD(polynomial) FIELD(initial) FIELD(final))

void table_close(struct table *t);

void switch_lock(struct switch_base *base)
{
    atomic_fetch_add(&base->waiting, 1);
    pthread_mutex_lock(&base->lock);
    atomic_fetch_sub(&base->waiting, 1);
}

void switch_unlock(struct switch_base *base) { pthread_mutex_unlock(&base->lock); }

struct table *switch_table(struct switch_base *base, uint32_t index) { return base->tables + index; }

void switch_open(struct switch_base *base) { pthread_mutex_init(&base->lock, NULL); }

/* Frees everything, including so many tables and value sets. */
void switch_close(struct switch_base *base, uint32_t tables, uint32_t value_sets)
{
    for (uint32_t i = 0; i < tables; i++)
        table_close(base->tables + i);
    for (uint32_t i = 0; i < value_sets; i++)
        table_close(base->value_sets + i);
    for (uint32_t i = 0; i < MULTICAST_GROUPS; i++)
        free(base->multicast[i]);
    for (uint32_t i = 0; i < SESSIONS; i++)
        free(base->sessions[i]);
    for (uint32_t i = 0; i < base->hash_state_count; i++)
        free(base->hash_states[i].seen);
    free(base->digests.bytes);
    free(base->messages.bytes);
    while (base->families) { /* of packets that were still waiting */
        struct family *f = base->families;
        base->families = f->next;
        free(f);
    }
    pthread_mutex_destroy(&base->lock);
    free(base->memory);
}

struct table *switch_value_set(struct switch_base *base, uint32_t index) { return base->value_sets + index; }

/* Returns the state of the calculation with that index, among those that keep state. */
struct hash_state *switch_hash_state(struct switch_base *base, uint32_t index) { return base->hash_states + index; }

void switch_set_priority_queues(struct switch_base *base, uint32_t count) { base->priority_queues = count; }

/* Returns the number of failed assertions. */
uint64_t switch_failures(const struct switch_base *base) { return base->failures; }

void switch_drops(const struct switch_base *base, struct drops *to) { *to = base->drops; }

/* Starts to keep digests, and to write to the eventfd when there are some; -1 stops it. */
void switch_keep_digests(struct switch_base *base, int32_t event)
{
    base->digest_event = event;
    base->digests.used = 0;
}

/* Returns the digests since the last call, valid until the next packet; see report.h. */
uint64_t switch_digests(struct switch_base *base, const uint8_t **bytes)
{
    uint64_t used = base->digests.used;
    *bytes = base->digests.bytes;
    base->digests.used = 0;
    return used;
}

/* Writes to the eventfd when there are messages from now on; -1 stops it. */
void switch_wake_for_messages(struct switch_base *base, int32_t event)
{
    base->message_event = event;
    if (event >= 0 && base->messages.used)
        report_wake(event);
}

/* Returns the messages since the last call, valid until the next packet (report.h), and how many there was no room for. */
uint64_t switch_messages(struct switch_base *base, const uint8_t **bytes, uint64_t *lost)
{
    uint64_t used = base->messages.used;
    *bytes = base->messages.bytes;
    *lost = base->messages_lost;
    base->messages.used = base->messages_lost = 0;
    return used;
}

/* Replaces the replicas of a multicast group or mirroring session, whose clones have at most `longest` bytes and the
 * priority `service_class`. With `count` < 0 it is deleted. Returns false if there is no memory. */
bool switch_set_replicas(struct switch_base *base, bool session, uint32_t number, int32_t count,
                         const struct replica *replicas, uint32_t longest, uint32_t service_class)
{
    struct replicas **place = session ? base->sessions + number : base->multicast + number;
    struct replicas *fresh = NULL;
    if (count >= 0) {
        fresh = malloc(sizeof *fresh + (size_t)count * sizeof *replicas);
        if (!fresh)
            return false;
        fresh->count = (uint32_t)count;
        fresh->longest = longest;
        fresh->service_class = service_class;
        memcpy(fresh->replica, replicas, (size_t)count * sizeof *replicas);
    }
    free(*place);
    *place = fresh;
    return true;
}

/* Packets that left, one after another: port, length (4 bytes each, native), bytes. */
struct collected {
    uint8_t *bytes;
    uint64_t used, capacity;
};

SHARE_STRUCT(collected, FIELD(bytes) FIELD(used) FIELD(capacity))

static void collect(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct collected *out = context;
    (void)checksum;
    if (out->used + 8 + length > out->capacity) {
        uint64_t capacity = 2 * (out->capacity + 8 + length);
        uint8_t *bytes = realloc(out->bytes, capacity);
        if (!bytes)
            return;
        out->bytes = bytes;
        out->capacity = capacity;
    }
    uint32_t head[2] = {port, length};
    memcpy(out->bytes + out->used, head, 8);
    memcpy(out->bytes + out->used + 8, packet, length);
    out->used += 8 + length;
}

/* Processes the packet in base->buffer. Under AddressSanitizer the bytes after it cannot be read, because earlier
 * packets have left data there. */
void switch_process_buffer(struct switch_base *base, uint32_t port, uint32_t length, uint64_t now)
{
    ASAN_POISON_MEMORY_REGION(base->buffer + length, LONGEST_PACKET - length);
    base->process(base, port, base->buffer, length, now, NULL);
    ASAN_UNPOISON_MEMORY_REGION(base->buffer + length, LONGEST_PACKET - length);
}

/* Processes one packet. Packets that leave are collected in `out`. */
void switch_process(struct switch_base *base, uint32_t port, const uint8_t *packet, uint32_t length, uint64_t now,
                    struct collected *out)
{
    switch_lock(base);
    emit_function *emit = base->emit;
    void *context = base->emit_context;
    queue_function *queue = base->queue;
    base->emit = collect;
    base->emit_context = out;
    base->queue = NULL;
    out->used = 0;
    memcpy(base->buffer, packet, length);
    switch_process_buffer(base, port, length, now);
    base->emit = emit;
    base->emit_context = context;
    base->queue = queue;
    switch_unlock(base);
}

void switch_collected_free(struct collected *out)
{
    free(out->bytes);
    memset(out, 0, sizeof *out);
}
