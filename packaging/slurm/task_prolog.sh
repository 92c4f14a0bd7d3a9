#!/bin/sh
# Slurm's TaskProlog on nodes with a ternd of the site: tells every task where the daemon is. Slurm
# puts what is printed as `export NAME=VALUE` into the task's environment.
#
#   slurm.conf:  TaskProlog=/etc/slurm/tern_task_prolog.sh
set -u
# A job that brings its own daemon has named it.
if [ -z "${TERN_SOCKET:-}" ] && [ -S /run/tern/ternd.sock ]; then
  echo 'export TERN_SOCKET=/run/tern/ternd.sock'
fi
# A requeued job keeps its number, and with this label its codec state.
if [ -z "${TERN_JOB:-}" ]; then
  echo "export TERN_JOB=slurm-${SLURM_JOB_ID:-unknown}"
fi
