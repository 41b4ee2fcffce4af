#!/usr/bin/env bash
# A real Kubernetes of two nodes on this one machine, for the tests and to try things out. Debian 12, as root, cgroups of version 1.
#
#   scripts/kubernetes-cluster.sh install                  build it once (8 CPU minutes, 430 MB), in the cache of the tests
#   scripts/kubernetes-cluster.sh start FOLDER             prints the KUBECONFIG to export; kubectl is FOLDER/bin/kubectl
#   scripts/kubernetes-cluster.sh image FOLDER NAME ROOT   both nodes get the image localhost/NAME, made of the folder ROOT
#   scripts/kubernetes-cluster.sh status FOLDER            its processes, nodes and pods
#   scripts/kubernetes-cluster.sh crash FOLDER NODE        kills a node with all that runs on it, as when the power goes
#   scripts/kubernetes-cluster.sh revive FOLDER NODE       and brings it back
#   scripts/kubernetes-cluster.sh daemon FOLDER NAME       one that was killed comes back: etcd, apiserver, controllers, scheduler,
#                                                          kubelet-NODE; process ids are in FOLDER/run
#   scripts/kubernetes-cluster.sh stop FOLDER              ends its processes and removes the folder
#
# Debian's source package of 1.20.2 is built: later ones hold kubectl only. So CronJob is batch/v1beta1, and Indexed and suspended
# Jobs are not known. Nothing gets installed on the machine. There is no kube-proxy and no DNS: pods reach each other and the API by
# address. Each node offers all cores, and half of the memory. Pods use localhost/python:3.11 (python3, a shell; no registry).
# Exit code 3: it can't be had here, and why. Environment: BENCH_TEST_CACHE (~/.cache/benchhouse-tests).
set -euo pipefail

what=${1:-} folder=$(realpath -m "${2:-.}") here=$(dirname "$(realpath "$0")") self=$(realpath "$0")
version=1.20.2
prefix=${BENCH_TEST_CACHE:-$HOME/.cache/benchhouse-tests}/kubernetes
nodes=(node1 node2)
own_places=(/run /var/lib /var/log) # each node has its own: containerd and the kubelet write to fixed names below them

say() { echo "$*" >&2; }

refuse() {
    say "no Kubernetes here: $*"
    exit 3
}

wait_for() { # SECONDS COMMAND...: until it succeeds
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $deadline ]; then
            say "gave up waiting for: $*; logs are in $folder/log"
            return 1
        fi
        sleep 0.2
    done
}

possible() {
    local tool controller place
    if [ "$(id -u)" -ne 0 ]; then refuse "a cluster on one machine needs root"; fi
    case $(uname -m) in x86_64 | aarch64) ;; *) refuse "it is built for x86_64 and aarch64, and this is $(uname -m)" ;; esac
    if ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then refuse "its source is a package of Debian 12"; fi
    for controller in cpu cpuacct cpuset devices freezer memory pids; do
        if [ ! -w /sys/fs/cgroup/$controller ]; then refuse "this version wants cgroups of version 1, and there is no /sys/fs/cgroup/$controller"; fi
    done
    for tool in apt-get dpkg-deb python3 ip openssl unshare nsenter flock; do
        command -v $tool >/dev/null || refuse "there is no $tool; scripts/install-test-deps.sh brings it"
    done
    for place in "${own_places[@]}"; do
        if [[ $folder/ == "$place"/* || $prefix/ == "$place"/* ]]; then refuse "$folder and $prefix must not be below $place: nodes have their own"; fi
    done
    if ! unshare --mount true 2>/dev/null; then refuse "root may not make mount namespaces here"; fi
}

# -- the build --------------------------------------------------------------------------------------------------------

own_apt() { # apt with lists and archives below $PWD: the machine's mirrors and keys, with source packages
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/sources" -o Dir::State::lists="$PWD/lists" \
        -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

fetch() {
    mkdir -p sources lists/partial cache/archives/partial
    sed 's/^Types: deb$/Types: deb deb-src/' /etc/apt/sources.list.d/*.sources >sources/all.sources 2>/dev/null || true
    sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list >sources/all.list 2>/dev/null || true
    own_apt update
    mkdir packages compiler
    (
        cd packages
        mkdir -p sources && cp ../sources/* sources && ln -s ../lists ../cache .
        own_apt download etcd-server containerd runc containernetworking-plugins kubernetes-client \
            golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev
    )
    local file
    for file in packages/golang-*.deb; do dpkg-deb -x "$file" compiler && rm "$file"; done
    for file in packages/*.deb; do dpkg-deb -x "$file" programs; done
    own_apt source --download-only kubernetes 2>/dev/null
}

make_image() { # python3 with all that it needs, unpacked and not configured
    local file
    : >none-installed
    mkdir -p closure/partial
    own_apt -o Dir::State::status="$PWD/none-installed" -o Dir::Cache::archives="$PWD/closure" -y --no-install-recommends \
        --download-only install python3 coreutils dash grep sed >/dev/null
    for file in closure/*.deb; do dpkg-deb -x "$file" root; done
    rm -rf root/usr/share/{doc,man,locale,info}
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >root/etc/passwd
    python3 "$here/image_archive.py" root "$1" "python:3.11=python3" "pause:1=sleep infinity" # a pause holds a pod's namespaces
}

compile() { # DESTINATION: the servers, as this release is built: in a GOPATH, without modules
    local go=$PWD/compiler/usr/lib/go-1.19 source=$PWD/gopath/src/k8s.io/kubernetes flags="" name
    mkdir -p "$(dirname "$source")"
    dpkg-source --no-check -x kubernetes_*.dsc "$source" >/dev/null 2>&1
    # The vendored reflect2 looks into Go's maps in a way that crashes with this compiler, at the first custom object.
    rm -rf "$source/vendor/github.com/modern-go/reflect2"
    cp -r compiler/usr/share/gocode/src/github.com/modern-go/reflect2 "$source/vendor/github.com/modern-go/"
    export GOROOT=$go GOPATH=$PWD/gopath GOCACHE=$PWD/gocache GO111MODULE=off CGO_ENABLED=0 HOME=$PWD PATH=$go/bin:$PATH
    local generator=$PWD/openapi-gen
    cd "$source"
    if [ ! -s pkg/generated/openapi/zz_generated.openapi.go ]; then # Debian leaves it out, as it is generated
        go build -o "$generator" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
        (cd staging/src && grep -rlE '^// \+k8s:openapi-gen=' --include='*.go' . | grep -vE '_test\.go$|example|sample-' |
            xargs -n1 dirname | sed 's|^\./||' | sort -u | paste -sd,) >"$HOME/openapi-packages"
        "$generator" -i "$(cat "$HOME/openapi-packages")" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
            -h hack/boilerplate/boilerplate.generatego.txt -r /dev/null
    fi
    for name in component-base/version client-go/pkg/version; do
        name=k8s.io/kubernetes/vendor/k8s.io/$name
        flags+=" -X $name.gitVersion=v$version -X $name.gitMajor=1 -X $name.gitMinor=20"
    done
    # Without clouds and Docker there is half as much to compile.
    go build -tags 'providerless dockerless' -ldflags "-s -w$flags" -o "$1/" \
        ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubelet
}

install() {
    [ "$(cat "$prefix/version" 2>/dev/null)" = "$version" ] && return # no lock: it appears when it is whole
    possible
    mkdir -p "$(dirname "$prefix")"
    exec 9>"$prefix.lock"
    flock 9
    [ "$(cat "$prefix/version" 2>/dev/null)" = "$version" ] && return
    say "building Kubernetes $version, some minutes"
    local made=$prefix.new work=$prefix.work
    if [ -e "$work" ]; then chmod -R u+w "$work"; fi # Go leaves folders that are read-only
    rm -rf "$made" "$work"
    mkdir -p "$made/bin" "$work"
    cd "$work"
    fetch
    make_image "$made/image.tar"
    cp programs/usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr,kubectl} programs/usr/sbin/runc "$made/bin/"
    cp -r programs/usr/lib/cni "$made/cni"
    (compile "$made/bin")
    echo $version >"$made/version"
    cd /
    rm -rf "$prefix"
    mv "$made" "$prefix"
    chmod -R u+w "$work"
    rm -rf "$work"
    say "built in $SECONDS s"
}

# -- a cluster --------------------------------------------------------------------------------------------------------

# Each has a number, and by it a bridge, a cgroup and addresses of its own, which no other machine can reach: 10.(200+N).0.1 is the
# pods' gateway, .0.2 and .0.3 are the nodes, .1.1 is the API under the address of its Service. etcd is on 127.77.N.1.
numbered() {
    number=$(cat "$folder/run/number" 2>/dev/null) || {
        say "no cluster was started in $folder"
        exit 2
    }
    bridge=bhk$number net=10.$((200 + number)) etcd=127.77.$number.1
    PATH=$prefix/bin:$PATH
}

kube() { kubectl --kubeconfig "$folder/kubeconfig" "$@"; }

certificate() { # NAME SUBJECT [OTHER NAMES]
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" \
        -extfile <(echo "extendedKeyUsage=serverAuth,clientAuth" && if [ -n "${3:-}" ]; then echo "subjectAltName=$3"; fi) 2>/dev/null
}

kubeconfig() { # USER FILE
    cat >"$2" <<EOC
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://$net.1.1", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: lab, context: {cluster: lab, user: $1}}]
current-context: lab
EOC
}

identities() (
    umask 077
    mkdir -p "$folder/pki"
    cd "$folder/pki"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=lab-ca -keyout ca.key -out ca.crt 2>/dev/null
    openssl genrsa -out accounts.key 2048 2>/dev/null
    openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null
    certificate server /CN=server "IP:$net.1.1,IP:$etcd,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    certificate admin /O=system:masters/CN=admin
    kubeconfig admin "$folder/kubeconfig"
    local name address=2
    for name in "${nodes[@]}"; do
        certificate "$name" "/O=system:nodes/CN=system:node:$name" "IP:$net.0.$address,DNS:$name"
        kubeconfig "$name" "$name.conf"
        address=$((address + 1))
    done
)

network() {
    ip addr add "$net.0.1/24" dev "$bridge"
    ip addr add "$net.1.1/32" dev "$bridge"
    local address=2
    for _ in "${nodes[@]}"; do
        ip addr add "$net.0.$address/32" dev "$bridge"
        address=$((address + 1))
    done
    ip link set "$bridge" up
}

cgroups() { # for pods a tree a node in every hierarchy; daemons are found and counted by theirs
    local hierarchy place file
    for hierarchy in /sys/fs/cgroup/*/; do
        if [ -e "$hierarchy/cgroup.controllers" ]; then continue; fi
        for place in "" "${nodes[@]}" daemons daemons/control "${nodes[@]/#/daemons/}"; do
            mkdir -p "$hierarchy$bridge/$place"
            for file in cpuset.mems cpuset.cpus; do
                if [ -e "$hierarchy$file" ]; then cat "$hierarchy$file" >"$hierarchy$bridge/$place/$file"; fi
            done
        done
    done
}

node_files() { # NODE ADDRESS
    local home=$folder/$1 memory
    mkdir -p "$home/cni"
    : >"$home/resolv.conf"
    memory=$(awk '/MemTotal/ { printf "%d", $2 / 2 }' /proc/meminfo)
    cat >"$home/cni/bridge.conflist" <<EOC
{"cniVersion": "0.4.0", "name": "$bridge", "plugins": [{"type": "bridge", "bridge": "$bridge", "ipam": {
  "type": "host-local", "dataDir": "$folder/addresses", "routes": [{"dst": "0.0.0.0/0"}],
  "ranges": [[{"subnet": "$net.0.0/24", "rangeStart": "$net.0.20", "gateway": "$net.0.1"}]]}}]}
EOC
    cat >"$home/containerd.toml" <<EOC
version = 2
root = "$home/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # root of a small machine may not lower it
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$prefix/cni"
  conf_dir = "$home/cni"
EOC
    cat >"$home/kubelet.yaml" <<EOC
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $2
healthzBindAddress: $2
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $folder/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $folder/pki/$1.crt
tlsPrivateKeyFile: $folder/pki/$1.key
cgroupRoot: /$bridge/$1
failSwapOn: false
resolvConf: $home/resolv.conf
makeIPTablesUtilChains: false # there are no Services
oomScoreAdj: 0
volumePluginDir: $folder/plugins
imageGCHighThresholdPercent: 100 # no registry has them
evictionHard: {memory.available: 100Mi}
systemReserved: {memory: ${memory}Ki}
nodeLeaseDurationSeconds: 20
volumeStatsAggPeriod: 10m
EOC
}

audit_policy() { # requests of people and of what is tested are kept in log/requests.jsonl, those of the cluster itself are not
    cat >"$folder/audit.yaml" <<'EOC'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ["system:nodes", "system:serviceaccounts:kube-system", "system:unauthenticated"]}
  - {level: None, users: ["system:apiserver"]}
  - {level: Metadata}
EOC
}

launch() { # NAME CGROUP COMMAND...
    local name=$1 group=/sys/fs/cgroup
    (
        echo "$BASHPID" >"$group/pids/$bridge/daemons/$2/cgroup.procs"
        echo "$BASHPID" >"$group/cpuacct/$bridge/daemons/$2/cgroup.procs"
        shift 2
        exec setsid "$@" </dev/null >>"$folder/log/$name.log" 2>&1 9>&-
    ) &
    echo $! >"$folder/run/$name.pid" # whole when this returns
}

address_of() {
    local place
    for place in "${!nodes[@]}"; do
        if [ "${nodes[$place]}" = "$1" ]; then echo "$net.0.$((place + 2))"; fi
    done
}

start_daemon() { # NAME
    local pki=$folder/pki node=${1#*-}
    case $1 in
    etcd)
        # Raft's clock ticks a tenth as often as usual: there is nobody to elect.
        ETCD_UNSUPPORTED_ARCH=arm64 launch etcd control etcd --data-dir "$folder/etcd" --heartbeat-interval 1000 --election-timeout 10000 \
            --listen-client-urls "https://$etcd:2379" --advertise-client-urls "https://$etcd:2379" \
            --listen-peer-urls "http://$etcd:2380" --initial-advertise-peer-urls "http://$etcd:2380" --initial-cluster "default=http://$etcd:2380" \
            --cert-file "$pki/server.crt" --key-file "$pki/server.key" --client-cert-auth --trusted-ca-file "$pki/ca.crt"
        ;;
    apiserver)
        launch apiserver control kube-apiserver --bind-address "$net.1.1" --secure-port 443 --advertise-address "$net.1.1" \
            --service-cluster-ip-range "$net.1.0/24" --etcd-servers "https://$etcd:2379" --etcd-cafile "$pki/ca.crt" \
            --etcd-certfile "$pki/admin.crt" --etcd-keyfile "$pki/admin.key" --client-ca-file "$pki/ca.crt" \
            --tls-cert-file "$pki/server.crt" --tls-private-key-file "$pki/server.key" --authorization-mode Node,RBAC \
            --enable-admission-plugins NodeRestriction --allow-privileged --service-account-issuer https://kubernetes.default.svc \
            --service-account-signing-key-file "$pki/accounts.key" --service-account-key-file "$pki/accounts.pub" \
            --kubelet-certificate-authority "$pki/ca.crt" --kubelet-client-certificate "$pki/admin.crt" --kubelet-client-key "$pki/admin.key" \
            --kubelet-preferred-address-types InternalIP --feature-gates TTLAfterFinished=true \
            --audit-policy-file "$folder/audit.yaml" --audit-log-path "$folder/log/requests.jsonl" \
            --default-not-ready-toleration-seconds 10 --default-unreachable-toleration-seconds 10
        ;;
    controllers)
        launch controllers control kube-controller-manager --kubeconfig "$folder/kubeconfig" --use-service-account-credentials \
            --service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt" --leader-elect=false \
            --bind-address "$etcd" --port 0 --secure-port 10257 --flex-volume-plugin-dir "$folder/plugins" \
            --node-monitor-grace-period 20s --pvclaimbinder-sync-period 1s --feature-gates TTLAfterFinished=true,CronJobControllerV2=true
        ;;
    scheduler)
        launch scheduler control kube-scheduler --kubeconfig "$folder/kubeconfig" --leader-elect=false --bind-address "$etcd" --port 0 --secure-port 10259
        ;;
    containerd-*)
        launch "$1" "$node" unshare --mount --propagation slave "$self" _containerd "$folder" "$node"
        ;;
    kubelet-*) # in the mount namespace of its containerd
        launch "$1" "$node" nsenter --mount="/proc/$(cat "$folder/run/containerd-$node.pid")/ns/mnt" kubelet --config "$folder/$node/kubelet.yaml" \
            --kubeconfig "$pki/$node.conf" --hostname-override "$node" --node-ip "$(address_of "$node")" --housekeeping-interval 30s \
            --container-runtime remote --container-runtime-endpoint unix:///run/containerd/containerd.sock
        ;;
    *)
        say "no daemon $1: etcd, apiserver, controllers, scheduler or kubelet-NODE"
        exit 2
        ;;
    esac
}

_containerd() { # NODE: what it mounts, and the fixed places that it and its kubelet write to, are its own and end with it
    local path
    for path in "${own_places[@]}"; do
        mkdir -p "$folder/$1$path"
        mount --bind "$folder/$1$path" "$path"
    done
    exec containerd --config "$folder/$1/containerd.toml"
}

node_ctr() { # NODE ARGUMENTS...
    (cd "$folder/$1" && shift && exec ctr -a run/containerd/containerd.sock -n k8s.io "$@")
}

settings="vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes"

start() {
    possible
    install
    if [ -e "$folder/run/number" ]; then
        say "there is a cluster in $folder already"
        exit 2
    fi
    local number=0 setting node
    mkdir -p "$folder"/{run,log,plugins,etcd}
    chmod 700 "$folder/etcd"
    until ip link add "bhk$number" type bridge 2>/dev/null; do # who makes the bridge has the number
        number=$((number + 1))
        if [ $number -ge 50 ]; then refuse "no bridge could be made: $(ip link add bhk0 type bridge 2>&1)"; fi
    done
    echo $number >"$folder/run/number"
    numbered
    trap '[ $? -eq 0 ] || halt' EXIT # its logs stay
    for setting in $settings; do echo "$setting $(cat "/proc/sys/${setting//.//}")"; done >"$folder/run/settings" # a kubelet sets them
    ln -sfn "$prefix/bin" "$folder/bin"
    network
    cgroups
    identities
    audit_policy
    start_daemon etcd
    start_daemon apiserver
    for node in "${nodes[@]}"; do
        node_files "$node" "$(address_of "$node")"
        start_daemon "containerd-$node"
    done
    for node in "${nodes[@]}"; do wait_for 120 node_ctr "$node" images import "$prefix/image.tar"; done
    wait_for 180 kube get --raw /readyz
    start_daemon controllers
    start_daemon scheduler
    for node in "${nodes[@]}"; do start_daemon "kubelet-$node"; done
    kube apply -f - >/dev/null <<'EOC'
apiVersion: storage.k8s.io/v1
kind: StorageClass
provisioner: kubernetes.io/no-provisioner
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
EOC
    for node in "${nodes[@]}"; do wait_for 180 kube wait --for=condition=Ready "node/$node" --timeout=60s; done
    wait_for 60 kube get serviceaccount default
    echo "$folder/kubeconfig"
}

pids() { # [PLACE]: of the whole cluster, or below a place of its cgroup
    find "/sys/fs/cgroup/pids/$bridge/${1:-}" -name cgroup.procs -exec cat {} + 2>/dev/null || true
}

kill_all() { # PLACE...
    local place pid left
    for _ in $(seq 200); do
        left=
        for place in "$@"; do
            for pid in $(pids "$place"); do
                left=$pid
                kill -9 "$pid" 2>/dev/null || true
            done
        done
        if [ -z "$left" ]; then return; fi
        sleep 0.05
    done
    say "a process does not end: $left"
    return 1
}

crash() { # NODE
    kill_all "$1" "daemons/$1"
    rm -rf "${folder:?}/$1/run"
}

revive() { # NODE
    start_daemon "containerd-$1"
    wait_for 60 node_ctr "$1" version
    start_daemon "kubelet-$1"
}

image() { # NAME ROOT
    local node
    python3 "$here/image_archive.py" "$2" "$folder/image.tar" "$1=sh"
    for node in "${nodes[@]}"; do node_ctr "$node" images import "$folder/image.tar"; done
    rm -f "$folder/image.tar"
}

status() {
    local file running
    running=$(pids)
    for file in "$folder"/run/*.pid; do
        echo "$(basename "$file" .pid) $(grep -qx "$(cat "$file")" <<<"$running" && cat "$file" || echo "is not running")"
    done
    kube get nodes
    kube get pods --all-namespaces
}

halt() {
    kill_all ""
    ip link del "$bridge" 2>/dev/null || true
    local place setting value
    for place in /sys/fs/cgroup/*/"$bridge"; do
        if [ -d "$place" ]; then wait_for 10 find "$place" -depth -type d -exec rmdir {} +; fi
    done
    while read -r setting value; do echo "$value" >"/proc/sys/${setting//.//}"; done <"$folder/run/settings"
}

stop() {
    [ -f "$folder/run/number" ] || return 0
    numbered
    halt
    rm -rf "$folder"
}

case $what in
install) install ;;
start) start ;;
stop) stop ;;
image | status | crash | revive | daemon | _containerd)
    numbered
    shift 2
    if [ "$what" = daemon ]; then what=start_daemon; fi
    $what "$@"
    ;;
*)
    sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
