/* Segmentation offload in user space.
 *
 * A sender's kernel may hand over one superframe instead of many segments (UDP_SEGMENT, TCP), described by a virtio
 * header. `split` makes each segment exactly as the kernel would have sent it; `join` combines consecutive segments
 * that leave through one port again. Checksums of transport headers stay partial in both: the pseudo-header's sum.
 * Source: Linux Documentation/networking/segmentation-offloads.rst; OASIS virtio 1.2, section 5.1.6. */

#ifndef P4SWITCH_OFFLOAD_H
#define P4SWITCH_OFFLOAD_H

#include <linux/virtio_net.h>

#include "../hash.h"

#define MAX_SEGMENTS 128    /* of a UDP superframe, as in Linux */
#define MAX_HEADERS 512     /* bytes before a superframe's payload */
#define LARGEST_SUPERFRAME 65535u /* IPv4's total length, which is less than the frame by Ethernet's 14 bytes */

#define ETHERNET 14
#define IPV4 20
#define UDP 8

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/* A superframe that was received. */
struct superframe {
    uint8_t *frame;
    uint32_t headers;   /* bytes up to the payload */
    uint32_t payload;   /* bytes */
    uint32_t size;      /* payload bytes of a segment; the last one may have fewer */
    uint32_t segments;
    uint32_t network, transport; /* offsets of the IP header and of the one after it */
    uint32_t checksum;  /* offset of the transport checksum */
    bool tcp, ipv6;
    bool ecn;           /* TCP: CWR belongs to the first segment only */
    uint16_t ip_sum;    /* over the IPv4 header without length, identification and checksum */
    uint8_t head[MAX_HEADERS]; /* the headers as they arrived */
};

/* The bytes of a packet from `headers` on, which stay in memory until it has been sent. `bytes` is where its first
 * byte would be. */
struct stored {
    const uint8_t *bytes;
    uint32_t headers;
};

/* A superframe that is being built; with one segment it is an ordinary packet. */
struct joined {
    uint8_t *frame;
    uint32_t length;
    const uint8_t *payload; /* after the headers in `frame`, or elsewhere */
    uint32_t headers, size, segments; /* size: payload bytes of one segment; 0: the packet is not a segment */
    uint32_t most; /* bytes that it may have */
    bool joinable; /* another segment may follow */
    bool tcp;
    bool partial;  /* the transport checksum is partial */
    uint16_t checksum_start, checksum_offset;
};

/* Returns whether the payload is not stored after the headers. */
static inline bool join_elsewhere(const struct joined *j) { return j->payload != j->frame + j->headers; }

bool split_open(struct superframe *s, uint8_t *frame, uint32_t length, const struct virtio_net_hdr *virtio);
uint8_t *split(const struct superframe *s, uint32_t index, uint32_t *length);
void join_open(struct joined *j, uint8_t *room, const uint8_t *packet, uint32_t length, const uint8_t *checksum,
               uint16_t checksum_offset, const struct stored *stored);
bool join_add(struct joined *j, const uint8_t *packet, uint32_t length, const uint8_t *checksum, const struct stored *stored);
void join_close(struct joined *j, struct virtio_net_hdr *virtio);

#endif
