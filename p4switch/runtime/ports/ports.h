/* Packet ports: AF_PACKET sockets with virtio headers, and the loop between them and the program. */

#ifndef P4SWITCH_PORTS_H
#define P4SWITCH_PORTS_H

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <time.h>

#include "link.h"
#include "offload.h"
#include "pace.h"
#include "../switch.h"

#define BATCH 32      /* frames read from a port at a time, */
#define SUPER_BATCH 4 /* and superframes, which should stay in the cache */
#define FRAME_ROOM LONGEST_PACKET
#define HEAD_ROOM 64 /* before a frame, for its virtio header, or for the VLAN tag that the kernel removes */
#define SEND_ROOM (2 * FRAME_ROOM)
#define SEND_MAX 64           /* frames sent to a port at a time */

/* Counted since the ports were opened; read by Python. Packets, except for *frames (fewer because of offload) and
 * *bytes. */
struct port_statistics {
    uint64_t received, received_frames, sent, sent_frames, dropped;
    uint64_t missed; /* frames that arrived faster than they were read: the kernel's buffer was full */
    uint64_t receive_errors, send_errors; /* frames that the socket lost with an error */
    uint64_t received_bytes, received_multicast, received_broadcast;
    uint64_t sent_bytes, sent_multicast, sent_broadcast;
};

struct port {
    int socket;
    uint32_t number;
    bool is_cpu; /* a socket pair to the control plane: each message is the port number (4 bytes), then the packet */
    bool superframes; /* arrived in the last batch */
    struct forwarder *forwarder;
    struct link *egress, *ingress; /* emulated; NULL: none */
    int captured_in, captured_out; /* capture files; -1: none */
    struct port_statistics statistics;
    uint32_t waiting; /* frames to send */
    uint32_t used;    /* bytes of `room` */
    uint8_t *room;
    struct joined out[SEND_MAX];
};

/* A replica of a packet that waits to be sent: further replicas share its payload. */
struct waiting_replica {
    uint64_t serial; /* as in struct sharing; 0: there is none */
    const uint8_t *packet; /* as the program emitted it */
    uint32_t length;
    struct stored stored;
};

struct forwarder {
    struct switch_base *base;
    struct port *ports;
    uint32_t count;
    struct port *cpu;
    int wake;  /* an eventfd that ends a sleep */
    int epoll; /* knows which sockets have frames: asking it takes less time than trying to receive from one */
    bool join; /* send superframes */
    bool join_udp; /* also UDP ones, until the kernel rejects one */
    atomic_bool stop;
    uint64_t began; /* nanoseconds */
    uint64_t now;   /* picoseconds since then, for the current packets */
    struct link **links; /* those of all ports */
    atomic_uint link_count;
    uint64_t released; /* last release of emulated links, in picoseconds */
    struct pace pace;
    bool hurries, may_not_hurry; /* whether the thread takes precedence over others */
    uint8_t *frames; /* BATCH of them, each after HEAD_ROOM and the program's headroom */
    struct mmsghdr messages[BATCH]; /* to receive them */
    struct iovec pieces[BATCH];
    char control[BATCH][CMSG_SPACE(sizeof(struct tpacket_auxdata)) + CMSG_SPACE(sizeof(struct timespec))];
    struct port *by_number[512];
    struct waiting_replica replica;
};

static inline uint64_t nanoseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* capture.c */
void forwarder_capture(struct forwarder *f, uint32_t index, int in, int out);
void capture(int file, const uint8_t *packet, uint32_t length);

/* refusals.c */
void receive_refused(struct port *port, int error);
uint32_t send_refused(struct port *port, const struct joined *frame, int error);

#endif
