#!/bin/sh
# Runs a command beside a Soft-RoCE device: verbs without an RDMA card.
#
#   with_rxe.sh [--on INTERFACE] [--address A/PREFIX] [--mtu BYTES] COMMAND ...
#
# Without an interface it makes a dummy one, d0; two processes on its device rxe0 talk to each other.
set -eu
interface=d0
address=10.9.0.1/24
mtu=9000
while :; do
  case "$1" in
    --on) interface=$2 ;;
    --address) address=$2 ;;
    --mtu) mtu=$2 ;;
    *) break ;;
  esac
  shift 2
done
[ -e "/sys/class/net/$interface" ] || ip link add "$interface" type dummy
ip address add "$address" dev "$interface"
ip link set "$interface" up mtu "$mtu"
rdma link add rxe0 type rxe netdev "$interface"
exec "$@"
