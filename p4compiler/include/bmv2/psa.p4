// p4c ships the PSA of BMv2 under this name.

#include "../psa.p4"
