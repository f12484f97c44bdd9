/* Packet ports: AF_PACKET sockets with virtio headers, and the loop between them and the program. */

#ifndef P4SWITCH_PORTS_H
#define P4SWITCH_PORTS_H

#include <sys/socket.h>

#include "offload.h"
#include "switch.h"

#define BATCH 8 /* frames taken from a port at a time: superframes of a batch should fit the cache */
#define FRAME_ROOM LONGEST_PACKET
#define TAG_ROOM 64 /* in front of a frame, for the VLAN tag that the kernel takes out */
#define SEND_ROOM (8 * FRAME_ROOM)
#define SEND_MOST 64           /* frames sent to a port at a time */

/* Counted since the ports were opened; read by Python. */
struct port_statistics {
    uint64_t received, received_frames, sent, sent_frames, dropped;
};

struct port {
    int socket;
    uint32_t number;
    bool is_cpu; /* a socket pair to the control plane: each message is the port number (4 bytes), then the packet */
    struct port_statistics statistics;
    uint32_t waiting; /* frames to send */
    uint32_t used;    /* bytes of `room` */
    uint8_t *room;
    struct joined out[SEND_MOST];
};

struct forwarder {
    struct switch_base *base;
    struct port *ports;
    uint32_t count;
    struct port *cpu;
    int wake; /* an eventfd that ends a sleep */
    bool join; /* send superframes */
    atomic_bool stop;
    uint64_t began; /* microseconds */
    uint8_t *frames; /* BATCH of them, each behind TAG_ROOM */
    struct port *by_number[512];
};

#endif
