#!/usr/bin/env bash
# Start or stop the Slurm cluster of slurm.conf, which lies beside this file. All that it makes is in cluster/.
#   bash cluster.sh start | stop
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export SLURM_CONF=$PWD/slurm.conf PATH=$PATH:/usr/sbin:/sbin

die() { echo "cluster.sh: $*" >&2; exit 1; }

wait_for() { # SECONDS COMMAND...: until it succeeds
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || die "gave up waiting for: $*; look at $PWD/cluster/log"
        sleep 0.1
    done
}

is() { # PID PROGRAM: it lives; a zombie has no executable, and a number may be another program's by now
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ] && readlink "/proc/$1/exe" >/dev/null
}

alive() { # PIDFILE PROGRAM
    is "$(cat "$1" 2>/dev/null || echo none)" "$2"
}

all_idle() {
    [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" -eq "$(grep -c ^NodeName= slurm.conf)" ]
}

start() {
    local name
    for name in munged mungekey slurmctld slurmd sinfo; do
        command -v $name >/dev/null || die "$name is missing: apt-get install munge slurmctld slurmd slurm-client"
    done
    mkdir -p cluster/{state,spool,log,run}
    chmod 700 cluster/run
    [ -s cluster/run/munge.key ] || mungekey --create --keyfile "$PWD/cluster/run/munge.key"
    # --force: the socket is for one user, so its folder need not be open to all
    alive cluster/run/munged.pid munged || setsid munged --force --key-file="$PWD/cluster/run/munge.key" --socket="$PWD/cluster/run/munge.socket" \
        --pid-file="$PWD/cluster/run/munged.pid" --log-file="$PWD/cluster/run/munged.log" --seed-file="$PWD/cluster/run/munged.seed" </dev/null
    alive cluster/run/slurmctld.pid slurmctld || setsid slurmctld </dev/null
    for name in $(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' slurm.conf); do
        mkdir -p "cluster/spool/$name"
        alive "cluster/run/slurmd.$name.pid" slurmd || setsid slurmd -N "$name" </dev/null
    done
    wait_for 60 all_idle
    sinfo
}

end() { # PIDFILE PROGRAM
    local pid
    pid=$(cat "$1" 2>/dev/null || echo none)
    is "$pid" "$2" || return 0
    kill "$pid"
    for _ in $(seq 100); do
        is "$pid" "$2" || return 0
        sleep 0.1
    done
    kill -9 "$pid"
}

stop() {
    [ -d cluster ] || return 0
    timeout 10 scancel --user="$(id -un)" --quiet 2>/dev/null || true
    local file
    for file in cluster/run/slurmd.*.pid; do end "$file" slurmd; done
    end cluster/run/slurmctld.pid slurmctld
    end cluster/run/munged.pid munged
    rm -rf cluster
}

case ${1:-} in
start) start ;;
stop) stop ;;
*) die "start or stop?" ;;
esac
