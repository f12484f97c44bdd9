/* Functions on a packet's headers for generated code. Included after struct packet, HEADERS and header_size. */

#ifndef P4SWITCH_PACKET_H
#define P4SWITCH_PACKET_H

#define PARSER_STATES 4096
#define MAX_JUMPS (1u << 16) /* backward jumps of an arriving packet and its copies */

/* Result of applying a table, for the control flow: whether it hit, and the number of the action in the table. */
struct result {
    bool hit;
    uint32_t action;
};

INLINE uint8_t *own_bytes(struct packet *p, unsigned header) { return (uint8_t *)p + own_offset[header]; }

/* Returns the length of a header, including its varbit. */
INLINE uint32_t header_bytes(const struct packet *p, unsigned header)
{
#ifdef VARBITS
    return (uint32_t)header_size[header] + p->varying[header];
#else
    (void)p;
    return header_size[header];
#endif
}

#ifdef VARBITS
/* Returns the base of the offsets of fields after a header's varbit. */
INLINE uint8_t *with_varbit(const struct packet *p, unsigned header) { return p->header[header] + p->varying[header]; }
#endif

/* Returns whether an element of a stack, whose elements have `unit` headers each, exists and is valid. */
INLINE bool valid_element(const struct packet *p, unsigned first, uint64_t index, uint32_t depth, uint32_t unit)
{
    return index < depth && p->valid[first + index * unit];
}

/* Called before fields of a header are written. If it is not in the packet, its own bytes have to be cleared later. */
INLINE void touch(struct packet *p, unsigned header)
{
    if (!p->valid[header])
        p->dirty = true;
}

/* Makes the other members of a header union invalid, because at most one is valid: the latest. */
INLINE void invalidate_rivals(struct packet *p, unsigned header)
{
#ifdef UNIONS
    for (unsigned i = 0; i < union_of[header].count; i++) {
        unsigned other = union_of[header].first + i;
        if (other != header && p->valid[other]) {
            p->valid[other] = false;
            p->header[other] = own_bytes(p, other);
            p->dirty = true;
        }
    }
#else
    (void)p, (void)header;
#endif
}

INLINE void extract(struct packet *p, unsigned header, uint8_t *at)
{
    p->header[header] = at;
    p->valid[header] = true;
    invalidate_rivals(p, header);
}

INLINE void set_valid(struct packet *p, unsigned header)
{
    if (p->valid[header])
        return;
    p->valid[header] = p->dirty = true;
    p->header[header] = own_bytes(p, header);
    memset(p->header[header], 0, header_bytes(p, header));
    p->length += header_bytes(p, header);
    invalidate_rivals(p, header);
}

INLINE void set_invalid(struct packet *p, unsigned header)
{
    if (!p->valid[header])
        return;
    p->valid[header] = false;
    p->header[header] = own_bytes(p, header);
    p->dirty = true;
    p->length -= header_bytes(p, header);
}

/* Assigns a header. Unlike setValid() it does not change packet_length, as in BMv2. */
INLINE void copy_header(struct packet *p, unsigned to, unsigned from)
{
    if (!p->valid[from]) {
        p->valid[to] = false;
        return;
    }
    if (!p->valid[to]) {
        p->valid[to] = p->dirty = true;
        p->header[to] = own_bytes(p, to);
        invalidate_rivals(p, to);
    }
#ifdef VARBITS
    if (p->varying[to] != p->varying[from]) { /* there is no space for another length in the packet */
        p->header[to] = own_bytes(p, to);
        p->varying[to] = p->varying[from];
        p->dirty = true;
    }
#endif
    memmove(p->header[to], p->header[from], header_bytes(p, to));
}

#ifdef VARBITS
/* Compares varbits as numbers, as in BMv2: leading zeros do not count. */
__attribute__((unused)) static bool same_varbit(const struct packet *p, unsigned a, unsigned b)
{
    if (p->varying[a] < p->varying[b])
        return same_varbit(p, b, a);
    const uint8_t *longer = p->header[a] + varbit_at[a], *shorter = p->header[b] + varbit_at[b];
    uint32_t more = (uint32_t)p->varying[a] - p->varying[b];
    for (uint32_t i = 0; i < more; i++)
        if (longer[i])
            return false;
    return memcmp(longer + more, shorter, p->varying[b]) == 0;
}

/* Assigns a varbit. Its header is moved out of the packet's bytes, where there is no space for another length. */
__attribute__((unused)) static void copy_varbit(struct packet *p, unsigned to, unsigned from)
{
    uint8_t *own = own_bytes(p, to);
    if (to == from)
        return;
    const uint8_t *behind = p->header[to] + varbit_at[to] + p->varying[to];
    memmove(own + varbit_at[to] + p->varying[from], behind, header_size[to] - varbit_at[to]);
    if (p->header[to] != own)
        memcpy(own, p->header[to], varbit_at[to]);
    p->header[to] = own;
    p->dirty = true;
    p->varying[to] = p->varying[from];
    memcpy(own + varbit_at[to], p->header[from] + varbit_at[from], p->varying[from]);
}
#endif

/* Headers are equal if both are valid and their fields are equal. */
__attribute__((unused)) static bool same_header(const struct packet *p, unsigned a, unsigned b)
{
    if (!p->valid[a] || !p->valid[b] || header_size[a] != header_size[b])
        return false;
#ifdef VARBITS
    uint32_t behind = (uint32_t)header_size[a] - varbit_at[a];
    if (!same_varbit(p, a, b) || memcmp(p->header[a], p->header[b], varbit_at[a]) != 0)
        return false;
    return memcmp(p->header[a] + varbit_at[a] + p->varying[a], p->header[b] + varbit_at[b] + p->varying[b], behind) == 0;
#else
    return memcmp(p->header[a], p->header[b], header_size[a]) == 0;
#endif
}

/* A stack has `depth` elements of `unit` headers each: one, or the members of a union. */
__attribute__((unused)) static void stack_push(struct packet *p, unsigned first, unsigned depth, unsigned unit,
                                               uint32_t *used, uint32_t by)
{
    by = by < depth ? by : depth;
    for (unsigned i = depth * unit; i-- > by * unit;)
        copy_header(p, first + i, first + i - by * unit);
    for (unsigned i = 0; i < by * unit; i++)
        p->valid[first + i] = false;
    *used = *used + by < depth ? *used + by : depth;
}

__attribute__((unused)) static void stack_pop(struct packet *p, unsigned first, unsigned depth, unsigned unit,
                                              uint32_t *used, uint32_t by)
{
    by = by < depth ? by : depth;
    for (unsigned i = 0; i + by * unit < depth * unit; i++)
        copy_header(p, first + i, first + i + by * unit);
    for (unsigned i = (depth - by) * unit; i < depth * unit; i++)
        p->valid[first + i] = false;
    *used -= *used < by ? *used : by;
}


/* Appends the low `width` bits of a number to the input of a hash. Returns the new length in bits. */
__attribute__((unused)) static uint32_t append(uint8_t *input, uint32_t bits, unsigned width, uint64_t value)
{
    if (bits % 8 == 0 && width % 8 == 0) {
        store_bytes(input + bits / 8, width / 8, value);
        return bits + width;
    }
    for (unsigned left = width; left > 0;) {
        unsigned room = 8 - bits % 8, take = left < room ? left : room;
        uint8_t piece = (uint8_t)(((value >> (left - take)) & ones(take)) << (room - take));
        input[bits / 8] = bits % 8 ? input[bits / 8] | piece : piece;
        bits += take;
        left -= take;
    }
    return bits;
}

__attribute__((unused)) static uint32_t append128(uint8_t *input, uint32_t bits, unsigned width, uint128_t value)
{
    return append(input, append(input, bits, width - 64, (uint64_t)(value >> 64)), 64, (uint64_t)value);
}

__attribute__((unused)) static uint32_t appendwide(uint8_t *input, uint32_t bits, unsigned width, wide_t value)
{
    unsigned i = (width - 1) / 64;
    bits = append(input, bits, width - 64 * i, value.word[i]);
    while (i-- > 0)
        bits = append(input, bits, 64, value.word[i]);
    return bits;
}

/* Appends whole bytes. */
__attribute__((unused)) static uint32_t append_bytes(uint8_t *input, uint32_t bits, const uint8_t *bytes, uint32_t count)
{
    if (bits % 8 == 0) {
        memcpy(input + bits / 8, bytes, count);
        return bits + 8 * count;
    }
    for (uint32_t i = 0; i < count; i++)
        bits = append(input, bits, 8, bytes[i]);
    return bits;
}

#define OWN_BYTES (offsetof(struct packet, bytes) - offsetof(struct packet, own))

/* Copies the bytes of headers that are not in the packet. */
INLINE void copy_own(struct packet *to, const struct packet *from)
{
    if (to->dirty || from->dirty)
        memcpy(&to->own, &from->own, OWN_BYTES);
    to->dirty = from->dirty;
}

/* Copies a packet. The copy's bytes begin at `start`; only the first `length` of them are copied. */
static void copy_packet(struct packet *to, uint8_t *start, const struct packet *from, uint32_t length)
{
    copy_own(to, from);
    memcpy(to, from, offsetof(struct packet, own));
    to->start = start;
    ptrdiff_t moved = to->start - from->start;
    for (unsigned i = 0; i < HEADERS; i++) {
        if (from->header[i] != (const uint8_t *)from + own_offset[i])
            to->header[i] += moved;
        else
            to->header[i] = own_bytes(to, i);
    }
    to->payload += moved;
    if (to->first)
        to->first += moved;
    to->end += moved;
    if (to->checksum)
        to->checksum += moved;
    memcpy(to->start, from->start, length);
}

INLINE uint32_t bytes_of(const struct packet *p) { return (uint32_t)(p->end - p->start); }

/* Initializes a packet. Headers that the parser does not find read as zeros, not as the values of an earlier packet. */
static void begin_packet(struct packet *p, uint8_t *packet, uint32_t length, uint64_t now, uint8_t *checksum)
{
    if (p->dirty)
        memset(&p->own, 0, OWN_BYTES);
    p->dirty = false;
    memset(p->valid, 0, sizeof p->valid);
    memset(&p->meta, 0, sizeof p->meta);
    memset(&p->next, 0, sizeof p->next);
#ifdef VARBITS
    memset(p->varying, 0, sizeof p->varying);
#endif
#ifdef REQUESTS
    memset(&p->request, 0, sizeof p->request);
#endif
    for (unsigned i = 0; i < HEADERS; i++)
        p->header[i] = own_bytes(p, i);
    p->start = p->payload = packet;
    p->end = p->start + length;
    p->checksum = checksum;
    p->partial_sum = checksum ? load_be16(checksum) : 0;
    p->length = p->ingress_length = length;
    p->longest = p->truncate_to = UINT32_MAX;
    p->first = NULL;
    p->now = now;
    p->exit = p->checksum_error = p->failed = false;
}

/* Returns the partial checksum of a packet that leaves, or NULL. It is kept only if the program has not written
 * there: otherwise the value is the packet's checksum. The data that it covers begins `offset` bytes before it, and
 * must be intact. */
INLINE uint8_t *kept_checksum(const struct packet *p, const uint8_t *first, uint16_t offset)
{
    if (!p->checksum || p->checksum < first + offset || p->checksum + 2 > p->end)
        return NULL;
    return load_be16(p->checksum) == p->partial_sum ? p->checksum : NULL;
}

/* Returns the beginning of the headers before the payload that are already in their final place. *count becomes the
 * number of headers before those, 0 if all are in place. */
INLINE uint8_t *standing(const struct packet *p, const uint16_t *order, unsigned *count)
{
    uint8_t *at = p->payload;
    for (; *count > 0; --*count) {
        unsigned header = order[*count - 1];
        if (p->valid[header]) {
            if (p->header[header] + header_bytes(p, header) != at)
                break;
            at = p->header[header];
        }
    }
    return at;
}

/* Returns whether a packet leaves as it is in memory, beginning with its first header. */
UNUSED_STATIC bool stands_as_it_leaves(struct packet *p, const uint16_t *order, unsigned count)
{
    if (!p->first) {
        uint8_t *first = standing(p, order, &count);
        p->first = count == 0 ? first : NULL;
    }
    return p->first && p->truncate_to == UINT32_MAX;
}

/* Puts the valid headers before the payload, and returns the packet's first byte. Headers that are already in their
 * final place stay there. From the first one (seen from the payload) that is not, they are moved through `scratch`. */
static uint8_t *emit_headers(struct packet *p, const uint16_t *order, unsigned count, uint8_t *scratch)
{
    if (p->first)
        return p->first;
    uint8_t *at = standing(p, order, &count);
    if (count == 0)
        return at;
    uint32_t size = 0;
    uint8_t *checksum = p->checksum;
    ptrdiff_t checksum_at = -1;
    for (unsigned i = 0; i < count; i++) {
        unsigned header = order[i];
        if (!p->valid[header])
            continue;
        uint32_t length = header_bytes(p, header);
        if (checksum && checksum >= p->header[header] && checksum < p->header[header] + length)
            checksum_at = (ptrdiff_t)size + (checksum - p->header[header]);
        memcpy(scratch + size, p->header[header], length);
        size += length;
    }
    if (checksum && checksum < at)
        p->checksum = checksum_at < 0 ? NULL : at - size + checksum_at;
    memcpy(at - size, scratch, size);
    return at - size;
}

/* Removes the effect of truncate, which applies only to the packet that it is called for: as in simple_switch, its
 * copies and its next pass are complete. */
UNUSED_STATIC void undo_truncate(struct packet *p) { p->truncate_to = p->longest; }

/* Returns how many of a packet's bytes, from the first, may be changed by egress that only writes to fields of some
 * headers. The result is all bytes if more than that and metadata may change. */
UNUSED_STATIC uint32_t changeable(struct packet *p, const uint16_t *order, unsigned count, const uint16_t *written,
                                  unsigned written_count)
{
    uint8_t *first = standing(p, order, &count);
    if (count > 0)
        return bytes_of(p); /* headers will be moved */
    p->first = first;
    const uint8_t *end = p->start;
    for (unsigned i = 0; i < written_count; i++) {
        unsigned header = written[i];
        if (!p->valid[header])
            continue;
        if (p->header[header] == (const uint8_t *)p + own_offset[header])
            return bytes_of(p);
        const uint8_t *behind = p->header[header] + header_bytes(p, header);
        end = end < behind ? behind : end;
    }
    return (uint32_t)(end - p->start);
}

/* Returns how many bytes have to be restored for the next replica if egress may change so many. Emitting may change
 * some, too. */
UNUSED_STATIC uint32_t to_put_back(const struct packet *p, uint32_t changes)
{
    uint32_t length = bytes_of(p), count = changes > EMIT_MAY_CHANGE ? changes : EMIT_MAY_CHANGE;
    if (p->checksum && p->checksum + 2 > p->start + count)
        count = (uint32_t)(p->checksum + 2 - p->start);
    return count < length ? count : length;
}

/* Saves the part of a packet in which its replicas differ: with `all`, everything; else metadata and `length` bytes. */
UNUSED_STATIC void set_aside(struct packet *to, const struct packet *p, uint32_t length, bool all)
{
    if (all) {
        copy_packet(to, to->bytes + HEADROOM, p, length);
        return;
    }
    copy_own(to, p);
    to->truncate_to = p->truncate_to;
    to->partial_sum = p->partial_sum;
    to->failed = p->failed;
    to->meta = p->meta;
    memcpy(to->bytes + HEADROOM, p->start, length);
}

/* Restores a packet to its saved state. */
UNUSED_STATIC void put_back(struct packet *p, uint8_t *start, const struct packet *from, uint32_t length, bool all)
{
    if (all) {
        copy_packet(p, start, from, length);
        return;
    }
    copy_own(p, from);
    p->truncate_to = from->truncate_to;
    p->partial_sum = from->partial_sum;
    p->failed = from->failed;
    p->meta = from->meta;
    memcpy(start, from->bytes + HEADROOM, length);
}

#endif
