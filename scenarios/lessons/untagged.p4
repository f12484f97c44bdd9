// fanin.p4 without its chunk numbers, as SwitchML has it: a packet belongs to the chunk that is in its slot, whichever it
// was sent for. The lesson "reordering" shows what comes of that.

#define WITHOUT_CHUNK_TAGS
#include "../../p4src/fanin.p4"
