/* split and join over whole sequences, for test_offload.py. */

#include "ports/offload.h"

struct item {
    uint32_t length;
    int32_t checksum; /* offset of a partial checksum, or -1 */
};

/* Splits a superframe; appends each segment to `out` as an item and its bytes. Returns the bytes written, 0 if it cannot
 * be split. */
uint64_t split_all(const uint8_t *frame, uint32_t length, const struct virtio_net_hdr *virtio, uint8_t *out)
{
    static uint8_t room[1 << 17];
    struct superframe s;
    uint64_t used = 0;
    memcpy(room, frame, length);
    if (!split_open(&s, room, length, virtio))
        return 0;
    for (uint32_t i = 0; i < s.segments; i++) {
        struct item item = {.checksum = (int32_t)s.checksum};
        const uint8_t *segment = split(&s, i, &item.length);
        memcpy(out + used, &item, sizeof item);
        memcpy(out + used + sizeof item, segment, item.length);
        used += sizeof item + item.length;
    }
    return used;
}

/* Joins `count` packets; each frame goes to `out` as its virtio header, its length (4 bytes) and its bytes. `shared`: the
 * packets have been joined for another port before, and their payloads are taken from there. */
uint64_t join_all(const uint8_t *packets, uint32_t count, uint16_t checksum_offset, bool shared, uint8_t *out)
{
    static uint8_t room[1 << 17], others[1 << 20];
    struct joined j = {0}, other = {.frame = others};
    uint64_t used = 0;
    for (uint32_t i = 0; i <= count; i++) {
        struct item item = {0};
        const uint8_t *checksum = NULL, *packet = packets + sizeof item;
        if (i < count) {
            memcpy(&item, packets, sizeof item);
            checksum = item.checksum < 0 ? NULL : packet + item.checksum;
            packets = packet + item.length;
            if (shared && (i == 0 || !join_add(&other, packet, item.length, checksum, NULL)))
                join_open(&other, other.frame + other.length, packet, item.length, checksum, checksum_offset, NULL);
        }
        struct stored place = {other.frame + other.length - item.length, other.headers};
        const struct stored *stored = shared && other.size ? &place : NULL;
        if (i < count) {
            if (i > 0 && join_add(&j, packet, item.length, checksum, stored))
                continue;
        }
        if (i > 0) {
            struct virtio_net_hdr virtio;
            join_close(&j, &virtio);
            memcpy(out + used, &virtio, sizeof virtio);
            memcpy(out + used + sizeof virtio, &j.length, 4);
            uint32_t head = join_elsewhere(&j) ? j.headers : j.length;
            memcpy(out + used + sizeof virtio + 4, j.frame, head);
            memcpy(out + used + sizeof virtio + 4 + head, j.payload, j.length - head);
            used += sizeof virtio + 4 + j.length;
        }
        if (i < count)
            join_open(&j, room, packet, item.length, checksum, checksum_offset, stored);
    }
    return used;
}
