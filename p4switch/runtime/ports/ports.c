/* Opening and closing ports; see ports.h. */

#define _GNU_SOURCE
#include "ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared.h"

#define RECEIVE_BUFFER (32 << 20)
#define SEND_BUFFER (4 << 20)

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

SHARE_STRUCT(port_statistics,
             FIELD(received) FIELD(received_frames) FIELD(sent) FIELD(sent_frames)
             FIELD(dropped) FIELD(missed) FIELD(receive_errors) FIELD(send_errors)
             FIELD(received_bytes) FIELD(received_multicast) FIELD(received_broadcast)
             FIELD(sent_bytes) FIELD(sent_multicast) FIELD(sent_broadcast))

/* Sets a large buffer if permitted (root), otherwise the largest that the kernel permits everybody. */
static void set_buffer(int fd, int force, int plain, int size)
{
    if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, plain, &size, sizeof size);
}

/* Opens an interface as a port. Returns a socket, or -errno. */
int port_open(const char *interface)
{
    unsigned index = if_nametoindex(interface);
    if (index == 0)
        return -errno;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); /* bound below: nothing arrives before */
    if (fd < 0)
        return -errno;
    int one = 1;
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, RECEIVE_BUFFER);
    set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, SEND_BUFFER);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

/* Reports what there is to read to the forwarding thread; `port` is NULL if it only ends a sleep. */
static bool watch(struct forwarder *f, int fd, struct port *port)
{
    return epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = port}) == 0;
}

/* Opens a forwarder over open sockets. The one numbered `cpu_port`, if any, leads to the control plane. NULL: no
 * memory. */
struct forwarder *forwarder_open(struct switch_base *base, uint32_t count, const uint32_t *numbers, const int *sockets,
                                 int64_t cpu_port, bool join)
{
    struct forwarder *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->base = base;
    f->count = count;
    f->join = f->join_udp = join;
    f->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->ports = calloc(count ? count : 1, sizeof *f->ports);
    size_t in_front = (HEAD_ROOM + base->headroom + 63) / 64 * 64;
    f->frames = calloc(BATCH, in_front + FRAME_ROOM);
    f->links = calloc(2 * (size_t)count + 1, sizeof *f->links);
    bool complete = f->ports && f->frames && f->links && watch(f, f->wake, NULL);
    for (uint32_t i = 0; complete && i < count; i++) {
        struct port *port = f->ports + i;
        port->forwarder = f;
        port->socket = sockets[i];
        port->number = numbers[i];
        port->captured_in = port->captured_out = -1;
        port->is_cpu = numbers[i] == cpu_port;
        port->room = calloc(1, SEND_ROOM);
        complete = port->room && watch(f, port->socket, port);
        if (numbers[i] < 512)
            f->by_number[numbers[i]] = port;
        if (port->is_cpu)
            f->cpu = port;
    }
    for (uint32_t i = 0; complete && i < BATCH; i++) {
        uint8_t *frame = f->frames + i * (in_front + FRAME_ROOM) + in_front;
        f->pieces[i] = (struct iovec){frame - sizeof(struct virtio_net_hdr), sizeof(struct virtio_net_hdr) + FRAME_ROOM};
        f->messages[i].msg_hdr = (struct msghdr){.msg_iov = f->pieces + i,
                                                 .msg_iovlen = 1,
                                                 .msg_control = f->control[i],
                                                 .msg_controllen = sizeof f->control[i]};
    }
    f->began = nanoseconds(CLOCK_MONOTONIC);
    pace_open(&f->pace);
    if (complete)
        return f;
    for (uint32_t i = 0; f->ports && i < count; i++)
        free(f->ports[i].room);
    if (f->wake >= 0)
        close(f->wake);
    if (f->epoll >= 0)
        close(f->epoll);
    free(f->ports);
    free(f->frames);
    free(f->links);
    free(f);
    return NULL;
}

/* Frees a forwarder. The sockets still belong to the caller. */
void forwarder_close(struct forwarder *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        free(f->ports[i].room);
    for (uint32_t i = 0; i < f->link_count; i++)
        link_close(f->links[i]);
    close(f->wake);
    close(f->epoll);
    free(f->ports);
    free(f->frames);
    free(f->links);
    free(f);
}

/* Returns the time at which packets are processed. */
uint64_t forwarder_now(const struct forwarder *f) { return (nanoseconds(CLOCK_MONOTONIC) - f->began) / 1000; }

/* Makes forwarder_run return. */
void forwarder_stop(struct forwarder *f)
{
    atomic_store(&f->stop, true);
    uint64_t one = 1;
    ssize_t written = write(f->wake, &one, sizeof one);
    (void)written;
}

void forwarder_statistics(struct forwarder *f, uint32_t index, struct port_statistics *to)
{
    struct port *port = f->ports + index;
    struct tpacket_stats since;
    socklen_t size = sizeof since;
    if (!port->is_cpu && getsockopt(port->socket, SOL_PACKET, PACKET_STATISTICS, &since, &size) == 0)
        port->statistics.missed += since.tp_drops;
    *to = port->statistics;
}
