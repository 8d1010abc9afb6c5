#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# nibble on 64-bit ARM, on a machine that is none: builds the CPU suite with g++-aarch64-linux-gnu against
# arm64 packages in a folder of its own (the machine's packages stay as they are), runs every test
# executable under qemu-user, and compiles the CUDA sources for DGX Spark (sm_121a) where there is an
# nvcc. Ends in a table. Usage: tools/check_aarch64.sh [FOLDER]     (build-aarch64 by default)
#
# Emulated, a test takes ten to forty times as long. Each has NIBBLE_SECONDS (60), and those that need more
# are counted as slow: what is run is a sample of the slow ones and all others. Programs that tests start (nibble and the children of tests) run under qemu as well.
# NIBBLE_SUITES: names of test executables ("core ops"; all), so that the build has only those.
# NIBBLE_SYSROOT: the folder of the packages (FOLDER/sysroot). NIBBLE_JOBS: of the build (all cores). NIBBLE_CUDA_FILES: how many CUDA sources are compiled, from
# the smallest on (all).
# Without the compiler, qemu or a Debian mirror it says so and exits with 77.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${1:-$here/build-aarch64}")
jobs=${NIBBLE_JOBS:-$(nproc)} seconds=${NIBBLE_SECONDS:-60}
sysroot=$(realpath -m "${NIBBLE_SYSROOT:-$build/sysroot}")
packages=(libc6-dev libstdc++-12-dev libfmt-dev libhwy-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev
  libtomlplusplus-dev zlib1g-dev libcpp-httplib-dev libgtest-dev libgmock-dev)

# What qemu-user does not do, so that it says nothing of ARM: limits of address space (RLIMIT_AS) are
# not enforced.
not_emulated=-ThreadPoolDeathTest.ThreadsThatCannotStartAreADeviceError

skip() {
  echo "check_aarch64.sh: skipped: $*"
  exit 77
}
command -v aarch64-linux-gnu-g++ >/dev/null || skip "no compiler: apt-get install g++-aarch64-linux-gnu"
command -v qemu-aarch64 >/dev/null || skip "no emulator: apt-get install qemu-user"
command -v apt-get >/dev/null || skip "not a Debian: the arm64 packages come by apt-get"

# Packages of another architecture, by an apt of its own that knows nothing of this machine's.
make_sysroot() {
  [ ! -f "$sysroot/complete" ] || return 0
  echo "==> arm64 packages in $sysroot"
  local apt=$build/apt
  rm -rf "$sysroot" "$apt"
  mkdir -p "$sysroot" "$apt"/{lists/partial,cache/archives/partial}
  touch "$apt/status"
  cat >"$apt/apt.conf" <<TEXT
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Debug::NoLocking "true";
TEXT
  { APT_CONFIG=$apt/apt.conf apt-get update && APT_CONFIG=$apt/apt.conf apt-get install -y --download-only \
    "${packages[@]}"; } >"$apt/log" 2>&1 || { tail -n 5 "$apt/log"; skip "the arm64 packages cannot be had"; }
  local package link
  for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$sysroot"; done
  # Links to / would lead out of the folder.
  find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$sysroot$(readlink "$link")" "$link"
  done
  touch "$sysroot/complete"
}

# wrap FILE: a program that others start becomes a script that has qemu run it.
wrap() {
  [ "$(head -c 4 "$1" | tail -c 3)" = ELF ] || return 0
  mv "$1" "$1.arm"
  printf '#!/bin/sh\nexec qemu-aarch64 -L %q %q "$@"\n' "$sysroot" "$1.arm" >"$1"
  chmod +x "$1"
}

# run_one EXECUTABLE TEST: one line, what became of it.
run_one() {
  local status=0 log
  log=$(mktemp)
  timeout "$seconds" qemu-aarch64 -L "$sysroot" "$1" --gtest_filter="$2" >"$log" 2>&1 || status=$?
  case $status in
    0) if grep -q '^\[  SKIPPED \]' "$log"; then echo "skipped $2"; else echo "passed $2"; fi ;;
    124) echo "slow $2" ;;
    *)
      echo "failed $2"
      { echo "$(basename "$1"): $2, exit $status"; tail -n 30 "$log"; } >>"$build/results/failures"
      ;;
  esac
  rm "$log"
}
export -f run_one

# run_suite EXECUTABLE: a line of the table.
run_suite() {
  local name results begin=$SECONDS
  name=$(basename "$1")
  results=$build/results/$name
  # shellcheck disable=SC2016  # for the shell that xargs starts
  qemu-aarch64 -L "$sysroot" "$1" --gtest_filter="$not_emulated" --gtest_list_tests 2>/dev/null |
    awk '/^[^ ].*\.( |$)/ { suite = $1 } /^  / { print suite $1 }' |
    xargs -P "$jobs" -n 1 bash -c 'run_one "$0" "$1"' "$1" >"$results"
  printf '| %s | %d' "$name" "$(wc -l <"$results")" >>"$build/results/table"
  for what in passed failed skipped slow; do
    printf ' | %d' "$(grep -c "^$what " "$results")" >>"$build/results/table" || true
  done
  printf ' | %d s |\n' $((SECONDS - begin)) >>"$build/results/table"
}

# The CUDA sources for DGX Spark: device code for it, host code for ARM. nvcc's folder for ARM servers
# (targets/sbsa-linux) is not needed for objects: the headers are the same text.
compile_cuda() {
  local nvcc headers source object count=0 bad=0 most=${NIBBLE_CUDA_FILES:-1000}
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [ -x "$nvcc" ] || { cuda="no nvcc on this machine"; return; }
  headers=$(dirname "$(find -L "$(dirname "$nvcc")/../targets" "$(dirname "$nvcc")/../include" -name cuda_runtime.h \
    2>/dev/null | head -n 1)")
  mkdir -p "$build/cuda"
  for source in $(find "$here/src/backends/cuda" -name '*.cu' -size +0 -printf '%s %p\n' | sort -n |
    head -n "$most" | cut -d' ' -f2); do
    object=$build/cuda/$(basename "$source" .cu).o
    count=$((count + 1))
    [ "$object" -nt "$source" ] && continue
    "$nvcc" -ccbin aarch64-linux-gnu-g++ -Xcompiler --sysroot="$sysroot" -I "$headers" -I "$here/src" -std=c++20 \
      -O3 -DNDEBUG -fmad=false -DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -arch=sm_121a -c -o "$object" \
      "$source" 2>>"$build/cuda/log" || { bad=$((bad + 1)); echo "cuda: $source" >>"$build/results/failures"; }
  done
  cuda="$count of $(find "$here/src/backends/cuda" -name '*.cu' | wc -l) CUDA sources, $bad failed"
}

export build sysroot seconds
mkdir -p "$build/results"
rm -f "$build"/results/*
make_sysroot
echo "==> Building in $build"
cmake -S "$here" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$here/cmake/aarch64-linux-gnu.cmake" \
  -DNIBBLE_SYSROOT="$sysroot" -DCMAKE_BUILD_TYPE=Release -DNIBBLE_TESTS=ON -DNIBBLE_WERROR=ON -DNIBBLE_CUDA=OFF \
  >"$build/configure.log" 2>&1 || { tail -n 20 "$build/configure.log"; exit 1; }
targets=()
for suite in ${NIBBLE_SUITES:-}; do targets+=(--target "test_$suite"); done
[ "${#targets[@]}" -eq 0 ] || targets+=(--target nibble)
cmake --build "$build" --parallel "$jobs" "${targets[@]}" >"$build/build.log" 2>&1 || { grep -m 20 'error' "$build/build.log"; exit 1; }
for program in "$build/nibble" "$build/tests/guard/guard_child" "$build/tests/comm/rank_child"; do
  if [ -f "$program" ]; then wrap "$program"; fi
done
"$build/nibble" --version
echo "==> Testing"
for suite in "$build"/tests/*/test_*; do
  if [ ! -x "$suite" ] || [ ! -f "$suite" ] || [[ $suite == *.* ]]; then continue; fi
  name=$(basename "$suite")
  if [ -z "${NIBBLE_SUITES:-}" ] || [[ " $NIBBLE_SUITES " == *" ${name#test_} "* ]]; then run_suite "$suite"; fi
done
cuda=""
compile_cuda

echo
echo '| suite | tests | passed | failed | skipped | slow | time |'
echo '|---|---|---|---|---|---|---|'
cat "$build/results/table"
awk -F'|' '{ for (i = 3; i <= 7; ++i) s[i] += $i } END {
  printf "| all | %d | %d | %d | %d | %d | |\n", s[3], s[4], s[5], s[6], s[7] }' "$build/results/table"
echo "compiled for sm_121a with ARM host code: $cuda"
if [ -s "$build/results/failures" ]; then
  echo
  cat "$build/results/failures"
  exit 1
fi
