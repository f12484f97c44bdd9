/* Headers of a packet: what generated code calls. Included once struct packet, HEADERS and header_size are there. */

#ifndef P4SWITCH_PACKET_H
#define P4SWITCH_PACKET_H

#define PARSER_STATES 4096

/* What applying a table tells the control flow: whether it hit, and the number of the action among the table's. */
struct result {
    bool hit;
    uint32_t action;
};

INLINE uint8_t *own_bytes(struct packet *p, unsigned header) { return (uint8_t *)p + own_offset[header]; }

INLINE void extract(struct packet *p, unsigned header, uint8_t *at)
{
    p->header[header] = at;
    p->valid[header] = true;
}

INLINE void set_valid(struct packet *p, unsigned header)
{
    if (p->valid[header])
        return;
    p->valid[header] = true;
    p->header[header] = own_bytes(p, header);
    memset(p->header[header], 0, header_size[header]);
    p->length += header_size[header];
}

INLINE void set_invalid(struct packet *p, unsigned header)
{
    if (!p->valid[header])
        return;
    p->valid[header] = false;
    p->header[header] = own_bytes(p, header);
    p->length -= header_size[header];
}

/* Header assignment. Unlike setValid() it leaves packet_length alone, as in BMv2. */
INLINE void copy_header(struct packet *p, unsigned to, unsigned from)
{
    if (!p->valid[from]) {
        p->valid[to] = false;
        return;
    }
    if (!p->valid[to]) {
        p->valid[to] = true;
        p->header[to] = own_bytes(p, to);
    }
    memmove(p->header[to], p->header[from], header_size[to]);
}

/* Equal if both are valid and their fields are. */
__attribute__((unused)) static bool same_header(const struct packet *p, unsigned a, unsigned b)
{
    return p->valid[a] && p->valid[b] && header_size[a] == header_size[b] &&
           memcmp(p->header[a], p->header[b], header_size[a]) == 0;
}

__attribute__((unused)) static void stack_push(struct packet *p, unsigned first, unsigned depth, uint32_t *used, uint32_t by)
{
    by = by < depth ? by : depth;
    for (unsigned i = depth; i-- > by;)
        copy_header(p, first + i, first + i - by);
    for (unsigned i = 0; i < by; i++)
        p->valid[first + i] = false;
    *used = *used + by < depth ? *used + by : depth;
}

__attribute__((unused)) static void stack_pop(struct packet *p, unsigned first, unsigned depth, uint32_t *used, uint32_t by)
{
    by = by < depth ? by : depth;
    for (unsigned i = 0; i + by < depth; i++)
        copy_header(p, first + i, first + i + by);
    for (unsigned i = depth - by; i < depth; i++)
        p->valid[first + i] = false;
    *used -= *used < by ? *used : by;
}

/* Appends the low `width` bits of a number to the input of a hash; returns the bits that it holds then. */
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

/* A packet of its own for a further copy: headers that stand in the packet's bytes point into the copy's. */
static void copy_packet(struct packet *to, const struct packet *from)
{
    memcpy(to, from, offsetof(struct packet, own));
    ptrdiff_t moved = (uint8_t *)to - (const uint8_t *)from;
    for (unsigned i = 0; i < HEADERS; i++) {
        to->header[i] += moved;
        if (from->valid[i] && from->header[i] < from->bytes)
            memcpy(to->header[i], from->header[i], header_size[i]);
    }
    to->start += moved;
    to->payload += moved;
    to->end += moved;
    if (to->checksum)
        to->checksum += moved;
    memcpy(to->start, from->start, (size_t)(from->end - from->start));
}

static void begin_packet(struct packet *p, uint32_t length, uint64_t now, uint8_t *checksum)
{
    memset(p->valid, 0, sizeof p->valid);
    memset(&p->meta, 0, sizeof p->meta);
    for (unsigned i = 0; i < HEADERS; i++)
        p->header[i] = own_bytes(p, i);
    p->start = p->payload = p->bytes + HEADROOM;
    p->end = p->start + length;
    p->checksum = checksum;
    p->partial_sum = checksum ? load_be16(checksum) : 0;
    p->length = p->ingress_length = length;
    p->truncate_to = UINT32_MAX;
    p->now = now;
    p->exit = p->checksum_error = false;
}

/* Headers that the parser has not found read as zeros, not as what an earlier packet has left. */
static void clear_invalid(struct packet *p)
{
    for (unsigned i = 0; i < HEADERS; i++)
        if (!p->valid[i])
            memset(own_bytes(p, i), 0, header_size[i]);
}

/* The partial checksum, if the program has left it as it came: otherwise what it wrote is the packet's checksum. */
INLINE uint8_t *kept_checksum(const struct packet *p)
{
    return p->checksum && load_be16(p->checksum) == p->partial_sum ? p->checksum : NULL;
}

/* Puts the valid headers in front of the payload. A header that already stands where it has to is left there; from the
 * first one (seen from the payload) that does not, they go through `scratch`. Returns the packet's first byte. */
static uint8_t *emit_headers(struct packet *p, const uint16_t *order, unsigned count, uint8_t *scratch)
{
    uint8_t *at = p->payload;
    while (count > 0) {
        unsigned header = order[count - 1];
        if (p->valid[header]) {
            if (p->header[header] + header_size[header] != at)
                break;
            at = p->header[header];
        }
        count--;
    }
    if (count == 0)
        return at;
    uint32_t size = 0;
    uint8_t *checksum = p->checksum;
    ptrdiff_t checksum_at = -1;
    for (unsigned i = 0; i < count; i++) {
        unsigned header = order[i];
        if (!p->valid[header])
            continue;
        if (checksum && checksum >= p->header[header] && checksum < p->header[header] + header_size[header])
            checksum_at = (ptrdiff_t)size + (checksum - p->header[header]);
        memcpy(scratch + size, p->header[header], header_size[header]);
        size += header_size[header];
    }
    if (checksum && checksum < at)
        p->checksum = checksum_at < 0 ? NULL : at - size + checksum_at;
    memcpy(at - size, scratch, size);
    return at - size;
}

#endif
