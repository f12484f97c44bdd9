// ESA (Wang et al., 2022): ATP, in which a chunk takes the slot of a less urgent one of another job.

#define PREEMPTION
#include "../atp/program.p4"
