// fanin's own program, which is also the one for programs of users to start from.

#include "../../p4src/fanin.p4"
