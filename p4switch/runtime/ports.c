/* See ports.h. */

#define _GNU_SOURCE
#include "ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BUFFER (32 << 20)
#define SEND_BUFFER (4 << 20)
#define IDLE_MICROSECONDS 50 /* of sched_yield before the loop sleeps */

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

static uint64_t microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A large buffer where we may (root), else as large as the kernel lets everybody have. */
static void set_buffer(int fd, int force, int plain, int size)
{
    if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, plain, &size, sizeof size);
}

/* Opens an interface as a port; returns a socket, or -errno. */
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

/* A forwarder over open sockets; the one numbered `cpu_port`, if any, is the control plane's. NULL: no memory. */
struct forwarder *forwarder_open(struct switch_base *base, uint32_t count, const uint32_t *numbers, const int *sockets,
                                 int64_t cpu_port, bool join)
{
    struct forwarder *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->base = base;
    f->count = count;
    f->join = join;
    f->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    f->ports = calloc(count ? count : 1, sizeof *f->ports);
    f->frames = calloc(BATCH, TAG_ROOM + FRAME_ROOM);
    bool complete = f->wake >= 0 && f->ports && f->frames;
    for (uint32_t i = 0; complete && i < count; i++) {
        struct port *port = f->ports + i;
        port->socket = sockets[i];
        port->number = numbers[i];
        port->is_cpu = numbers[i] == cpu_port;
        port->room = calloc(1, SEND_ROOM);
        complete = port->room;
        f->by_number[numbers[i] % 512] = port;
        if (port->is_cpu)
            f->cpu = port;
    }
    f->began = microseconds();
    if (complete)
        return f;
    for (uint32_t i = 0; f->ports && i < count; i++)
        free(f->ports[i].room);
    if (f->wake >= 0)
        close(f->wake);
    free(f->ports);
    free(f->frames);
    free(f);
    return NULL;
}

/* Frees what forwarder_open made; the sockets stay the caller's. */
void forwarder_close(struct forwarder *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        free(f->ports[i].room);
    close(f->wake);
    free(f->ports);
    free(f->frames);
    free(f);
}

/* The time that packets are processed at. */
uint64_t forwarder_now(const struct forwarder *f) { return microseconds() - f->began; }

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
    *to = f->ports[index].statistics;
}

/* Sends a port's frames. What the link's queue does not take is dropped, as a switch does. */
static void port_flush(struct port *port)
{
    struct mmsghdr messages[SEND_MOST];
    struct iovec pieces[SEND_MOST][2];
    struct virtio_net_hdr virtio[SEND_MOST];
    for (uint32_t i = 0; i < port->waiting; i++) {
        struct joined *frame = port->out + i;
        join_close(frame, virtio + i);
        pieces[i][0] = (struct iovec){virtio + i, sizeof virtio[i]};
        pieces[i][1] = (struct iovec){frame->frame, frame->length};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = pieces[i] + port->is_cpu, .msg_iovlen = 2u - port->is_cpu}};
        port->statistics.sent += frame->segments;
    }
    for (uint32_t done = 0; done < port->waiting;) {
        int sent = sendmmsg(port->socket, messages + done, port->waiting - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            port->statistics.sent_frames += (uint32_t)sent;
            done += (uint32_t)sent;
        } else if (errno != EINTR) {
            port->statistics.dropped += port->out[done].segments;
            port->statistics.sent -= port->out[done].segments;
            done++;
        }
    }
    port->waiting = port->used = 0;
}

/* The program's emit_function: queues a packet for its port, in a superframe with those before it if it fits. */
static void transmit(void *context, uint32_t number, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct forwarder *f = context;
    struct port *port = f->by_number[number % 512];
    if (!port || port->number != number || length > FRAME_ROOM || length == 0)
        return;
    if (port->is_cpu && checksum) {
        complete_checksum(checksum, f->base->checksum_offset, packet + length);
        checksum = NULL;
    }
    if (f->join && !port->is_cpu && port->waiting) {
        struct joined *last = port->out + port->waiting - 1;
        if (join_add(last, packet, length, checksum)) {
            port->used = (uint32_t)(last->frame - port->room) + last->length;
            return;
        }
    }
    port->used = (port->used + 63) / 64 * 64;
    if (port->waiting == SEND_MOST || port->used + FRAME_ROOM > SEND_ROOM)
        port_flush(port);
    join_open(port->out + port->waiting++, port->room + port->used, packet, length, checksum, f->base->checksum_offset);
    port->used += length;
}

/* One frame that a port received: each of its packets through the program. */
static void receive(struct forwarder *f, struct port *port, const struct virtio_net_hdr *virtio, const uint8_t *frame,
                    uint32_t length, uint64_t now)
{
    struct switch_base *base = f->base;
    base->checksum_offset = virtio->csum_offset;
    port->statistics.received_frames++;
    if (virtio->gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        uint8_t *checksum = NULL;
        if (virtio->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM && virtio->csum_start + virtio->csum_offset + 2u <= length)
            checksum = base->buffer + virtio->csum_start + virtio->csum_offset;
        memcpy(base->buffer, frame, length);
        base->process(base, port->number, length, now, checksum);
        port->statistics.received++;
        return;
    }
    struct superframe s;
    if (!split_open(&s, frame, length, virtio)) {
        port->statistics.dropped++;
        return;
    }
    port->statistics.received += s.segments;
    for (uint32_t i = 0; i < s.segments; i++) {
        uint32_t size = split_copy(&s, i, base->buffer);
        base->process(base, port->number, size, now, base->buffer + s.checksum);
    }
}

/* A packet from the control plane, to be processed as if it had come in at the port that it names. */
static void receive_from_control(struct forwarder *f, const uint8_t *message, uint32_t length, uint64_t now)
{
    uint32_t number;
    if (length < sizeof number)
        return;
    memcpy(&number, message, sizeof number);
    memcpy(f->base->buffer, message + sizeof number, length - sizeof number);
    f->base->process(f->base, number, length - (uint32_t)sizeof number, now, NULL);
    f->cpu->statistics.received++;
}

/* Puts the VLAN tag of a received frame back in its place: the kernel hands it over beside the frame. */
static void restore_tag(struct msghdr *message, struct virtio_net_hdr *virtio, uint8_t **frame, uint32_t *length)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (!control || control->cmsg_level != SOL_PACKET || control->cmsg_type != PACKET_AUXDATA)
        return;
    struct tpacket_auxdata aux;
    memcpy(&aux, CMSG_DATA(control), sizeof aux);
    if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || *length < 12 || *length + 4 > FRAME_ROOM)
        return;
    *frame -= 4;
    *length += 4;
    memmove(*frame, *frame + 4, 12);
    store_be16(*frame + 12, aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q);
    store_be16(*frame + 14, aux.tp_vlan_tci);
    virtio->csum_start += 4;
    virtio->hdr_len += 4;
}

/* Takes a batch of frames from a port and forwards it; returns whether there was one. */
static bool serve(struct forwarder *f, struct port *port)
{
    struct mmsghdr messages[BATCH];
    struct iovec pieces[BATCH][2];
    struct virtio_net_hdr virtio[BATCH];
    char control[BATCH][CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    for (uint32_t i = 0; i < BATCH; i++) {
        pieces[i][0] = (struct iovec){virtio + i, sizeof virtio[i]};
        pieces[i][1] = (struct iovec){f->frames + (size_t)i * (TAG_ROOM + FRAME_ROOM) + TAG_ROOM, FRAME_ROOM};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = pieces[i] + port->is_cpu,
                                              .msg_iovlen = 2u - port->is_cpu,
                                              .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]};
    }
    int count = recvmmsg(port->socket, messages, BATCH, MSG_DONTWAIT, NULL);
    if (count <= 0)
        return false;

    while (atomic_load(&f->base->waiting))
        sched_yield();
    pthread_mutex_lock(&f->base->lock);
    f->base->emit = transmit;
    f->base->emit_context = f;
    uint64_t now = microseconds() - f->began;
    for (int i = 0; i < count; i++) {
        uint8_t *frame = pieces[i][1].iov_base;
        uint32_t length = messages[i].msg_len;
        if (port->is_cpu) {
            receive_from_control(f, frame, length, now);
        } else if (length > sizeof virtio[i] && !(messages[i].msg_hdr.msg_flags & MSG_TRUNC)) {
            length -= (uint32_t)sizeof virtio[i];
            restore_tag(&messages[i].msg_hdr, virtio + i, &frame, &length);
            receive(f, port, virtio + i, frame, length, now);
        }
    }
    pthread_mutex_unlock(&f->base->lock);
    for (uint32_t i = 0; i < f->count; i++)
        if (f->ports[i].waiting)
            port_flush(f->ports + i);
    return true;
}

/* Forwards until forwarder_stop. Without traffic it yields the processor for a moment, then sleeps. */
void forwarder_run(struct forwarder *f)
{
    struct pollfd *polled = calloc(f->count + 1, sizeof *polled);
    if (!polled)
        return;
    for (uint32_t i = 0; i < f->count; i++)
        polled[i] = (struct pollfd){.fd = f->ports[i].socket, .events = POLLIN};
    polled[f->count] = (struct pollfd){.fd = f->wake, .events = POLLIN};

    uint64_t idle_since = 0;
    while (!atomic_load(&f->stop)) {
        bool busy = false;
        for (uint32_t i = 0; i < f->count; i++)
            busy |= serve(f, f->ports + i);
        if (busy) {
            idle_since = 0;
            continue;
        }
        uint64_t now = microseconds();
        if (idle_since == 0)
            idle_since = now;
        if (now - idle_since < IDLE_MICROSECONDS) {
            sched_yield();
            continue;
        }
        poll(polled, f->count + 1, -1);
        idle_since = 0;
    }
    free(polled);
}
