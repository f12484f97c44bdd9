#!/bin/sh
# Boots a distribution's kernel in QEMU and runs provision.sh, doctor, the demo and the live tests of this tree there.
# usage: test-vm.sh DISTRIBUTION KERNEL PIP [HOURS]     PIP: see image.sh. HOURS: when to give up
# Needs qemu-system-x86, mmdebstrap and e2fsprogs; root only to make an image (image.sh), which is then kept.
# With KVM where this user may use it, else by emulation, which is 10 to 20 times slower. The machine has no network, and
# what it writes is thrown away.
set -eu
distribution=$1 kernel=$2 pip=$3 hours=${4:-6}
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")
command -v qemu-system-x86_64 >/dev/null || {
    echo "test-vm: qemu-system-x86_64 is not installed: apt-get install qemu-system-x86 mmdebstrap e2fsprogs" >&2
    exit 1
}
image=$("$here/image.sh" "$distribution" "$pip")
[ -f "$image/vmlinuz-$kernel" ] || {
    echo "test-vm: no kernel $kernel for $distribution; there is $(cd "$image" && echo vmlinuz-* | sed 's/vmlinuz-//g')" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Emulation knows newer vector instructions only in part: with them numpy's own library died under QEMU 7.2 (general
# protection faults). Nehalem is x86-64-v2 (SSE4.2, no AVX), the least that numpy 2 and pyarrow take.
# A /dev/kvm that opens may still not be able to run a machine (in a virtual machine itself): one is tried.
processor="-accel kvm -cpu host"
# shellcheck disable=SC2086  # a list of options
if ! { echo quit | timeout 20 qemu-system-x86_64 $processor -S -nodefaults -display none -monitor stdio; } \
    >"$work/kvm" 2>&1; then
    processor="-accel tcg,thread=multi -cpu Nehalem"
fi
echo "test-vm: $distribution with kernel $kernel, $processor"

# The tree as it stands, with what is not committed yet, in a folder called fanin.
(cd "$tree" && git ls-files -z --cached --others --exclude-standard |
    tar --null -T - --ignore-failed-read --transform 's,^,fanin/,' -cf "$work/tree.tar")

# Limits of systemd's own that an emulated machine needs longer than; and nobody logs in at the console that is written to.
systemd="systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800 systemd.show_status=0"
systemd="$systemd systemd.mask=serial-getty@ttyS0.service"

# shellcheck disable=SC2086  # a list of options
timeout --foreground "${hours}h" nice qemu-system-x86_64 -machine q35 $processor -smp 2 -m 3G -nic none \
    -display none -monitor none -serial stdio -no-reboot -snapshot -device virtio-rng-pci \
    -kernel "$image/vmlinuz-$kernel" -initrd "$image/initrd.img-$kernel" \
    -append "root=LABEL=fanin rw console=ttyS0 panic=-1 rootdelay=900 $systemd" \
    -drive "file=$image/disk.ext4,format=raw,if=virtio" \
    -drive "file=$work/tree.tar,format=raw,if=none,id=tree" -device virtio-blk-pci,drive=tree,serial=tree \
    </dev/null | tee "$work/console" || true
grep -q '^test-vm: ended with status 0' "$work/console" || {
    echo "test-vm: $distribution with kernel $kernel: failed, or did not get to its end" >&2
    exit 1
}
