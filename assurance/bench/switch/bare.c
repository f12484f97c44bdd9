/* The baseline for the switch: the same frames in, the same sums, the same copies out, and nothing else.
 *
 * A loop over packet sockets that takes a batch, adds the values of each update to its cell, and sends a cell that has
 * all its contributions to every port. No admission, no check of chunks, versions or duplicates, no saturation, no
 * counters, no addresses.
 */

#include "ports.h"

#include <stdlib.h>

#include "shared.h"

#define CELLS 2048
#define MAX_VALUES 256
#define PLAIN_BATCH 32
#define SUPER_BATCH 8
#define PLAIN_ROOM 2048
#define SUPER_ROOM 65600

struct bare {
    uint32_t ports;
    uint32_t values;
    bool superframes;
    const char *interface[MAX_PORTS];
    uint64_t received; /* packets */
    atomic_bool stop, ready; /* ready: packets are received from now on */
};

SHARE_STRUCT(bare, FIELD(ports) FIELD(values) FIELD(superframes) FIELD(interface) FIELD(received) FIELD(stop) FIELD(ready))

struct cell {
    uint32_t contributions;
    int32_t sum[MAX_VALUES];
};

/* Adds an update to its cell; true if that completes it: then the update holds the sums. */
static inline bool add(struct cell *cells, uint8_t *update, uint32_t values, uint32_t workers)
{
    uint32_t pool = load16(update + 6);
    struct cell *cell = cells + ((pool & 0x3ff) << 1 | pool >> 15);
    uint8_t *payload = update + SWITCHML;
    if (cell->contributions == 0)
        memset(cell->sum, 0, sizeof cell->sum);
    for (uint32_t i = 0; i < values; i++)
        cell->sum[i] += (int32_t)load32(payload + 4 * i);
    if (++cell->contributions < workers)
        return false;
    cell->contributions = 0;
    for (uint32_t i = 0; i < values; i++)
        store32(payload + 4 * i, (uint32_t)cell->sum[i]);
    return true;
}

/* Moves the completed updates of a frame together after its headers; returns the length of the resulting frame. */
static inline uint32_t aggregate(struct bare *b, struct cell *cells, struct virtio_net_hdr *virtio, uint8_t *frame,
                                 uint32_t length)
{
    uint32_t size = virtio->gso_type ? virtio->gso_size : length - PAYLOAD, kept = 0;
    for (uint32_t at = PAYLOAD; at + size <= length; at += size) {
        b->received++;
        if (!(b->values == 256 ? add(cells, frame + at, 256, b->ports) : add(cells, frame + at, 64, b->ports)))
            continue;
        if (at != PAYLOAD + kept)
            memcpy(frame + PAYLOAD + kept, frame + at, size);
        frame[PAYLOAD + kept] |= 0x10; /* a result */
        kept += size;
    }
    if (kept) {
        store16(frame + NETWORK + 2, (uint16_t)(PAYLOAD - NETWORK + kept));
        store16(frame + TRANSPORT + 4, (uint16_t)(PAYLOAD - TRANSPORT + kept));
        if (kept == size)
            *virtio = (struct virtio_net_hdr){0};
    }
    return kept ? PAYLOAD + kept : 0;
}

static void send_all(int fd, struct mmsghdr *messages, uint32_t count)
{
    for (uint32_t done = 0; done < count;) {
        int sent = sendmmsg(fd, messages + done, count - done, MSG_DONTWAIT);
        done += sent > 0 ? (uint32_t)sent : 1;
    }
}

static void serve(struct bare *b, const int *sockets, uint32_t port, struct cell *cells, uint8_t *frames)
{
    struct mmsghdr messages[PLAIN_BATCH];
    struct iovec pieces[PLAIN_BATCH][2];
    struct virtio_net_hdr virtio[PLAIN_BATCH];
    uint32_t batch = b->superframes ? SUPER_BATCH : PLAIN_BATCH, room = b->superframes ? SUPER_ROOM : PLAIN_ROOM;
    uint32_t skip = !b->superframes; /* plain frames need no virtio header */
    for (uint32_t i = 0; i < batch; i++) {
        pieces[i][0] = (struct iovec){virtio + i, sizeof virtio[i]};
        pieces[i][1] = (struct iovec){frames + (size_t)i * room, room};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = pieces[i] + skip, .msg_iovlen = 2 - skip}};
        virtio[i] = (struct virtio_net_hdr){0};
    }
    int count = recvmmsg(sockets[port], messages, batch, MSG_DONTWAIT, NULL);
    uint32_t leaving = 0;
    for (int i = 0; i < count; i++) {
        uint32_t length = messages[i].msg_len - (skip ? 0 : (uint32_t)sizeof virtio[i]);
        length = aggregate(b, cells, virtio + i, pieces[i][1].iov_base, length);
        if (!length)
            continue;
        pieces[i][1].iov_len = length;
        messages[leaving++] = (struct mmsghdr){.msg_hdr = {.msg_iov = pieces[i] + skip, .msg_iovlen = 2 - skip}};
    }
    for (uint32_t p = 0; p < b->ports; p++)
        send_all(sockets[p], messages, leaving);
}

/* Runs until `stop`; returns 0, or errno of an interface that cannot be opened. */
int bare(struct bare *b)
{
    int sockets[MAX_PORTS], error = 0;
    struct cell *cells = aligned_alloc(64, CELLS * sizeof *cells);
    uint8_t *frames = calloc(b->superframes ? SUPER_BATCH : PLAIN_BATCH, b->superframes ? SUPER_ROOM : PLAIN_ROOM);
    if (!cells || !frames)
        error = ENOMEM;
    else
        memset(cells, 0, CELLS * sizeof *cells);
    for (uint32_t p = 0; p < b->ports; p++) {
        sockets[p] = error ? -1 : open_interface(b->interface[p], true, b->superframes);
        if (!error && sockets[p] < 0)
            error = errno;
    }
    atomic_store(&b->ready, true);
    while (!error && !atomic_load(&b->stop))
        for (uint32_t p = 0; p < b->ports; p++)
            serve(b, sockets, p, cells, frames);
    for (uint32_t p = 0; p < b->ports; p++)
        if (sockets[p] >= 0)
            close(sockets[p]);
    free(cells);
    free(frames);
    return error;
}
