// The sums of one block of 64 words, a register for each: what a pipeline stage of a real switch would hold. A word is
// an integer of 32 bits, or two of 16 bits.

#ifndef FANIN_VALUES_P4
#define FANIN_VALUES_P4

#include "headers.p4"

// A version of a slot is a cell: cell = 2 * slot + version.
#define SLOTS 1024
#define CELLS 2048

const bit<2> OPERATION_STORE = 0; // the packet's values begin a chunk (no reset pass exists anywhere)
const bit<2> OPERATION_ADD = 1;   // add, saturating; the packet takes the sums along
const bit<2> OPERATION_LOAD = 2;  // the packet takes the stored values along
#ifdef PREEMPTION
const bit<2> OPERATION_SWAP = 3; // the packet's values and the stored ones change places
#else
const bit<2> OPERATION_ADD_16 = 3; // add, but each word is two integers
#endif

// BMv2 reads a register without a sign, so the registers hold bits, and what is read is cast.
#define REGISTER(i) register<bit<32>>(CELLS) r_##i;
#define STORE(i) r_##i.write(cell, (bit<32>)values.v##i);
#define LOAD(i) r_##i.read(stored, cell); values.v##i = (int<32>)stored;
#define SWAP(i) r_##i.read(stored, cell); r_##i.write(cell, (bit<32>)values.v##i); values.v##i = (int<32>)stored;
// overflow becomes non-zero where the saturated sum and the wrapped one differ.
#define ADD(i) \
    r_##i.read(stored, cell); \
    overflow = overflow | ((bit<32>)((int<32>)stored |+| values.v##i) ^ (stored + (bit<32>)values.v##i)); \
    values.v##i = (int<32>)stored |+| values.v##i; \
    r_##i.write(cell, (bit<32>)values.v##i);
// wrapped has the sums of the halves without saturation: no carry goes from the lower half to the upper one.
#define ADD_16(i) \
    r_##i.read(stored, cell); \
    added = (bit<32>)values.v##i; \
    wrapped = (stored[31:16] + added[31:16]) ++ (stored[15:0] + added[15:0]); \
    added = (bit<16>)((int<16>)stored[31:16] |+| (int<16>)added[31:16]) ++ \
            (bit<16>)((int<16>)stored[15:0] |+| (int<16>)added[15:0]); \
    overflow = overflow | (added ^ wrapped); \
    values.v##i = (int<32>)added; \
    r_##i.write(cell, added);

control ValueBlock(inout values_t values, in bit<2> operation, in bit<32> cell, inout bit<32> overflow) {
    REPEAT_64(REGISTER)

    action store() {
        REPEAT_64(STORE)
    }
    action add() {
        bit<32> stored;
        REPEAT_64(ADD)
    }
#ifdef PREEMPTION
    action swap() {
        bit<32> stored;
        REPEAT_64(SWAP)
    }
#else
    action add_16() {
        bit<32> stored;
        bit<32> added;
        bit<32> wrapped;
        REPEAT_64(ADD_16)
    }
#endif
    action load() {
        bit<32> stored;
        REPEAT_64(LOAD)
    }

    apply {
        if (operation == OPERATION_STORE) {
            store();
        } else if (operation == OPERATION_ADD) {
            add();
#ifdef PREEMPTION
        } else if (operation == OPERATION_SWAP) {
            swap();
#else
        } else if (operation == OPERATION_ADD_16) {
            add_16();
#endif
        } else {
            load();
        }
    }
}

#endif
