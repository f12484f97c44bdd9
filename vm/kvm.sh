#!/bin/sh
# Whether a machine can be run by KVM here. A /dev/kvm that opens may still not be able to (in a virtual machine itself):
# one is tried.
{
    echo quit | timeout 20 qemu-system-x86_64 -accel kvm -cpu host -S -nodefaults -display none -monitor stdio
} >/dev/null 2>&1
