/* Captures of a port's packets, as BMv2 writes them with --pcap: one pcap file for each direction. */

#define _GNU_SOURCE
#include "ports.h"

#include <sys/uio.h>

/* The head of a packet in a pcap file (draft-ietf-opsawg-pcap, section 5). */
struct packet_record {
    uint32_t seconds, microseconds, captured, length;
};

/* Captures the packets of a port from now on, in open files that begin with the header of a pcap file. -1: not at all.
 * Call it before forwarder_run. */
void forwarder_capture(struct forwarder *f, uint32_t index, int in, int out)
{
    f->ports[index].captured_in = in;
    f->ports[index].captured_out = out;
}

/* Appends a packet to a file, if there is one. Each is written at once, so that the file can be read meanwhile. */
void capture(int file, const uint8_t *packet, uint32_t length)
{
    if (file < 0)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct packet_record record = {(uint32_t)now.tv_sec, (uint32_t)(now.tv_nsec / 1000), length, length};
    struct iovec pieces[2] = {{&record, sizeof record}, {(void *)packet, length}};
    ssize_t written = writev(file, pieces, 2);
    (void)written; /* a full disk must not stop the switch */
}
