#!/bin/sh
# Installs what Tern needs from Debian 12's own packages, and nothing that is there already.
#
#   install_dependencies.sh demo   enough to build and to run the demonstration
#   install_dependencies.sh deb    enough to build the Debian packages
#   install_dependencies.sh test   that, and what the tests, fuzzers, lints and benchmarks need
#   install_dependencies.sh full   that, and what `make test-full` has beside
#   install_dependencies.sh torch  what the tests need, and `make test-torch` has beside
#   install_dependencies.sh wheel  enough to build the wheel, and the reference of the Python package
#   install_dependencies.sh aarch64  enough to compile for aarch64 and to run the result
set -eu

demo_packages='build-essential cmake ninja-build pkg-config
  libhwy-dev libboost1.81-dev libexpected-dev libfmt-dev libspdlog-dev libtomlplusplus-dev
  libcli11-dev nlohmann-json3-dev libssl-dev libeigen3-dev libgtest-dev libgmock-dev
  libbenchmark-dev libisal-dev libsystemd-dev prometheus-cpp-dev zlib1g-dev libzstd-dev libdeflate-dev liblz4-dev
  iproute2 procps python3 python3-matplotlib'
deb_packages="$demo_packages
  debhelper git libibverbs-dev lintian man-db"
test_packages="$deb_packages
  git ccache clang clang-format clang-tidy libclang-rt-14-dev lld libgloo-dev openmpi-bin libopenmpi-dev iperf3 python3-numpy python3-pytest python3-venv prometheus
  ibverbs-providers ibverbs-utils perftest rdma-core qemu-system-x86 busybox-static kmod systemd shellcheck qemu-user"
cross_packages='g++-aarch64-linux-gnu qemu-user'
full_packages="$test_packages $cross_packages"
torch_packages="$test_packages ca-certificates curl xz-utils"
wheel_packages="$demo_packages python3-venv"
aarch64_packages="$wheel_packages $cross_packages"

case "${1:-}" in
  demo) packages=$demo_packages ;;
  deb) packages=$deb_packages ;;
  test) packages=$test_packages ;;
  full) packages=$full_packages ;;
  torch) packages=$torch_packages ;;
  wheel) packages=$wheel_packages ;;
  aarch64) packages=$aarch64_packages ;;
  *)
    echo "usage: $0 demo|deb|test|full|torch|wheel|aarch64" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system. Install the equivalents of these yourself; going on:" >&2
  echo $packages >&2
  exit 0
fi

missing=
for package in $packages; do
  # A line for each architecture that it is installed for.
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
    missing="$missing $package"
done
if [ -z "$missing" ]; then
  exit 0
fi

echo "Installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Neither root nor sudo here. As root, run: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
