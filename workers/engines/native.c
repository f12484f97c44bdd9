/* The processing of a worker's packets, in one pass while a packet is in the cache.
 *
 * It does the same as NumpyEngine, Blocks and Timers do with numpy, bit for bit: reference.py, blocks.py and recovery.py
 * explain what is done and why. native.py is the caller. Compiled without contraction of a * b + c, which would round
 * differently. */

#include "native.h"

#include <math.h>
#include <string.h>

#include "shared.h"

enum { SMALLEST_EXPONENT = -128, LARGEST_EXPONENT = 127, NOT_QUANTIZABLE = 0x80, OF_SCATTER = 0x40, NO_CALL = 0, NONE = -1 };
enum { HEADROOM = 1, SLACK = 2 }; /* scaling.py */
enum { SATURATED = 0x08, OF_16_BITS = 0x04, SIZE_SMALL = 1, SIZE_LARGE = 3, TYPE_SHIFT = 4, VERSION_SHIFT = 15 }; /* wire.py */
#define LARGEST_SUM 2147483647.0
#define LARGEST_SUM_16 32767.0
#define ALPHA 0.125 /* recovery.py */
#define BETA 0.25
#define K 4

SHARE_NUMBER(SMALLEST_EXPONENT);
SHARE_NUMBER(LARGEST_EXPONENT);
SHARE_NUMBER(LARGEST_SUM);
SHARE_NUMBER(LARGEST_SUM_16);
SHARE_NUMBER(NOT_QUANTIZABLE);
SHARE_NUMBER(OF_SCATTER);
SHARE_NUMBER(NO_CALL);
SHARE_NUMBER(HEADROOM);
SHARE_NUMBER(SLACK);
SHARE_NUMBER(SATURATED);
SHARE_NUMBER(OF_16_BITS);
SHARE_NUMBER(SIZE_SMALL);
SHARE_NUMBER(SIZE_LARGE);
SHARE_NUMBER(TYPE_SHIFT);
SHARE_NUMBER(UPDATE);
SHARE_NUMBER(RESULT);
SHARE_NUMBER(GIVE);
SHARE_NUMBER(TAKE);
SHARE_NUMBER(ACKNOWLEDGEMENT);
SHARE_NUMBER(ALL_REDUCE);
SHARE_NUMBER(GATHER);
SHARE_NUMBER(SCATTER);
SHARE_NUMBER(CARRYING);
SHARE_NUMBER(LEADING);
SHARE_NUMBER(BARE);
SHARE_NUMBER(VERSION_SHIFT);
SHARE_NUMBER(SMALL);
SHARE_NUMBER(LARGE);
SHARE_NUMBER(DIGITS);
SHARE_NUMBER(ALPHA);
SHARE_NUMBER(BETA);
SHARE_NUMBER(K);
SHARE_NUMBER(MALFORMED);
SHARE_NUMBER(OTHER_LEASE);
SHARE_NUMBER(UNKNOWN_CHUNK);
SHARE_NUMBER(IMPOSSIBLE);
SHARE_NUMBER(DUPLICATE);
SHARE_NUMBER(REASONS);
SHARE_NUMBER(NONE);

SHARE_STRUCT(header, FIELD(kind) FIELD(lease) FIELD(tsi) FIELD(pool_index) FIELD(e0) FIELD(e1) FIELD(call))
SHARE_STRUCT(rtt_estimator, FIELD(smoothed) FIELD(variation) FIELD(rto) FIELD(rto_without_floor))
SHARE_STRUCT(timers,
             FIELD(restarted) FIELD(not_before) FIELD(backoff) FIELD(next_sending) FIELD(newest_answered)
             FIELD(probe) FIELD(running) FIELD(flight))
SHARE_STRUCT(progress,
             FIELD(calls) FIELD(first_chunk) FIELD(chunks) FIELD(missing) FIELD(disagree) FIELD(unsummed)
             FIELD(sums) FIELD(latest))
SHARE_STRUCT(totals,
             FIELD(received) FIELD(received_bytes) FIELD(sent) FIELD(sent_bytes)
             FIELD(accepted) FIELD(saturated) FIELD(ignored) FIELD(spent))
SHARE_STRUCT(buffers, FIELD(x) FIELD(out) FIELD(kept) FIELD(elements))
SHARE_STRUCT(tensor, FIELD(expected) FIELD(agreement) FIELD(delayed) FIELD(signature) FIELD(most_chunks) FIELD(values) FIELD(bits)
             FIELD(operation) FIELD(parts) FIELD(own) FIELD(part) FIELD(run)
             FIELD(first_run))
SHARE_STRUCT(batch, FIELD(count) FIELD(kept_in) FIELD(size))
SHARE_STRUCT(work,
             FIELD(awaited) FIELD(times_sent) FIELD(backoffs) FIELD(sendings)
             FIELD(first_sent) FIELD(last_sent) FIELD(timeouts) FIELD(lost_at)
             FIELD(measured) FIELD(kept_in) FIELD(packets) FIELD(ready) FIELD(held)
             FIELD(congestion) FIELD(gate)
             FIELD(rtt) FIELD(timers) FIELD(progress) FIELD(totals)
             FIELD(initial_rto) FIELD(min_rto) FIELD(max_rto) FIELD(granularity) FIELD(give_up)
             FIELD(lease) FIELD(window) FIELD(first_slot) FIELD(workers) FIELD(earliest_chunk)
             FIELD(last_chunk)
             FIELD(x_tail) FIELD(out_tail) FIELD(e0) FIELD(e1) FIELD(factors) FIELD(accepted) FIELD(missed)
             FIELD(x) FIELD(out) FIELD(copy) FIELD(expected) FIELD(agreement)
             FIELD(delayed) FIELD(values) FIELD(bits) FIELD(words) FIELD(call)
             FIELD(operation) FIELD(parts) FIELD(own) FIELD(part) FIELD(run) FIELD(first_run)
             FIELD(blocks) FIELD(blocks_of_part) FIELD(lead)
             FIELD(undecided) FIELD(missed_count) FIELD(ready_count))

static uint16_t load16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return __builtin_bswap16(value);
}

static void store16(uint8_t *to, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(to, &value, sizeof value);
}

static uint32_t load32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return __builtin_bswap32(value);
}

static void store32(uint8_t *to, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(to, &value, sizeof value);
}

/* Marks a function that takes most of the time: it is compiled for each generation of x86-64's vectors, AVX-512, AVX2 and
 * SSE2. When the library is loaded, glibc binds the first one that the processor supports. A test defines BY_PROCESSOR to
 * get a certain one. */
#ifndef BY_PROCESSOR
#if defined __x86_64__ && defined __GLIBC__ && __GNUC__ >= 12
#define BY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined __x86_64__ && defined __GLIBC__ /* clang, or a compiler that has no names for the generations */
#define BY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BY_PROCESSOR
#endif
#endif

/* -- tensor.py ---------------------------------------------------------------------------------------------------- */

struct place { /* where in the vector a block is: its part, its first element, and how many it has */
    int64_t part, first, count;
};

/* Returns where a block is. Blocks are numbered in the order in which they travel: `first_run` blocks of each part, then the
 * next `run` of each, and so on; the last runs may be shorter. */
static struct place place_of(const struct work *w, int64_t block)
{
    int64_t part = 0;
    if (w->parts > 1) {
        int64_t before = 0, run = w->first_run; /* before: blocks of each part that travel in earlier turns */
        if (block >= run * w->parts) {
            before = run + (block / w->parts - run) / w->run * w->run;
            run = w->blocks_of_part - before < w->run ? w->blocks_of_part - before : w->run;
        }
        part = (block - before * w->parts) / run;
        block = before + (block - before * w->parts) % run;
    }
    int64_t offset = block * w->values, rest = w->part - offset;
    return (struct place){part, part * w->part + offset, rest < w->values ? rest : w->values};
}

/* Returns the values of a block, with zeros at the end if it is not full. */
static const float *values_at(const struct work *w, struct place place)
{
    if (place.count == w->values)
        return w->x + place.first;
    memcpy(w->x_tail, w->x + place.first, (size_t)place.count * sizeof *w->x);
    memset(w->x_tail + place.count, 0, (size_t)(w->values - place.count) * sizeof *w->x);
    return w->x_tail;
}

/* -- quantization.py ---------------------------------------------------------------------------------------------- */

/* Returns the bits of a block's largest magnitude. They are ordered as magnitudes are, with infinity and NaN at the top. */
BY_PROCESSOR static uint32_t peak_of(const float *x, int64_t count)
{
    uint32_t peak = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        peak = bits > peak ? bits : peak;
    }
    return peak;
}

/* Computes the exponents of the blocks of `x`, and returns how many blocks cannot be quantized. */
static int64_t announce(struct work *w)
{
    int64_t bad = 0;
    for (int64_t block = 0; block < w->blocks; block++) {
        struct place place = place_of(w, block);
        uint32_t peak = peak_of(w->x + place.first, place.count);
        float magnitude;
        memcpy(&magnitude, &peak, sizeof magnitude);
        int exponent = 0;
        double mantissa = peak < 0x7f800000 ? frexp(magnitude, &exponent) : 0;
        exponent += mantissa > 1 - ldexp((double)w->workers, (int)-w->bits);
        bool quantizable = peak < 0x7f800000 && exponent <= LARGEST_EXPONENT;
        if (peak == 0 || !quantizable || exponent < SMALLEST_EXPONENT)
            exponent = SMALLEST_EXPONENT;
        w->e0[block] = (int8_t)exponent;
        w->e1[block] = quantizable ? 0 : NOT_QUANTIZABLE;
        bad += !quantizable;
    }
    return bad;
}

static double scale(const struct work *w, int exponent)
{
    return ldexp((w->bits == 16 ? LARGEST_SUM_16 : LARGEST_SUM) / (double)w->workers, -exponent);
}

BY_PROCESSOR static void quantize(const float *restrict x, double factor, int64_t count, uint8_t *restrict to)
{
    for (int64_t i = 0; i < count; i++)
        store32(to + 4 * i, (uint32_t)(int32_t)rint((double)x[i] * factor));
}

BY_PROCESSOR static void quantize_16(const float *restrict x, double factor, int64_t count, uint8_t *restrict to)
{
    for (int64_t i = 0; i < count; i++)
        store16(to + 2 * i, (uint16_t)(int32_t)rint((double)x[i] * factor));
}

BY_PROCESSOR static void dequantize(const uint8_t *restrict from, double factor, int64_t count, float *restrict out)
{
    double inverse = 1 / factor;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)(int32_t)load32(from + 4 * i) * inverse);
}

BY_PROCESSOR static void dequantize_16(const uint8_t *restrict from, double factor, int64_t count, float *restrict out)
{
    double inverse = 1 / factor;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)(int16_t)load16(from + 2 * i) * inverse);
}

/* Dequantizes sums of the others' integers and of this worker's own, which were not sent. */
BY_PROCESSOR static void dequantize_with(const uint8_t *restrict from, const float *restrict x, double factor, int64_t count,
                                         float *restrict out)
{
    double inverse = 1 / factor;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(((double)(int32_t)load32(from + 4 * i) + rint((double)x[i] * factor)) * inverse);
}

BY_PROCESSOR static void dequantize_16_with(const uint8_t *restrict from, const float *restrict x, double factor,
                                            int64_t count, float *restrict out)
{
    double inverse = 1 / factor;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(((double)(int16_t)load16(from + 2 * i) + rint((double)x[i] * factor)) * inverse);
}

/* -- recovery.py -------------------------------------------------------------------------------------------------- */

static void sample(struct work *w, double rtt, double share)
{
    struct rtt_estimator *r = w->rtt;
    if (isnan(r->smoothed)) {
        r->smoothed = rtt;
        r->variation = rtt / 2;
    } else {
        if (2 * rtt <= r->smoothed)
            share = 1;
        r->variation += BETA * share * (fabs(r->smoothed - rtt) - r->variation);
        r->smoothed += ALPHA * share * (rtt - r->smoothed);
    }
    double rto = r->smoothed + fmax(w->granularity, K * r->variation);
    r->rto_without_floor = fmin(rto, w->max_rto);
    r->rto = fmax(r->rto_without_floor, w->min_rto);
}

static void start_timers(struct work *w, const int64_t *chunks, int64_t count, double now, bool patient, bool measure)
{
    struct timers *t = w->timers;
    double rto = patient ? fmax(w->rtt->rto, w->initial_rto) : w->rtt->rto;
    double timeout = fmin(ldexp(rto, (int)t->backoff), w->max_rto);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = (chunks[i] + w->progress->first_chunk) % w->window;
        w->timeouts[place] = timeout;
        w->backoffs[place] = t->backoff;
        w->measured[place] = measure;
        w->first_sent[place] = w->last_sent[place] = now;
        w->times_sent[place] = 1;
        w->sendings[place] = t->next_sending++;
    }
    t->not_before = fmin(t->not_before, now + timeout);
    t->flight = t->running && t->flight > t->running + count ? t->flight : t->running + count;
    t->running += count;
}

/* Counts a packet as lost from `lost_at` on, unless it is answered. */
static void lose(struct work *w, int64_t place, double lost_at)
{
    w->lost_at[place] = lost_at;
    w->timers->not_before = fmin(w->timers->not_before, lost_at);
}

static void stop_timers(struct work *w, const int64_t *numbers, int64_t count, double now)
{
    struct timers *t = w->timers;
    double share = (double)count / (double)t->flight;
    int64_t newest = -1, newest_place = NONE;
    bool heard = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t place = numbers[i] % w->window;
        heard |= w->sendings[place] == t->probe;
        if (w->times_sent[place] == 1 && w->sendings[place] > newest) {
            newest = w->sendings[place];
            newest_place = place;
        }
        w->timeouts[place] = w->lost_at[place] = INFINITY;
        w->sendings[place] = INT64_MAX;
    }
    t->restarted = now;
    t->running -= count;
    if (heard) {
        for (int64_t place = 0; place < w->window; place++)
            if (w->sendings[place] < t->probe)
                lose(w, place, fmin(w->lost_at[place], now + w->rtt->rto_without_floor));
        t->probe = -1;
    }
    if (newest_place == NONE || newest < t->newest_answered)
        return;
    t->newest_answered = newest;
    t->backoff = 0;
    if (w->measured[newest_place])
        sample(w, now - w->first_sent[newest_place], share);
    for (int64_t place = 0; place < w->window; place++)
        if (w->sendings[place] < newest)
            lose(w, place, w->last_sent[place] + w->rtt->rto_without_floor);
}

/* -- blocks.py ---------------------------------------------------------------------------------------------------- */

/* Returns whether a chunk carries none of the vector's values. */
static bool is_bare(const struct work *w, int64_t chunk)
{
    return w->operation == GATHER ? !chunk : chunk < w->lead && !w->delayed;
}

static uint32_t call_of(const struct work *w, int64_t chunk)
{
    return !chunk && is_bare(w, chunk) ? NO_CALL : (uint32_t)w->call;
}

/* Returns the block whose values a chunk carries that is not bare. */
static int64_t block_of(const struct work *w, int64_t chunk)
{
    if (w->operation == GATHER)
        return chunk - 1;
    if (!w->delayed)
        return chunk - w->lead;
    return chunk < w->lead ? chunk : w->missed[chunk - w->lead];
}

/* Returns the msg_type of the update of a chunk. */
static int type_of(const struct work *w, int64_t chunk)
{
    if (w->operation == ALL_REDUCE || (is_bare(w, chunk) && !chunk))
        return UPDATE;
    if (is_bare(w, chunk)) /* only exponents, so there is nothing to give */
        return TAKE;
    bool owns = place_of(w, block_of(w, chunk)).part == w->own;
    return owns == (w->operation == GATHER) ? GIVE : TAKE;
}

/* Returns the factor for a block's values in a chunk. NaN: zeros are sent instead of the values. */
static double factor_of(const struct work *w, int64_t chunk, int64_t block)
{
    if (chunk >= w->lead)
        return w->factors[block];
    return w->e1[block] >= NOT_QUANTIZABLE || w->e0[block] > w->expected[block] ? NAN : scale(w, w->expected[block]);
}

/* Stores the largest exponent of a block, and whether the sum in the same packet counts. */
static void learn(struct work *w, int64_t block, int largest, bool quantizable)
{
    int used = largest;
    if (w->expected) {
        int expected = w->expected[block], next = largest + HEADROOM;
        w->expected[block] = (int8_t)(next < LARGEST_EXPONENT ? next : LARGEST_EXPONENT);
        if (w->delayed && quantizable && largest <= expected && expected <= largest + SLACK) {
            used = expected;
        } else if (w->delayed) {
            int64_t i = w->missed_count++;
            for (; i > 0 && w->missed[i - 1] > block; i--)
                w->missed[i] = w->missed[i - 1];
            w->missed[i] = block;
        }
    }
    w->factors[block] = quantizable ? scale(w, used) : NAN;
    w->progress->unsummed += !quantizable;
}

/* Stores a block's result. `values` is NULL if the sum is for others. */
static void read_values(struct work *w, const uint8_t *values, int64_t block)
{
    struct place place = place_of(w, block);
    float *out = w->out + place.first;
    size_t bytes = (size_t)place.count * sizeof *out;
    if (w->operation == GATHER) {
        if (values)
            memcpy(out, values, bytes);
        return;
    }
    if (isnan(w->factors[block])) { /* the result is the worker's own values */
        memmove(out, w->x + place.first, bytes);
        return;
    }
    if (!values)
        return;
    const float *x = w->operation == SCATTER ? values_at(w, place) : NULL;
    float *to = place.count == w->values ? out : w->out_tail;
    if (x && w->bits == 16)
        dequantize_16_with(values, x, w->factors[block], w->values, to);
    else if (x)
        dequantize_with(values, x, w->factors[block], w->values, to);
    else if (w->bits == 16)
        dequantize_16(values, w->factors[block], w->values, to);
    else
        dequantize(values, w->factors[block], w->values, to);
    if (to == w->out_tail)
        memcpy(out, to, bytes);
}

/* -- reference.py ------------------------------------------------------------------------------------------------- */

/* Returns the words in a packet with the values of a chunk. */
static int64_t words_of(const struct work *w, int64_t chunk)
{
    return is_bare(w, chunk) && w->words > SMALL ? SMALL : w->words;
}

/* Returns OF_16_BITS if a chunk carries such integers, else 0. */
static uint8_t of_16_bits(const struct work *w, int64_t chunk)
{
    return w->bits == 16 && !is_bare(w, chunk) ? OF_16_BITS : 0;
}

/* Returns the first byte of a packet of a chunk, unsaturated. */
static uint8_t kind_of(const struct work *w, int64_t chunk, int type)
{
    return (uint8_t)(type << TYPE_SHIFT | (words_of(w, chunk) == SMALL ? SIZE_SMALL : SIZE_LARGE) | of_16_bits(w, chunk));
}

static uint32_t pool_index(const struct work *w, int64_t number)
{
    return (uint32_t)((number / w->window & 1) << VERSION_SHIFT | (w->first_slot + number % w->window));
}

/* Begins an all-reduce. Afterwards `ready` has those of the first B chunks that may be sent. If a block cannot be quantized
 * and `propagate` is false, no chunk is ready, and the all-reduce has no chunks. */
void begin(struct work *w, const struct tensor *t, const struct buffers *b, int64_t first_chunk, bool propagate)
{
    w->x = b->x;
    w->out = b->kept ? b->kept : b->out;
    w->copy = b->kept ? b->out : NULL;
    w->expected = t->expected;
    w->agreement = t->agreement;
    w->delayed = t->delayed;
    w->values = t->values;
    w->bits = t->bits;
    w->words = t->values * t->bits / 32;
    w->operation = t->operation;
    w->parts = t->parts;
    w->own = t->own;
    w->part = t->part;
    w->run = t->run;
    w->first_run = t->first_run;
    w->call = (uint32_t)(t->signature + w->progress->calls);
    w->progress->disagree = w->progress->unsummed = 0;
    w->progress->first_chunk = first_chunk;
    w->progress->chunks = w->ready_count = 0;
    w->blocks_of_part = (w->part + w->values - 1) / w->values;
    w->blocks = w->parts * w->blocks_of_part;
    int64_t gathered = w->blocks + 1; /* chunks of a gather */
    w->lead = w->operation == GATHER ? gathered : w->blocks;
    w->lead = w->lead < w->window ? w->lead : w->window;
    w->undecided = w->delayed ? w->lead : 0;
    w->missed_count = 0;
    /* The last B chunks announce values that change no maximum. */
    memset(w->e0 + w->blocks, SMALLEST_EXPONENT, (size_t)w->lead);
    memset(w->e1 + w->blocks, 0, (size_t)w->lead);
    memset(w->accepted, 0, (size_t)(w->blocks + w->lead));
    if (w->operation == GATHER) {
        memset(w->e0, SMALLEST_EXPONENT, (size_t)w->blocks);
        memset(w->e1, 0, (size_t)w->blocks);
        w->progress->missing = w->progress->chunks = gathered;
    } else {
        if (announce(w) && !propagate)
            return;
        for (int64_t chunk = is_bare(w, 0); w->operation == SCATTER && chunk < w->blocks + w->lead; chunk++)
            w->e1[chunk] |= OF_SCATTER; /* all but the agreement */
        w->progress->missing = w->progress->chunks = w->delayed ? w->lead : w->blocks + w->lead;
    }
    open_gate(w);
}

/* Writes the packets of chunks that are sent for the first time into their places, up to the first chunk of another type or
 * size. Either all chunks are among the first B, or none is. */
struct batch pack(struct work *w, const int64_t *chunks, int64_t count, double now)
{
    bool bare = is_bare(w, chunks[0]), alike = w->operation == ALL_REDUCE;
    int type = type_of(w, chunks[0]);
    int64_t words = words_of(w, chunks[0]);
    struct batch batch = {.kept_in = type == TAKE ? BARE : words == SMALL ? LEADING : CARRYING};
    batch.size = HEADER + (type == TAKE ? 0 : 4 * words);
    for (int64_t i = 0; i < count; i++, batch.count++) {
        int64_t chunk = chunks[i], number = chunk + w->progress->first_chunk, place = number % w->window;
        if (!alike && (is_bare(w, chunk) != bare || type_of(w, chunk) != type))
            break;
        uint8_t *packet = w->packets[batch.kept_in] + place * batch.size;
        struct header *header = (struct header *)packet; /* lease is already set */
        uint32_t index = pool_index(w, number);
        w->kept_in[place] = (uint8_t)batch.kept_in;
        header->kind = kind_of(w, chunk, type);
        store32(header->tsi, (uint32_t)number);
        header->pool_index[0] = (uint8_t)(index >> 8);
        header->pool_index[1] = (uint8_t)index;
        header->e0 = w->e0[chunk];
        header->e1 = w->e1[chunk];
        store32(header->call, call_of(w, chunk));
        w->awaited[place] = number;
        if (type == TAKE)
            continue;
        int64_t block = bare ? NONE : block_of(w, chunk);
        if (!bare && w->operation == GATHER) {
            memcpy(packet + HEADER, values_at(w, place_of(w, block)), (size_t)w->values * 4);
            continue;
        }
        double factor = bare ? NAN : factor_of(w, chunk, block);
        if (isnan(factor))
            memset(packet + HEADER, 0, (size_t)(batch.size - HEADER));
        if (bare && chunk == 0)
            for (int digit = 0; digit < DIGITS; digit++)
                store32(packet + HEADER + 4 * digit, (uint32_t)w->agreement[digit]);
        if (isnan(factor))
            continue;
        const float *x = values_at(w, place_of(w, block));
        if (w->bits == 16)
            quantize_16(x, factor, w->values, packet + HEADER);
        else
            quantize(x, factor, w->values, packet + HEADER);
    }
    start_timers(w, chunks, batch.count, now, chunks[0] < w->lead, !bare);
    return batch;
}

/* Returns whether a fitting packet belongs to this call, and its maxima include what this worker has announced. */
static bool is_possible(const struct work *w, const struct header *header, int64_t chunk)
{
    return header->e0 >= w->e0[chunk] && (header->e1 & w->e1[chunk]) == w->e1[chunk] &&
           load32(header->call) == call_of(w, chunk);
}

/* Returns false if the first chunk's result shows that the workers do not agree; its digits are then kept. */
static bool agreed(struct work *w, const uint8_t *packet, int64_t chunk)
{
    if (chunk || !is_bare(w, chunk))
        return true;
    bool holds = true;
    int64_t sums[DIGITS];
    for (int digit = 0; digit < DIGITS; digit++) {
        sums[digit] = (int32_t)load32(packet + HEADER + 4 * digit);
        holds &= sums[digit] == w->agreement[digit] * w->workers;
    }
    if (!holds) {
        w->progress->disagree = true;
        memcpy(w->progress->sums, sums, sizeof sums);
    }
    return holds;
}

/* Returns whether a datagram of this size begins like a result or an acknowledgement. */
static bool is_result(const struct header *header, int64_t size)
{
    int kind = header->kind & ~(SATURATED | OF_16_BITS);
    if (size == HEADER)
        return kind == (ACKNOWLEDGEMENT << TYPE_SHIFT | SIZE_SMALL) || kind == (ACKNOWLEDGEMENT << TYPE_SHIFT | SIZE_LARGE);
    return kind == (RESULT << TYPE_SHIFT | (size == HEADER + 4 * SMALL ? SIZE_SMALL : SIZE_LARGE));
}

/* Returns whether a datagram has the size and the first byte of a chunk's result. */
static bool answers(const struct work *w, const struct header *header, int64_t size, int64_t chunk)
{
    bool given = type_of(w, chunk) == GIVE;
    return size == HEADER + (given ? 0 : 4 * words_of(w, chunk)) &&
           (header->kind & ~SATURATED) == kind_of(w, chunk, given ? ACKNOWLEDGEMENT : RESULT);
}

/* Returns the first reason that applies why a datagram is not an awaited result. */
static enum reason refuse(const struct work *w, const struct header *header, int64_t size, int64_t chunk, bool awaited,
                          bool fits)
{
    bool sent = chunk < 0 || awaited || (chunk < w->progress->chunks && w->accepted[chunk]);
    if (!is_result(header, size))
        return MALFORMED;
    if (header->lease != w->lease)
        return OTHER_LEASE;
    if (!sent)
        return UNKNOWN_CHUNK;
    if (awaited && !fits)
        return MALFORMED;
    return awaited && !is_possible(w, header, chunk) ? IMPOSSIBLE : DUPLICATE;
}

/* Stores one result, which is the first for its chunk. */
static void take(struct work *w, const uint8_t *packet, int64_t size, int64_t chunk)
{
    const struct header *header = (const struct header *)packet;
    w->totals->saturated += (header->kind & SATURATED) != 0;
    int64_t missed = w->missed_count;
    if (chunk < w->blocks && w->operation != GATHER)
        learn(w, chunk, header->e0, header->e1 < NOT_QUANTIZABLE);
    if (!is_bare(w, chunk) && w->missed_count == missed)
        read_values(w, size == HEADER ? NULL : packet + HEADER, block_of(w, chunk));
}

/* Queues a chunk if its exponent is known and its slot is free; one of the two has just become true. If there are fewer
 * blocks than places, the queue is in ascending order, otherwise in the order of the results. */
static void release(struct work *w, int64_t chunk)
{
    if (chunk >= w->progress->chunks || !w->accepted[chunk - w->lead] || (chunk >= w->window && !w->accepted[chunk - w->window]))
        return;
    int64_t i = w->ready_count++;
    if (w->lead < w->window)
        for (; i > 0 && w->ready[i - 1] > chunk; i--)
            w->ready[i] = w->ready[i - 1];
    w->ready[i] = chunk;
}

/* Queues the blocks whose exponents were not as expected, after all exponents are known. */
static void repeat_missed(struct work *w)
{
    for (; w->ready_count < w->missed_count; w->progress->chunks++)
        w->ready[w->ready_count++] = w->progress->chunks;
    w->progress->missing += w->missed_count;
}

/* Processes a batch of datagrams of the size of a packet, `stride` bytes apart. */
static void take_packets(struct work *w, const uint8_t *datagrams, int64_t count, int64_t size, int64_t stride, double now)
{
    int64_t before = w->ready_count, fresh = 0, *numbers = w->ready + w->window; /* numbers of accepted chunks */
    bool disagreed = false; /* whether the first chunk's result in this batch shows a disagreement */
    for (const uint8_t *packet = datagrams; count > 0; count--, packet += stride) {
        const struct header *header = (const struct header *)packet;
        int64_t number = load32(header->tsi), place = number % w->window, chunk = number - w->progress->first_chunk;
        bool awaited = w->awaited[place] == number;
        bool fits = awaited && answers(w, header, size, chunk) && header->lease == w->lease &&
                    (header->pool_index[0] << 8 | header->pool_index[1]) == (int)pool_index(w, number);
        if (!fits || !is_possible(w, header, chunk) || w->accepted[chunk] || (disagreed && !chunk)) { /* in this batch, or not awaited */
            w->totals->ignored[refuse(w, header, size, chunk, awaited, fits)]++;
            continue;
        }
        if (!agreed(w, packet, chunk)) {
            disagreed = true;
            continue;
        }
        w->accepted[chunk] = 1;
        numbers[fresh++] = number;
        take(w, packet, size, chunk);
        release(w, chunk + w->lead);
        if (w->lead < w->window)
            release(w, chunk + w->window);
    }
    for (int64_t i = 0; i < fresh; i++)
        w->awaited[numbers[i] % w->window] = NONE;
    w->totals->accepted += fresh;
    w->progress->missing -= fresh;
    if (w->undecided && fresh) {
        w->undecided -= fresh;
        if (!w->undecided)
            repeat_missed(w);
    }
    if (fresh) {
        w->progress->latest = now;
        stop_timers(w, numbers, fresh, now);
        count_answers(w, fresh);
        admit(w, before);
    }
    if (fresh && !w->progress->missing && w->copy)
        memcpy(w->copy, w->out, (size_t)(w->parts * w->part) * sizeof *w->copy);
}

/* Processes a batch of datagrams, `stride` bytes apart, and adds the chunks that may then be sent to `ready`. */
void take_datagrams(struct work *w, const uint8_t *datagrams, int64_t count, int64_t size, int64_t stride, double now)
{
    w->totals->received += count;
    w->totals->received_bytes += count * size;
    if (size == HEADER || size == HEADER + 4 * SMALL || size == HEADER + 4 * LARGE)
        take_packets(w, datagrams, count, size, stride, now);
    else
        w->totals->ignored[MALFORMED] += count;
}

/* Processes a batch of datagrams, `stride` bytes apart. Afterwards `ready` has the chunks that may be sent. */
void receive(struct work *w, const uint8_t *datagrams, int64_t count, int64_t size, int64_t stride, double now)
{
    w->ready_count = 0;
    take_datagrams(w, datagrams, count, size, stride, now);
}
