/* Generator: sends prepared frames in bursts, one burst through each interface in turn.
 *
 * With a window it emulates the workers of an aggregation: a frame holds one or more updates, each burst of each worker
 * carries the same chunks, and a cell is reused only when its result has left the switch. The statistics of the first
 * interface show that, at no cost for the switch.
 */

#include "ports.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "shared.h"

#define BURST 64
#define PATIENCE 5 /* seconds without a result, after which something is lost */

struct generator {
    uint32_t ports;
    uint32_t count;    /* frames for each port */
    uint32_t length;   /* bytes of a frame, including the virtio header before it */
    uint32_t burst;    /* frames sent through one interface at a time; count is a multiple of it */
    uint32_t window;   /* chunks in flight, with one cell each: those of `count` frames; 0: frames are sent unchanged */
    uint32_t packets;  /* updates in a frame */
    uint32_t size;     /* UDP payload bytes of each */
    const char *interface[MAX_PORTS];
    uint8_t *frames;   /* [ports][count][length] */
    uint64_t limit;    /* bursts; 0: until `stop` */
    uint64_t next;     /* number of the next burst, counted over all runs */
    uint64_t sent;     /* packets in this run */
    bool stalled;
    atomic_bool stop;
};

SHARE_NUMBER(MAX_PORTS);
SHARE_STRUCT(generator,
             FIELD(ports) FIELD(count) FIELD(length) FIELD(burst) FIELD(window) FIELD(packets) FIELD(size)
             FIELD(interface) FIELD(frames) FIELD(limit) FIELD(next) FIELD(sent) FIELD(stalled) FIELD(stop))

static uint64_t read_number(int fd)
{
    char text[32] = "";
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    return length > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Results that have arrived at an interface, from its frames and bytes: each frame is headers and some payloads. */
struct results {
    int frames, bytes;
    uint64_t frames_before, bytes_before;
};

static bool results_open(struct results *r, const char *interface)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/rx_packets", interface);
    r->frames = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/rx_bytes", interface);
    r->bytes = open(path, O_RDONLY | O_CLOEXEC);
    r->frames_before = read_number(r->frames);
    r->bytes_before = read_number(r->bytes);
    return r->frames >= 0 && r->bytes >= 0;
}

static uint64_t results_seen(const struct results *r, uint32_t size)
{
    uint64_t frames = read_number(r->frames) - r->frames_before;
    uint64_t bytes = read_number(r->bytes) - r->bytes_before;
    return bytes < frames * PAYLOAD ? 0 : (bytes - frames * PAYLOAD) / size;
}

/* Waits until `wanted` results have arrived; returns false if they do not come. */
static bool results_await(const struct results *r, uint32_t size, uint64_t wanted)
{
    uint64_t seen = 0, now;
    time_t since = time(NULL);
    while ((now = results_seen(r, size)) < wanted) {
        if (now != seen) {
            seen = now;
            since = time(NULL);
        } else if (time(NULL) - since > PATIENCE) {
            return false;
        }
    }
    return true;
}

/* Gives every update of a frame its chunk: the one of its cell in this pass through the window. */
static void renumber(const struct generator *g, uint8_t *frame, uint64_t first_chunk)
{
    uint8_t *update = frame + sizeof(struct virtio_net_hdr) + PAYLOAD;
    for (uint32_t i = 0; i < g->packets; i++, update += g->size) {
        uint64_t chunk = first_chunk + i;
        store32(update + 2, (uint32_t)chunk + 1);
        store16(update + 6, (uint16_t)(chunk / g->window % 2 << 15 | chunk % g->window));
    }
}

static void send_all(int fd, struct mmsghdr *messages, uint32_t count)
{
    for (uint32_t done = 0; done < count;) {
        int sent = sendmmsg(fd, messages + done, count - done, 0);
        if (sent > 0)
            done += (uint32_t)sent;
        else if (errno != EINTR && errno != ENOBUFS)
            return;
    }
}

/* Returns 0, or errno of an interface that cannot be opened. */
int generate(struct generator *g)
{
    int sockets[MAX_PORTS], error = 0;
    struct results results = {-1, -1, 0, 0};
    for (uint32_t p = 0; p < g->ports; p++)
        sockets[p] = -1;
    for (uint32_t p = 0; p < g->ports && !error; p++) {
        sockets[p] = open_interface(g->interface[p], false, true);
        if (sockets[p] < 0)
            error = errno;
        else
            set_option(sockets[p], SOL_PACKET, PACKET_QDISC_BYPASS, 1);
    }
    if (!error && g->window && !results_open(&results, g->interface[0]))
        error = errno;
    g->sent = 0;
    g->stalled = false;
    uint64_t first = g->next, chunks = (uint64_t)g->burst * g->packets;
    while (!error && !atomic_load(&g->stop) && !(g->limit && g->next - first == g->limit)) {
        uint32_t at = (uint32_t)(g->next * g->burst % g->count);
        uint64_t under_way = (g->next - first + 1) * chunks;
        if (g->window && under_way > g->window &&
            !results_await(&results, g->size, under_way - g->window)) {
            g->stalled = true;
            break;
        }
        for (uint32_t p = 0; p < g->ports; p++) {
            struct mmsghdr messages[BURST];
            struct iovec pieces[BURST];
            for (uint32_t i = 0; i < g->burst; i++) {
                uint8_t *frame = g->frames + ((uint64_t)p * g->count + at + i) * g->length;
                if (g->window)
                    renumber(g, frame, g->next * chunks + (uint64_t)i * g->packets);
                pieces[i] = (struct iovec){frame, g->length};
                messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = pieces + i, .msg_iovlen = 1}};
            }
            send_all(sockets[p], messages, g->burst);
        }
        g->next++;
        g->sent += chunks * g->ports;
    }
    if (!error && g->window && !g->stalled)
        g->stalled = !results_await(&results, g->size, (g->next - first) * chunks);
    for (uint32_t p = 0; p < g->ports; p++)
        if (sockets[p] >= 0)
            close(sockets[p]);
    if (results.frames >= 0)
        close(results.frames);
    if (results.bytes >= 0)
        close(results.bytes);
    return error;
}
