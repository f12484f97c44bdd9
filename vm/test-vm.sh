#!/bin/sh
# Boots a distribution's kernel and runs provision.sh, doctor, the demo and the live tests of this tree there.
# usage: test-vm.sh DISTRIBUTION KERNEL PIP [VM]     PIP: see image.sh
# VM: kvm       QEMU with KVM
#     uml       user-mode Linux: the kernel is a program of this machine; one processor, slow system calls
#     emulated  QEMU without KVM, 10 to 20 times slower
# By default the first of them that this user can run here. Needs mmdebstrap and e2fsprogs, and for the first and the
# last qemu-system-x86; root only to make an image (image.sh), which is then kept. The machine has no network, and what
# it writes is thrown away.
set -eu
distribution=$1 kernel=$2 pip=$3 vm=${4:-}
case $vm in
    '' | kvm | uml | emulated) ;;
    *)
        echo "test-vm: VM=$vm is none of kvm, uml, emulated" >&2
        exit 1
        ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")

# Everything that can be missing is looked for before the image, which takes half an hour to make.
if [ -z "$vm" ]; then
    if "$here/kvm.sh"; then
        vm=kvm
    else
        vm=uml
    fi
fi
# User-mode Linux maps each page of its processes' memory by itself, and pytest has more than the usual 65,530.
maps=262144
if [ "$vm" = uml ] && [ "$(cat /proc/sys/vm/max_map_count)" -lt "$maps" ]; then
    echo "test-vm: user-mode Linux needs more mappings than this machine allows: sudo sysctl vm.max_map_count=$maps" >&2
    exit 1
fi
# Its memory is a file there; containers often have 64 MB.
if [ "$vm" = uml ] && [ "$(df --output=avail -k /dev/shm | tail -n 1)" -lt 3145728 ]; then
    echo "test-vm: user-mode Linux needs 3 GB of /dev/shm: sudo mount -o remount,size=4G /dev/shm" >&2
    exit 1
fi
if [ "$vm" != uml ] && ! command -v qemu-system-x86_64 >/dev/null; then
    echo "test-vm: VM=$vm needs qemu-system-x86_64, which is not installed: apt-get install qemu-system-x86" >&2
    exit 1
fi
if [ "$vm" = kvm ] && ! "$here/kvm.sh"; then
    echo "test-vm: KVM runs no machine here (/dev/kvm); VM=uml and VM=emulated do without" >&2
    exit 1
fi
image=$("$here/image.sh" "$distribution" "$kernel" "$pip")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Emulation knows newer vector instructions only in part: with them numpy's own library died under QEMU 7.2 (general
# protection faults). Nehalem is x86-64-v2 (SSE4.2, no AVX), the least that numpy 2 and pyarrow take.
processor="-accel kvm -cpu host"
[ "$vm" != emulated ] || processor="-accel tcg,thread=multi -cpu Nehalem"
echo "test-vm: $distribution with kernel $kernel, $vm"

# The tree as it stands, with what is not committed yet, in a folder called fanin.
(cd "$tree" && git ls-files -z --cached --others --exclude-standard |
    tar --null -T - --ignore-failed-read --transform 's,^,fanin/,' -cf "$work/tree.tar")

# Limits of systemd's own that an emulated machine needs longer than; nobody logs in at the console that is written to,
# and of the kernel it shows warnings only.
settings="systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800 systemd.show_status=0"
settings="$settings systemd.mask=getty.target loglevel=5"

if [ "$vm" = uml ]; then
    cd "$image/uml-$kernel" # for its loader; its memory is a file in TMPDIR
    # shellcheck disable=SC2086  # a list of options
    set -- env TMPDIR=/dev/shm LD_LIBRARY_PATH=lib64 ./linux.uml mem=3G uml_dir="$work/" con=null con0=null,fd:1 \
        ubdas="$work/written,$image/disk.ext4" ubdbr="$work/tree.tar" root=/dev/ubda rw $settings
else
    # shellcheck disable=SC2086  # a list of options
    set -- qemu-system-x86_64 -machine q35 $processor -smp 2 -m 3G -nic none \
        -display none -monitor none -serial stdio -no-reboot -snapshot -device virtio-rng-pci \
        -kernel "$image/vmlinuz-$kernel" -initrd "$image/initrd.img-$kernel" \
        -append "root=LABEL=fanin rw console=ttyS0 panic=-1 $settings" \
        -drive "file=$image/disk.ext4,format=raw,if=virtio" \
        -drive "file=$work/tree.tar,format=raw,if=none,id=tree" -device virtio-blk-pci,drive=tree,serial=tree
fi
timeout --foreground 12h nice "$@" </dev/null | tee "$work/console" || true
grep -q '^test-vm: ended with status 0' "$work/console" || {
    echo "test-vm: $distribution with kernel $kernel: failed, or did not get to its end" >&2
    exit 1
}
