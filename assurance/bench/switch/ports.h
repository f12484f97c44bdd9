/* Packet sockets for the generator and the bare loop: raw frames, each behind a virtio header. */

#ifndef BENCH_PORTS_H
#define BENCH_PORTS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_PORTS 8
#define NETWORK 14   /* offset of the IPv4 header */
#define TRANSPORT 34 /* of the UDP header */
#define PAYLOAD 42
#define SWITCHML 14  /* bytes in front of the values: SwitchML header, exponents, call */

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

static inline void set_option(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* A socket that sends to and, if it `receives`, takes from an interface; -1 with errno on failure. */
static inline int open_interface(const char *name, bool receives, bool virtio)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = receives ? htons(ETH_P_ALL) : 0,
                                  .sll_ifindex = (int)if_nametoindex(name)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20);
    set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20);
    set_option(fd, SOL_PACKET, PACKET_VNET_HDR, virtio);
    set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    if (address.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline void store16(uint8_t *at, uint16_t value)
{
    value = htons(value);
    memcpy(at, &value, 2);
}

static inline void store32(uint8_t *at, uint32_t value)
{
    value = htonl(value);
    memcpy(at, &value, 4);
}

static inline uint32_t load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static inline uint16_t load16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, 2);
    return ntohs(value);
}

#endif
