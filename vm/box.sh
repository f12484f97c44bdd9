#!/bin/sh
# Makes a Vagrant box for libvirt of an image (image.sh) with one of its kernels, as root, and prints its file. Like the
# image it needs no network.
# Made once, it is kept next to the image that it is made of (image.sh).
# usage: box.sh DISTRIBUTION KERNEL PIP     PIP: see image.sh
set -eu
distribution=$1 kernel=$2 pip=$3
here=$(cd "$(dirname "$0")" && pwd)
loader=/usr/lib/EXTLINUX/mbr.bin
start=1048576 # of the one partition: where every tool puts it

fail() {
    echo "box: $*" >&2
    exit 1
}

# Before the image, which takes half an hour to make: root makes that and the box, others only find them.
key=$(find /usr/share -path '*vagrant*/keys/vagrant.pub' | head -n 1)
if [ "$(id -u)" -eq 0 ]; then
    for command in extlinux qemu-img sfdisk; do
        command -v "$command" >/dev/null || fail "$command is not installed: apt-get install extlinux qemu-utils fdisk"
    done
    [ -n "$key" ] || fail "Vagrant's public key was not found: apt-get install vagrant vagrant-libvirt"
fi
image=$("$here/image.sh" "$distribution" "$kernel" "$pip")
box=$image/$kernel-$(sha256sum "$0" | cut -c 1-12).box
if [ -f "$box" ]; then
    echo "$box"
    exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "making the box needs root, once: sudo vm/box.sh $distribution $kernel $pip"
umask 022
work=$(mktemp -d "$image/making-XXXXXX")
trap '! mountpoint -q "$work/root" || umount "$work/root"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
echo "box: making $box" >&2

size=$(stat -c %s "$image/disk.ext4")
truncate -s $((size + 2 * start)) "$work/disk"
echo "start=$((start / 512)), size=$((size / 512)), type=83, bootable" | sfdisk -q "$work/disk"
dd if="$loader" of="$work/disk" conv=notrunc status=none
dd if="$image/disk.ext4" of="$work/disk" bs=1M seek=1 conv=notrunc,sparse status=none

mkdir "$work/root"
mount -o "loop,offset=$start" "$work/disk" "$work/root"
cp "$image/vmlinuz-$kernel" "$work/root/boot/vmlinuz"
cp "$image/initrd.img-$kernel" "$work/root/boot/initrd"
mkdir "$work/root/boot/extlinux"
cat >"$work/root/boot/extlinux/extlinux.conf" <<'END'
DEFAULT fanin
LABEL fanin
    LINUX /boot/vmlinuz
    INITRD /boot/initrd
    APPEND root=LABEL=fanin rw console=ttyS0 systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800
END
extlinux --install "$work/root/boot/extlinux" >/dev/null 2>&1
cat >"$work/root/etc/systemd/network/dhcp.network" <<'END'
[Match]
Name=en* eth*
[Network]
DHCP=yes
END
# What Vagrant expects of a box: its user, with the key that it replaces at the first start, and sudo without a password.
cat >"$work/root/etc/sudoers.d/vagrant" <<'END'
vagrant ALL=(ALL) NOPASSWD: ALL
END
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
chroot "$work/root" sh -eu >&2 <<'INSIDE'
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends openssh-server rsync
apt-get clean
useradd --create-home --shell /bin/bash vagrant
systemctl -q enable systemd-networkd
systemctl -q disable fanin-test
rm -rf /opt/fanin
INSIDE
install -d -m 700 "$work/root/home/vagrant/.ssh"
install -m 600 "$key" "$work/root/home/vagrant/.ssh/authorized_keys"
chroot "$work/root" chown -R vagrant: /home/vagrant/.ssh
umount "$work/root"

qemu-img convert -O qcow2 -c "$work/disk" "$work/box.img"
echo '{"provider": "libvirt", "format": "qcow2", "virtual_size": '$((size / 1073741824 + 1))'}' >"$work/metadata.json"
tar -C "$work" -cf "$work/box" metadata.json box.img
mv "$work/box" "$box"
echo "$box"
