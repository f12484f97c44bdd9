/* One packet whose checksum is partial through a program: what leaves, and whether its checksum still is. */

#include "switch.h"

struct left {
    uint32_t length;
    int32_t checksum; /* where it stands, or -1 */
    uint8_t bytes[2048];
};

static void take(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct left *left = context;
    (void)port;
    left->length = length;
    left->checksum = checksum ? (int32_t)(checksum - packet) : -1;
    memcpy(left->bytes, packet, length);
}

void process_partial(struct switch_base *base, const uint8_t *packet, uint32_t length, uint32_t checksum, uint16_t offset,
                     struct left *left)
{
    memcpy(base->buffer, packet, length);
    base->emit = take;
    base->emit_context = left;
    base->checksum_offset = offset;
    base->process(base, 1, base->buffer, length, 0, base->buffer + checksum);
}
