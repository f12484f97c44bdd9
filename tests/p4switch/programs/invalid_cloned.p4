/* invalid.p4, in which egress sends a clone of every packet, too. */

#define CLONES
#include "invalid.p4"
