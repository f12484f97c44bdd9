/* Frames that a port's socket rejects: reported once, counted, and superframes sent again packet by packet. */

#define _GNU_SOURCE
#include "ports.h"

#include <errno.h>
#include <stdio.h>

/* Counts a frame that was lost because a port's socket returned an error instead, and prints a message the first
 * time. */
void receive_refused(struct port *port, int error)
{
    if (port->statistics.receive_errors++)
        return;
    fprintf(stderr, "p4switch: port %u: a frame that came in is lost: %s", port->number, strerror(error));
    if (error == EINVAL)
        fputs(" (a superframe, perhaps, which kernels before 6.2 cannot hand over: where it is sent, "
              "ethtool -K INTERFACE tx-udp-segmentation off)", stderr);
    fputc('\n', stderr);
}

/* Counts a frame that was not sent, and prints a message the first time. A full queue and a link that is down are no
 * errors: a switch drops then. */
static void count_refused(struct port *port, int error)
{
    if (error == EAGAIN || error == ENOBUFS || error == ENETDOWN || port->statistics.send_errors++)
        return;
    fprintf(stderr, "p4switch: port %u: a frame is not sent: %s\n", port->number, strerror(error));
}

/* Sends the packets of a superframe one by one. Returns how many the kernel accepted. */
static uint32_t send_apart(struct port *port, const struct joined *frame, const struct virtio_net_hdr *virtio)
{
    const struct virtio_net_hdr alone = {.flags = virtio->flags,
                                         .csum_start = virtio->csum_start,
                                         .csum_offset = virtio->csum_offset};
    uint8_t room[sizeof alone + FRAME_ROOM], *whole = room + sizeof alone;
    struct superframe s;
    memcpy(whole, frame->frame, frame->headers);
    memcpy(whole + frame->headers, frame->payload, frame->length - frame->headers);
    if (!split_open(&s, whole, frame->length, virtio))
        return 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < s.segments; i++) {
        uint32_t length;
        uint8_t *packet = split(&s, i, &length);
        memcpy(packet - sizeof alone, &alone, sizeof alone); /* over the end of the packet before, which has been sent */
        if (send(port->socket, packet - sizeof alone, sizeof alone + length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            taken++;
        else
            count_refused(port, errno);
    }
    port->statistics.sent_frames += taken;
    return taken;
}

/* Handles a frame that the kernel has not accepted. Returns how many of its packets were sent after all. If the
 * kernel rejects superframes of UDP (before Linux 6.2), this one and all later ones are sent packet by packet;
 * others are dropped. */
uint32_t send_refused(struct port *port, const struct joined *frame, int error)
{
    const struct virtio_net_hdr *virtio = (const struct virtio_net_hdr *)(frame->frame - sizeof *virtio);
    if (error != EINVAL || port->is_cpu || virtio->gso_type != VIRTIO_NET_HDR_GSO_UDP_L4) {
        count_refused(port, error);
        return 0;
    }
    if (port->forwarder->join_udp)
        fprintf(stderr, "p4switch: this kernel takes no superframes of UDP: datagrams are sent one by one\n");
    port->forwarder->join_udp = false;
    return send_apart(port, frame, virtio);
}
