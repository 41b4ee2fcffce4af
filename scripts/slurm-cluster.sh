#!/usr/bin/env bash
# A real Slurm cluster of four virtual nodes on this one machine, for the tests and to try things out. Debian, as root.
#
#   scripts/slurm-cluster.sh start FOLDER [--accounting]     prints the SLURM_CONF to export
#   scripts/slurm-cluster.sh stop FOLDER                     ends its processes and removes the folder
#
# Each slurmd has a name (in /etc/hosts, where it stays), a port and a UTS namespace of its own, so that `hostname` differs;
# they share the filesystem, as the nodes of a cluster do. Partitions: cpu (node01, node02) and gpu (gpu01, gpu02; their four GPUs are /dev/null).
# Environment: SLURM_PORT (first of about ten ports, 27100), NODE_CPUS (8), NODE_MEMORY_MB (4000), MAX_JOBS (20000);
# NODE_CORES (0.35: what a node really has, by a cgroup of version 1; all of the machine), NODE_AHEAD (seconds by which
# the monotonic clock of a node is ahead, with `node`; 0), NODE_TIMEOUT (seconds until Slurm takes a silent node for lost; 20).
set -euo pipefail

what=${1:-} folder=$(realpath -m "${2:-.}") accounting=${3:-}
port=${SLURM_PORT:-27100} cpus=${NODE_CPUS:-8} memory=${NODE_MEMORY_MB:-4000}
names=(node01 node02 gpu01 gpu02)
export SLURM_CONF=$folder/etc/slurm.conf

say() { echo "$*" >&2; }

wait_for() { # SECONDS COMMAND...: until it succeeds
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $deadline ]; then
            say "gave up waiting for: $*"
            return 1
        fi
        sleep 0.05
    done
}

alive() { # a zombie is not
    local state
    state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1) || true
    [ -n "$state" ] && [ "$state" != Z ]
}

packages() {
    local wanted=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
    [ "$accounting" = --accounting ] && wanted+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core)
    dpkg -s "${wanted[@]}" >/dev/null 2>&1 && return
    say "installing: ${wanted[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get update -qq
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

configuration() {
    mkdir -p "$folder"/{etc,state,spool,log,run,dev}
    chmod 755 "$folder"
    install -d -o munge -g munge -m 755 "$folder/run/munge"
    local track=linuxproc task=none
    if [ -w /sys/fs/cgroup/memory ] && [ -w /sys/fs/cgroup/freezer ]; then
        track=cgroup task=cgroup
        printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup ConstrainRAMSpace=yes ConstrainCores=no >"$folder/etc/cgroup.conf"
    fi
    cat >"$SLURM_CONF" <<EOF
ClusterName=lab
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge/socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/$track
TaskPlugin=task/$task
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
GresTypes=gpu
DefMemPerCPU=256
FirstJobId=$((port * 1000)) # cgroups are named by node, job and step: two clusters with one job id end each other's steps
MaxArraySize=${MAX_ARRAY:-5001}
MaxJobCount=${MAX_JOBS:-20000}
MinJobAge=300
KillWait=5
SlurmdTimeout=${NODE_TIMEOUT:-20}
InactiveLimit=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
EOF
    [ $track = cgroup ] || echo JobAcctGatherParams=OverMemoryKill >>"$SLURM_CONF"
    if [ "$accounting" = --accounting ]; then
        cat >>"$SLURM_CONF" <<EOF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 2))
AccountingStoragePass=$folder/run/munge/socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
EOF
    fi
    : >"$folder/etc/gres.conf"
    local number=0 name gres
    for name in "${names[@]}"; do
        number=$((number + 1)) gres=
        if [[ $name == gpu* ]]; then
            gres=" Gres=gpu:4"
            echo "NodeName=$name Name=gpu File=$folder/dev/gpu[0-3]" >>"$folder/etc/gres.conf"
        fi
        echo "NodeName=$name NodeAddr=127.0.0.1 Port=$((port + 2 + number)) CPUs=$cpus RealMemory=$memory$gres State=UNKNOWN" >>"$SLURM_CONF"
    done
    {
        echo "PartitionName=cpu Nodes=node01,node02 Default=YES MaxTime=2-0 DefaultTime=10 State=UP"
        echo "PartitionName=gpu Nodes=gpu01,gpu02 MaxTime=2-0 DefaultTime=10 State=UP"
        echo "PartitionName=all Nodes=${names[*]} MaxTime=2-0 DefaultTime=10 State=UP" | tr ' ' ',' | sed 's/,Nodes/ Nodes/; s/,MaxTime/ MaxTime/; s/,DefaultTime/ DefaultTime/; s/,State/ State/'
    } >>"$SLURM_CONF"
    for number in 0 1 2 3; do # GPUs need device files
        [ -e "$folder/dev/gpu$number" ] || mknod -m 666 "$folder/dev/gpu$number" c 1 3
    done
}

database() {
    local data=$folder/sql socket=$folder/run/sql.sock
    mkdir -p "$data"
    [ -d "$data/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$data" --auth-root-authentication-method=normal --skip-test-db >"$folder/log/sql-install.log" 2>&1
    setsid mariadbd --no-defaults --user=root --datadir="$data" --skip-networking=0 --bind-address=127.0.0.1 --port=$((port + 9)) --socket="$socket" \
        --pid-file="$folder/run/mariadbd.pid" --innodb-buffer-pool-size=64M --skip-log-bin >"$folder/log/mariadbd.log" 2>&1 </dev/null &
    wait_for 60 mariadb --no-defaults -uroot -S "$socket" -e 'select 1'
    mariadb --no-defaults -uroot -S "$socket" -e "create database if not exists acct; create user if not exists slurm@'127.0.0.1' identified by 'only-here'; grant all on acct.* to slurm@'127.0.0.1'"
    (
        umask 077
        cat >"$folder/etc/slurmdbd.conf" <<EOF
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge/socket
CommunicationParameters=NoInAddrAny
DbdHost=$(hostname)
DbdAddr=127.0.0.1
DbdPort=$((port + 2))
SlurmUser=root
PidFile=$folder/run/slurmdbd.pid
LogFile=$folder/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 9))
StorageUser=slurm
StoragePass=only-here
StorageLoc=acct
EOF
    )
    setsid slurmdbd >/dev/null 2>&1 </dev/null
    wait_for 60 timeout 5 sacctmgr -n show cluster
    sacctmgr -i add cluster lab >/dev/null 2>&1 || true
    sacctmgr -i add qos short >/dev/null 2>&1 || true
    sacctmgr -i modify qos short set MaxWall=00:05:00 >/dev/null
    sacctmgr -i add account lab Description=lab Organization=lab >/dev/null 2>&1 || true
    sacctmgr -i add user root Account=lab QOS=normal,short DefaultQOS=normal >/dev/null 2>&1 || true
}

known() { # slurmd must find its own name
    local name
    for name in "${names[@]}"; do
        grep -q "[[:space:]]$name # benchhouse test cluster$" /etc/hosts || echo "127.0.0.1 $name # benchhouse test cluster" >>/etc/hosts
    done
}

cage() { # NODE: what it may use, apart from all others
    local place=/sys/fs/cgroup/cpu/bench-$$-$1
    if ! mkdir "$place" 2>/dev/null; then
        say "NODE_CORES needs the cpu controller of cgroups, version 1"
        exit 3
    fi
    echo 100000 >"$place/cpu.cfs_period_us"
    awk "BEGIN { printf \"%d\", 100000 * $NODE_CORES }" >"$place/cpu.cfs_quota_us"
    echo 65536 >"$place/cpu.shares" # the machine's own work comes after that of its nodes
    echo "$place" >"$folder/run/cgroup.$1"
}

node() { # start one slurmd
    local ahead=() enter=
    mkdir -p "$folder/spool/$1"
    if [ "${NODE_AHEAD:-0}" -ne 0 ]; then ahead=(--time --monotonic "$NODE_AHEAD" --fork); fi
    if [ -f "$folder/run/cgroup.$1" ]; then enter="echo \$\$ >$(cat "$folder/run/cgroup.$1")/cgroup.procs;"; fi
    setsid unshare -u "${ahead[@]}" sh -c "$enter hostname $1; exec slurmd -N $1" >/dev/null 2>&1 </dev/null
}

start() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "a cluster on one machine needs root on Debian"
        exit 3
    fi
    packages
    configuration
    known
    if ! setpriv --reuid munge --regid munge --clear-groups test -w "$folder/run/munge"; then
        say "the user munge can't reach $folder: choose a folder that everybody may enter"
        exit 3
    fi
    [ -s /etc/munge/munge.key ] || /usr/sbin/mungekey --create
    setsid setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged --socket="$folder/run/munge/socket" --pid-file="$folder/run/munge/munged.pid" \
        --log-file="$folder/run/munge/munged.log" --seed-file="$folder/run/munge/seed" --key-file=/etc/munge/munge.key >/dev/null 2>&1 </dev/null
    [ "$accounting" = --accounting ] && database
    setsid slurmctld >/dev/null 2>&1 </dev/null
    local name
    for name in "${names[@]}"; do
        if [ -n "${NODE_CORES:-}" ]; then cage "$name"; fi
        node "$name"
    done
    wait_for 60 sh -c "[ \$(sinfo -h -N -p all -t idle -o %N | sort -u | wc -l) -eq ${#names[@]} ]"
    echo "$SLURM_CONF"
}

stop() {
    [ -f "$SLURM_CONF" ] || return 0
    timeout 10 scancel --user=root --quiet >/dev/null 2>&1 || true
    local file pid pids=()
    for file in "$folder"/run/slurmd.*.pid "$folder"/run/slurmctld.pid "$folder"/run/slurmdbd.pid "$folder"/run/mariadbd.pid "$folder"/run/munge/munged.pid; do
        [ -f "$file" ] || continue
        pid=$(cat "$file")
        if alive "$pid"; then
            kill "$pid" 2>/dev/null || true
            pids+=("$pid")
        fi
    done
    for pid in "${pids[@]}"; do
        for _ in $(seq 200); do
            alive "$pid" || break
            sleep 0.05
        done
        if alive "$pid"; then kill -9 "$pid" 2>/dev/null || true; fi
    done
    for file in "$folder"/run/cgroup.*; do
        [ -f "$file" ] || continue
        for _ in $(seq 200); do # what its jobs left may still be ending
            rmdir "$(cat "$file")" 2>/dev/null && break
            sleep 0.05
        done
    done
    rm -rf "$folder"
}

case $what in
start) start ;;
stop) stop ;;
node) node "$3" ;; # FOLDER NAME: one that was killed comes back
*)
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
