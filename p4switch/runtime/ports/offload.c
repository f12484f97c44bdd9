/* See offload.h. */

#include "offload.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define TCP_FIN 0x01
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_CWR 0x80
#define DONT_FRAGMENT 0x4000

/* Returns the one's complement sum after a 16-bit word in it has changed (RFC 1624). */
static uint16_t sum_changed(uint16_t sum, uint16_t old, uint16_t fresh)
{
    return checksum_fold((uint32_t)sum + (uint16_t)~old + fresh);
}

/* Returns the sum over an IPv4 header. Without options its length is a constant, and the loop a few additions. */
static inline uint16_t ipv4_sum(const uint8_t *ip)
{
    uint32_t length = (ip[0] & 15u) * 4;
    return checksum_fold(length == IPV4 ? checksum_sum(ip, IPV4) : checksum_sum(ip, length));
}

static inline void ipv4_checksum(uint8_t *ip)
{
    store_be16(ip + 10, 0);
    store_be16(ip + 10, (uint16_t)~__builtin_bswap16(ipv4_sum(ip)));
}

/* Headers have at least 42 bytes and rarely more than 64: so they are copied in two pieces. */
static inline void copy_headers(uint8_t *to, const uint8_t *from, uint32_t length)
{
    if (length > 64) {
        memcpy(to, from, length);
    } else {
        memcpy(to, from, 32);
        memcpy(to + length - 32, from + length - 32, 32);
    }
}

/* Sets the lengths in headers, and with them the partial checksum, for so many bytes of payload. */
static void set_lengths(const struct superframe *s, uint8_t *headers, uint32_t old, uint32_t payload)
{
    uint8_t *ip = headers + s->network;
    uint32_t length = s->headers + payload, transport = s->headers - s->transport;
    uint16_t whole = (uint16_t)(transport + old), part = (uint16_t)(transport + payload);
    if (s->ipv6)
        store_be16(ip + 4, (uint16_t)(length - s->network - 40));
    else
        store_be16(ip + 2, (uint16_t)(length - s->network));
    if (!s->tcp)
        store_be16(headers + s->transport + 4, part);
    store_be16(headers + s->checksum, sum_changed(load_be16(headers + s->checksum), whole, part));
}

/* Reads the headers of a superframe. Returns false for a kind that cannot be split (and is dropped). */
bool split_open(struct superframe *s, uint8_t *frame, uint32_t length, const struct virtio_net_hdr *virtio)
{
    uint8_t kind = virtio->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
    s->frame = frame;
    s->tcp = kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6;
    s->ecn = virtio->gso_type & VIRTIO_NET_HDR_GSO_ECN;
    if (!s->tcp && kind != VIRTIO_NET_HDR_GSO_UDP_L4)
        return false;
    if (!(virtio->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || virtio->gso_size == 0)
        return false;
    s->network = ETHERNET;
    if (length < ETHERNET + IPV4)
        return false;
    uint16_t ethertype = load_be16(frame + 12);
    for (; ethertype == ETHERTYPE_VLAN && s->network + 4 + IPV4 <= length; s->network += 4)
        ethertype = load_be16(frame + s->network + 2);
    s->ipv6 = ethertype == ETHERTYPE_IPV6;
    if (!s->ipv6 && ethertype != ETHERTYPE_IPV4)
        return false;
    s->transport = virtio->csum_start;
    s->checksum = s->transport + virtio->csum_offset;
    uint32_t fixed = s->transport + (s->tcp ? 20 : UDP); /* up to the end of the transport header's fixed part */
    uint32_t ip_header = s->ipv6 ? 40 : (frame[s->network] & 15) * 4u;
    if ((!s->ipv6 && ip_header < IPV4) || s->transport < s->network + ip_header || fixed > length)
        return false;
    s->headers = s->tcp ? s->transport + (frame[s->transport + 12] >> 4) * 4u : fixed;
    if (s->headers < fixed || s->headers >= length || s->headers > MAX_HEADERS || s->checksum + 2 > s->headers)
        return false;
    s->size = virtio->gso_size;
    s->payload = length - s->headers;
    s->segments = (s->payload + s->size - 1) / s->size;
    memcpy(s->head, frame, s->headers);
    set_lengths(s, s->head, s->payload, s->payload < s->size ? s->payload : s->size);
    if (!s->ipv6) {
        const uint8_t *ip = s->head + s->network;
        uint32_t own = (uint32_t)(uint16_t)~load_be16(ip + 2) + (uint16_t)~load_be16(ip + 4) + (uint16_t)~load_be16(ip + 10);
        s->ip_sum = checksum_fold(__builtin_bswap16(ipv4_sum(ip)) + own);
    }
    return true;
}

/* Makes segment `index` in place, before its payload: its headers overwrite the end of the segment before, which
 * must have been processed already. Returns its first byte; its partial checksum is at offset s->checksum. */
uint8_t *split(const struct superframe *s, uint32_t index, uint32_t *length)
{
    uint32_t at = index * s->size, size = s->payload - at < s->size ? s->payload - at : s->size;
    uint8_t *packet = s->frame + at;
    *length = s->headers + size;
    copy_headers(packet, s->head, s->headers);
    if (at > 0 && size < s->size)
        set_lengths(s, packet, s->size, size);
    if (!s->ipv6) {
        const uint8_t *head = s->head + s->network;
        uint8_t *ip = packet + s->network;
        uint16_t total = (uint16_t)(*length - s->network), identification = (uint16_t)(load_be16(head + 4) + index);
        uint16_t sum = (uint16_t)~checksum_fold((uint32_t)s->ip_sum + total + identification);
        /* Whole words, because the program soon reads whole words: the processor would have to wait if a word had
         * been stored in pieces. */
        store_be64(ip, (uint64_t)load_be16(head) << 48 | (uint64_t)total << 32 | (uint32_t)identification << 16 | load_be16(head + 6));
        store_be32(ip + 8, (uint32_t)load_be16(head + 8) << 16 | sum);
    }
    if (s->tcp) {
        uint8_t *transport = packet + s->transport;
        store_be32(transport + 4, load_be32(transport + 4) + at);
        if (index + 1 < s->segments)
            transport[13] &= (uint8_t)~(TCP_FIN | TCP_PSH);
        if (index > 0 && s->ecn)
            transport[13] &= (uint8_t)~TCP_CWR;
    }
    return packet;
}

/* Returns the sum of an IPv4 pseudo-header (RFC 768, RFC 9293). */
static uint16_t pseudo_sum(const uint8_t *ip, uint16_t transport_length)
{
    uint64_t sum = (uint64_t)load_be32(ip + 12) + load_be32(ip + 16);
    return checksum_fold((sum & 0xffffffff) + (sum >> 32) + ip[9] + transport_length);
}

/* Returns whether a packet may be a segment of a superframe, and sets its kind, headers and the place of its
 * checksum. */
static bool is_segment(struct joined *j, const uint8_t *packet, uint32_t length, const uint8_t *checksum)
{
    const uint8_t *ip = packet + ETHERNET, *transport = ip + IPV4;
    if (length <= ETHERNET + IPV4 + UDP || load_be16(packet + 12) != ETHERTYPE_IPV4 || ip[0] != 0x45)
        return false;
    if (load_be16(ip + 6) & (uint16_t)~DONT_FRAGMENT || load_be16(ip + 2) != length - ETHERNET)
        return false;
    uint32_t fixed = ETHERNET + IPV4;
    j->checksum_start = (uint16_t)fixed;
    if (ip[9] == PROTOCOL_UDP) {
        j->tcp = false;
        j->headers = fixed + UDP;
        j->checksum_offset = 6;
        if (load_be16(transport + 4) != length - fixed)
            return false;
        if (!checksum) /* sent without a checksum; in a superframe the kernel would add one */
            return load_be16(transport + 6) == 0 && ipv4_sum(ip) == 0xffff;
    } else if (ip[9] == PROTOCOL_TCP && length > fixed + 20) {
        j->tcp = true;
        j->headers = fixed + (transport[12] >> 4) * 4u;
        j->checksum_offset = 16;
        if (j->headers < fixed + 20 || j->headers >= length || (transport[13] & ~(TCP_FIN | TCP_PSH)) != TCP_ACK)
            return false;
    } else {
        return false;
    }
    return checksum == transport + j->checksum_offset && ipv4_sum(ip) == 0xffff &&
           load_be16(checksum) == pseudo_sum(ip, (uint16_t)(length - fixed));
}

/* Starts with one packet, copied to `room`; `checksum_offset` is the offset of a partial checksum in its own header.
 * The payload of a segment is not copied if it is `stored` already; `stored` may be NULL. */
void join_open(struct joined *j, uint8_t *room, const uint8_t *packet, uint32_t length, const uint8_t *checksum,
               uint16_t checksum_offset, const struct stored *stored)
{
    j->joinable = is_segment(j, packet, length, checksum);
    j->size = j->joinable ? length - j->headers : 0;
    j->most = j->headers + MAX_SEGMENTS * j->size;
    if (j->tcp || j->most > LARGEST_SUPERFRAME)
        j->most = LARGEST_SUPERFRAME;
    if (j->joinable && j->tcp && packet[ETHERNET + IPV4 + 13] & (TCP_FIN | TCP_PSH))
        j->joinable = false;
    j->frame = room;
    j->length = length;
    j->segments = 1;
    j->partial = checksum != NULL;
    if (checksum) {
        j->checksum_offset = checksum_offset;
        j->checksum_start = (uint16_t)(checksum - packet - checksum_offset);
    }
    bool elsewhere = j->joinable && stored && j->headers >= stored->headers;
    j->payload = (elsewhere ? stored->bytes : room) + j->headers;
    memcpy(room, packet, elsewhere ? j->headers : length);
}

/* Returns 0 if so many bytes, at most 8, are equal. */
INLINE uint64_t differ(const uint8_t *a, const uint8_t *b, unsigned count)
{
    uint64_t x = 0, y = 0;
    memcpy(&x, a, count);
    memcpy(&y, b, count);
    return x ^ y;
}

/* Returns whether a UDP packet as long as the first is the next segment because it equals the first one except for
 * identification and header checksum, which are as expected. Nearly all are, and this takes a few comparisons. */
static inline bool is_repetition(const struct joined *j, const uint8_t *packet, const uint8_t *checksum)
{
    const uint8_t *ip = packet + ETHERNET, *first = j->frame, *first_ip = first + ETHERNET;
    uint16_t was = load_be16(first_ip + 4), identification = (uint16_t)(was + j->segments);
    return load_be16(ip + 4) == identification &&
           load_be16(ip + 10) == sum_changed(load_be16(first_ip + 10), identification, was) &&
           !(differ(packet, first, 8) | differ(packet + 8, first + 8, 4) | differ(packet + 12, first + 12, 4) |
             differ(ip + 2, first_ip + 2, 2) | differ(ip + 6, first_ip + 6, 2) | differ(ip + 8, first_ip + 8, 2) |
             differ(ip + 12, first_ip + 12, 8) | differ(ip + 20, first_ip + 20, 4) | differ(ip + 24, first_ip + 24, 2) |
             differ(ip + 26, first_ip + 26, 2)) &&
           (!checksum || checksum == ip + IPV4 + 6);
}

/* Returns whether a packet is the next segment: of the same flow, in order. `last`: none can follow. */
static __attribute__((noinline)) bool is_next(const struct joined *j, const uint8_t *packet, uint32_t length,
                                              const uint8_t *checksum, bool *last)
{
    struct joined other;
    if (!is_segment(&other, packet, length, checksum) || other.tcp != j->tcp || other.headers != j->headers)
        return false;
    const uint8_t *first = j->frame, *ip = packet + ETHERNET, *first_ip = first + ETHERNET;
    const uint8_t *transport = ip + IPV4, *first_transport = first_ip + IPV4;
    if (memcmp(packet, first, ETHERNET + 2) || memcmp(ip + 6, first_ip + 6, 4) || memcmp(ip + 12, first_ip + 12, 8) ||
        memcmp(transport, first_transport, 4) || load_be16(ip + 4) != (uint16_t)(load_be16(first_ip + 4) + j->segments))
        return false;
    *last = length - j->headers < j->size;
    if (j->tcp) {
        uint32_t sequence = load_be32(first_transport + 4) + j->segments * j->size;
        if (load_be32(transport + 4) != sequence || memcmp(transport + 8, first_transport + 8, 5) ||
            memcmp(transport + 14, first_transport + 14, 2) || memcmp(transport + 18, first_transport + 18, j->headers - 52))
            return false;
        *last = *last || transport[13] & (TCP_FIN | TCP_PSH);
        j->frame[ETHERNET + IPV4 + 13] |= transport[13] & (TCP_FIN | TCP_PSH);
    }
    return true;
}

/* Adds the next packet for the same port. Returns false if it cannot be the next segment, or if its payload is not
 * where it has to be. */
bool join_add(struct joined *j, const uint8_t *packet, uint32_t length, const uint8_t *checksum, const struct stored *stored)
{
    if (!j->joinable)
        return false;
    uint32_t payload = length - j->headers;
    if (payload > j->size || j->length + payload > j->most || j->partial != (checksum != NULL))
        return false;
    bool elsewhere = join_elsewhere(j);
    if (elsewhere && (!stored || j->headers < stored->headers ||
                      stored->bytes + j->headers != j->payload + (j->length - j->headers)))
        return false;
    bool last = false, repeats = !j->tcp && payload == j->size && is_repetition(j, packet, checksum);
    if (!repeats && !is_next(j, packet, length, checksum, &last))
        return false;
    if (!elsewhere)
        memcpy(j->frame + j->length, packet + j->headers, payload);
    j->length += payload;
    j->segments++;
    j->joinable = !last;
    return true;
}

/* Turns the headers into those of the whole, and describes it for the kernel. */
void join_close(struct joined *j, struct virtio_net_hdr *virtio)
{
    memset(virtio, 0, sizeof *virtio);
    if (j->segments > 1) {
        uint8_t *ip = j->frame + ETHERNET, *transport = ip + IPV4;
        uint16_t length = (uint16_t)(j->length - ETHERNET - IPV4);
        store_be16(ip + 2, (uint16_t)(j->length - ETHERNET));
        ipv4_checksum(ip);
        if (!j->tcp)
            store_be16(transport + 4, length);
        store_be16(transport + j->checksum_offset, pseudo_sum(ip, length));
        virtio->gso_type = j->tcp ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_UDP_L4;
        virtio->gso_size = (uint16_t)j->size;
        virtio->hdr_len = (uint16_t)j->headers;
        j->partial = true;
    }
    if (j->partial) {
        virtio->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        virtio->csum_start = j->checksum_start;
        virtio->csum_offset = j->checksum_offset;
    }
}
