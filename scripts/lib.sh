# Shared by the scripts in this folder; sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# What the build needs, by the names that Debian 12 and Ubuntu 24.04 share.
build_packages=(git g++ cmake ninja-build pkg-config
  libucx-dev libibverbs-dev libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libssl-dev zlib1g-dev
  prometheus-cpp-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libtomlplusplus-dev libsimdjson-dev
  libcli11-dev libpcre2-dev libxxhash-dev libhwy-dev libboost-dev)
# What tests and benchmarks need on top.
test_packages=(libgtest-dev libgmock-dev ucx-utils python3 python3-venv clang libclang-rt-dev)

# Installs what is missing, asking nothing; does nothing when all is there.
ensure_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "packages are missing and there is no sudo; as root: apt-get install -y --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    -o DPkg::Lock::Timeout=300 --no-install-recommends \
    "${missing[@]}" >&2 || die "apt-get could not install: ${missing[*]}"
}

# The arguments of the one release build that setup, demo and test share.
release_arguments() {
  local tests=ON package
  for package in libgtest-dev libgmock-dev; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || tests=OFF
  done
  # Warnings are errors where tests run, not in a user's build with a compiler newer than ours.
  echo "-DCMAKE_BUILD_TYPE=Release -DK3POD_TESTS=$tests -DK3POD_BENCH=$tests -DK3POD_WERROR=$tests"
}

# configure DIR [cmake arguments]: once per DIR, and again when the arguments change.
configure() {
  local dir=$1 stamp
  shift
  stamp="$dir/.configured-with"
  if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$*" ]; then
    say "configuring $dir"
    cmake -S "$root" -B "$dir" -G Ninja "$@" >"$dir.configure.log" 2>&1 ||
      { tail -n 30 "$dir.configure.log" >&2; die "configuring failed; the whole log is $dir.configure.log"; }
    grep -E '^-- k3pod' "$dir.configure.log" | sed 's/^-- //' >&2 || true
    mv "$dir.configure.log" "$dir/configure.log"
    printf '%s' "$*" >"$stamp"
  fi
}

# build DIR [targets]: shows ninja's progress on a terminal, plain lines otherwise.
build() {
  local dir=$1
  shift
  if [ -t 2 ]; then
    ninja -C "$dir" "$@" >&2
  else
    say "building $dir"
    ninja --quiet -C "$dir" "$@" >&2
  fi
}
