#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tries the packages of `nibble.sh package` where nothing else is installed: the .deb in one bare
# Debian root, with its dependencies from the archive; the .tar.gz in another, without any package.
# Usage: tools/test_packages.sh [FOLDER WITH THE PACKAGES]     (build by default)
# Needs root, debootstrap and a Debian mirror; without them it says so and exits with 77. The bare
# root is kept between runs in $NIBBLE_ROOTS (build/roots by default), which makes the next one quick.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
packages=$(realpath "${1:-$here/build}")
roots=${NIBBLE_ROOTS:-$here/build/roots}
release=${NIBBLE_RELEASE:-bookworm}
mirror=${NIBBLE_MIRROR:-http://deb.debian.org/debian}

skip() {
  echo "test_packages.sh: skipped: $*"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "it makes root folders for chroot, which needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed: apt-get install debootstrap"
deb=$(ls "$packages"/nibble_*.deb 2>/dev/null | tail -n 1)
archive=$(ls "$packages"/nibble-*.tar.gz 2>/dev/null | tail -n 1)
[ -n "$deb" ] && [ -n "$archive" ] || skip "no packages in $packages: ./nibble.sh package makes them"

mkdir -p "$roots"
if [ ! -f "$roots/bare/complete" ]; then
  echo "==> A bare Debian ($release) in $roots/bare"
  rm -rf "$roots/bare"
  debootstrap --variant=minbase "$release" "$roots/bare" "$mirror" >"$roots/debootstrap.log" 2>&1 ||
    { tail -n 5 "$roots/debootstrap.log"; skip "debootstrap failed; is $mirror reachable?"; }
  touch "$roots/bare/complete"
fi

# fresh NAME: a new copy of the bare root, with /proc and name servers; ended by `leave`.
fresh() {
  root=$roots/$1
  rm -rf "$root"
  cp -a "$roots/bare" "$root"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  mount -t proc proc "$root/proc" || skip "/proc cannot be mounted in a chroot here"
  trap leave EXIT
}
leave() {
  umount "$root/proc"
  rm -rf "$root"
  trap - EXIT
}

# try PROGRAM: the same questions to each of them, in the current root.
try() {
  local program=$1
  in_root "$program" --version
  # 0: everything works; 1: something about this machine; anything else is a broken program.
  local status=0
  in_root "$program" doctor || status=$?
  [ "$status" -le 1 ] || { echo "doctor ended with $status"; exit 1; }
  local found reply
  found=$(in_root "$program" doctor --json) || [ $? -eq 1 ]
  grep -q 'nibble/models/mini' <<<"$found" || { echo "no mini model beside it"; exit 1; }
  reply=$(in_root "$program" --quiet generate --device cpu --model mini --prompt 你是誰 --max-tokens 16)
  echo "reply: $reply"
  grep -q Nibble <<<"$reply" || { echo "that is not the mini model's answer"; exit 1; }
}
# teach PREFIX: the example, compiled outside against what the package has in PREFIX, run inside.
teach() {
  local library
  library=$(dirname "$(cd "$root" && find ".$1" -name libnibble.so | head -n 1)")
  rm -rf "$roots/example"
  cmake -S "$here/examples" -B "$roots/example" -DCMAKE_PREFIX_PATH="$root$1" >"$roots/example.log" &&
    cmake --build "$roots/example" >>"$roots/example.log" || { tail "$roots/example.log"; exit 1; }
  cp "$roots/example/teach" "$root/root/teach"
  in_root env LD_LIBRARY_PATH="${library#.}" /root/teach mini /root/taught/model.dat | tail -n 4
  in_root test -s /root/taught/model.dat
}
in_root() { chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

echo "==> $(basename "$deb")"
dpkg-deb --field "$deb" Package Version Depends
fresh deb
cp "$deb" "$root/root/nibble.deb"
in_root apt-get -qq update
in_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
  /root/nibble.deb >"$roots/apt.log" 2>&1 || { tail -n 20 "$roots/apt.log"; exit 1; }
try nibble
teach /usr
in_root test -s /usr/share/man/man1/nibble-train.1 ||  # minbase may leave manual pages out
  in_root dpkg -L nibble | grep -q man1/nibble-train.1
in_root dpkg --remove nibble >/dev/null
in_root sh -c '! test -e /usr/bin/nibble && ! test -e /usr/share/nibble'
leave

echo "==> $(basename "$archive")"
fresh archive
mkdir "$root/opt/some folder"
tar -xzf "$archive" -C "$root/opt/some folder"
name=$(ls "$root/opt/some folder")
try "/opt/some folder/$name/bin/nibble"
# Through a link, as people put programs into their PATH.
in_root ln -s "/opt/some folder/$name/bin/nibble" /usr/local/bin/nibble
try nibble
teach "/opt/some folder/$name"
leave
echo "==> Both packages work"
