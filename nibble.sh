#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing (Debian, Ubuntu), builds, tests, shows. `./nibble.sh` lists the commands.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
build=${NIBBLE_BUILD_DIR:-$root/build}
jobs=${NIBBLE_JOBS:-$(nproc 2>/dev/null || echo 2)}

# What the program needs to build, and what its tests and packages need on top.
build_packages=(g++ cmake ninja-build pkg-config ccache libfmt-dev nlohmann-json3-dev
  libpcre2-dev libutf8proc-dev libhwy-dev libtomlplusplus-dev zlib1g-dev libcpp-httplib-dev
  libjs-marked node-dompurify)
test_packages=(libgtest-dev libgmock-dev python3 clang-format)
package_packages=(dpkg-dev file)
mpi_packages=(libopenmpi-dev openmpi-bin)

say() { printf '\n==> %s\n' "$*"; }
fail() {
  printf 'nibble.sh: %s\n' "$*" >&2
  exit 1
}

usage() {
  cat <<'TEXT'
Usage: ./nibble.sh COMMAND

  build   install what is missing, build the release binary: build/nibble; further arguments go
          to cmake: ./nibble.sh build -DNIBBLE_CUDA=OFF
  test    the same with the tests, then run them all and say what was skipped and why;
          further arguments go to ctest: ./nibble.sh test -L unit
  demo    the identity experiment on the built-in mini model: probes, fine-tune, export, reload,
          probes again; ends in a table of before and after
  package a .deb and a .tar.gz that runs anywhere in one folder, both in build/; for every GPU
          architecture where nvcc is found (slow); further arguments go to cmake:
          ./nibble.sh package -DNIBBLE_CUDA=OFF

Environment: NIBBLE_BUILD_DIR (build), NIBBLE_JOBS (all cores), NIBBLE_NO_INSTALL=1 (never call
apt-get), NIBBLE_SHARED (where tests look for third-party data; ../shared by default), CUDAARCHS
(what to compile CUDA code for: the GPUs of this machine by default, 121a-real, ..., or release),
NIBBLE_WERROR=ON (a warning of the compiler is an error), NIBBLE_MPI=ON|OFF (several processes train
together: docs/scale.md; off by default).
TEXT
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "installing packages needs root or sudo; as root, run: $*"
  fi
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_missing PACKAGE...
install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    printf 'nibble.sh: not a Debian or Ubuntu system; expecting the equivalents of: %s\n' "$*" >&2
    return
  fi
  local missing=() package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return
  [ -n "${NIBBLE_NO_INSTALL:-}" ] && fail "missing packages: ${missing[*]}"
  say "Installing: ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
  # The package lists may be old or absent: refresh them once when the first try fails.
  if ! as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" \
    >/dev/null 2>&1 </dev/null; then
    as_root "${apt[@]}" update </dev/null
    as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null </dev/null
  fi
}

has_gpu() {
  [[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) =~ ^[0-9] ]]
}

has_nvcc() {
  [ -n "${CUDACXX:-}" ] || [ -x /usr/local/cuda/bin/nvcc ] || command -v nvcc >/dev/null
}

# configure ON|OFF [CMAKE_ARGUMENT...]: with or without tests.
configure() {
  local generator=() tests=$1
  shift
  [ -f "$build/CMakeCache.txt" ] || generator=(-G Ninja)
  # What a demonstration left out is nobody's choice for later.
  if [ -f "$build/demo_without_cuda" ]; then
    rm "$build/demo_without_cuda"
    set -- -UNIBBLE_CUDA "$@"
  fi
  [ -z "${NIBBLE_WERROR:-}" ] || set -- -DNIBBLE_WERROR="$NIBBLE_WERROR" "$@"
  [ -z "${NIBBLE_MPI:-}" ] || set -- -DNIBBLE_MPI="$NIBBLE_MPI" "$@"
  cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DNIBBLE_TESTS="$tests" "$@"
}

cmd_build() {
  [ "${NIBBLE_MPI:-}" != ON ] || build_packages+=("${mpi_packages[@]}")
  install_missing "${build_packages[@]}"
  say "Building $build/nibble"
  configure OFF "$@"
  cmake --build "$build" --parallel "$jobs" --target nibble
  say "Done: $build/nibble ($("$build/nibble" --version | head -n 1))"
}

cmd_test() {
  [ "${NIBBLE_MPI:-}" != ON ] || build_packages+=("${mpi_packages[@]}")
  install_missing "${build_packages[@]}" "${test_packages[@]}"
  say "Building nibble and its tests"
  configure ON
  cmake --build "$build" --parallel "$jobs"
  say "Testing"
  local report=$build/tests.xml status=0
  rm -f "$report"
  ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error \
    --output-junit "$report" --test-output-size-passed 65536 --test-output-size-failed 1048576 \
    "$@" | sed -u -e '/^ *Start /d' -e 's/ \.\{4,\}/ .../' || status=$?
  [ -f "$report" ] || fail "ctest left no report (exit $status)"
  say "Summary"
  python3 "$root/tools/summarize_tests.py" "$report" || status=1
  return "$status"
}

cmd_demo() {
  install_missing "${build_packages[@]}"
  # Where there is no GPU, compiling for one would double the wait for the first reply; what is
  # built already stays as it is.
  if { [ ! -x "$build/nibble" ] || [ -f "$build/demo_without_cuda" ]; } &&
    [ -z "${CUDAARCHS:-}" ] && has_nvcc && ! has_gpu; then
    say "Building nibble without CUDA: no GPU was found (./nibble.sh build compiles it nevertheless)"
    configure OFF -DNIBBLE_CUDA=OFF
    touch "$build/demo_without_cuda"
  else
    say "Building nibble"
    configure OFF
  fi
  cmake --build "$build" --parallel "$jobs" --target nibble
  demo_dir=$(mktemp -d "${TMPDIR:-/tmp}/nibble-demo.XXXXXX")
  local status=0
  "$root/tools/demo.sh" "$build/nibble" "$demo_dir" || status=$?
  printf 'Everything it made is in %s\n' "$demo_dir"
  return "$status"
}

cmd_package() {
  install_missing "${build_packages[@]}" "${package_packages[@]}"
  # Beside build/, not in it: at the same depth a compiler cache knows the files.
  local folder=$build-package
  say "Building the packages in $folder"
  local generator=()
  [ -f "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
  cmake -S "$root" -B "$folder" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DNIBBLE_TESTS=OFF \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_CUDA_ARCHITECTURES=release "$@"
  cmake --build "$folder" --parallel "$jobs"
  rm -rf "$folder/packages"
  (cd "$folder" && cpack -B "$folder/packages")
  rm -rf "$folder/packages/_CPack_Packages"
  mkdir -p "$build"
  mv "$folder"/packages/* "$build/"
  say "Done: $(cd "$build" && ls -- *.deb *.tar.gz | tr '\n' ' ')in $build"
}

case ${1:-} in
  build | test | demo | package)
    command=$1
    shift
    [ "$command" != demo ] || [ $# -eq 0 ] || fail "demo takes no arguments, got: $*"
    [ "$command" != build ] || [ $# -eq 0 ] || [[ $1 == -* ]] ||
      fail "build takes arguments for cmake, such as -DNIBBLE_CUDA=OFF, got: $*"
    "cmd_$command" "$@"
    ;;
  help | -h | --help) usage ;;
  '')
    usage
    exit 2
    ;;
  *)
    usage >&2
    fail "unknown command '$1'"
    ;;
esac
