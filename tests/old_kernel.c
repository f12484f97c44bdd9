/* Preloaded, makes packet sockets behave as on kernels before 6.2, whose virtio header has no type for superframes of
 * UDP: a socket that is to receive one answers EINVAL, and the frame is gone; to send one is EINVAL. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <sys/socket.h>

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define SOCKETS 4096
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int error_of[SOCKETS]; /* is what the next call answers: recvmmsg(2), as far as it has come, hides an error */

static int has_virtio_header(int fd)
{
    int domain = 0, has = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_PACKET)
        return 0;
    size = sizeof has;
    return !getsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &has, &size) && has;
}

static int is_superframe(const struct msghdr *message)
{
    struct virtio_net_hdr header;
    if (!message->msg_iovlen || message->msg_iov[0].iov_len < sizeof header)
        return 0;
    memcpy(&header, message->msg_iov[0].iov_base, sizeof header);
    return header.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4;
}

static int refuse(void)
{
    errno = EINVAL;
    return -1;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (!has_virtio_header(fd))
        return NEXT(recvmsg)(fd, message, flags);
    if (fd < SOCKETS && error_of[fd]) {
        error_of[fd] = 0;
        return refuse();
    }
    ssize_t length = NEXT(recvmsg)(fd, message, flags);
    return length >= 0 && is_superframe(message) ? refuse() : length;
}

ssize_t recv(int fd, void *buffer, size_t room, int flags)
{
    struct iovec piece = {buffer, room};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return has_virtio_header(fd) ? recvmsg(fd, &message, flags) : NEXT(recv)(fd, buffer, room, flags);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    if (!has_virtio_header(fd))
        return NEXT(recvmmsg)(fd, messages, count, flags, timeout);
    for (unsigned i = 0; i < count; i++) {
        ssize_t length = recvmsg(fd, &messages[i].msg_hdr, flags);
        if (length < 0 && i && fd < SOCKETS)
            error_of[fd] = errno == EINVAL;
        if (length < 0)
            return i ? (int)i : -1;
        messages[i].msg_len = (unsigned)length;
    }
    return (int)count;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return has_virtio_header(fd) && is_superframe(message) ? refuse() : NEXT(sendmsg)(fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t length, int flags)
{
    struct iovec piece = {(void *)data, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return has_virtio_header(fd) ? sendmsg(fd, &message, flags) : NEXT(send)(fd, data, length, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    if (!has_virtio_header(fd))
        return NEXT(sendmmsg)(fd, messages, count, flags);
    for (unsigned i = 0; i < count; i++) {
        ssize_t length = sendmsg(fd, &messages[i].msg_hdr, flags);
        if (length < 0)
            return i ? (int)i : -1;
        messages[i].msg_len = (unsigned)length;
    }
    return (int)count;
}
