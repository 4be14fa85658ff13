#!/usr/bin/env bash
# Machines on this one, to try what is started on several: a Slurm cluster for jobs/slurm/prep.sbatch, or machines that
# are reached by ssh for jobs/ray_up/machines.yaml. Each has a network, processes, a host name and a /tmp of its own
# (namespaces of Linux), and all see this machine's files.
#
#     apt install --no-install-recommends slurm-wlm munge       # for slurm
#     apt install --no-install-recommends openssh-server rsync  # for ssh
#     scripts/nodes.sh start FOLDER slurm|ssh [NODES]     # a new folder; three, n1 to n3, 10.9.8.1 to 10.9.8.3
#     scripts/nodes.sh run FOLDER COMMAND...              # with sbatch, squeue, scontrol of this cluster
#     scripts/nodes.sh kill FOLDER n2                     # as a machine that loses its power
#     scripts/nodes.sh boot FOLDER n2
#     scripts/nodes.sh stop FOLDER
#
# With ssh, FOLDER/machines.yaml is the file for `ray up` with their addresses, FOLDER/key, and shortgop's environment
# where SHORTGOP says, or at /opt/shortgop. What a machine writes into its home is its own. Needs root of a machine
# with Debian, where it makes a network (sgnodes, 10.9.8.0/24), and /etc/hosts gets their names. A node of Slurm says that
# it has the CPUs of this machine, or as many as CPUS names: CPUS="1 2 4" are one for n1, two for n2, and four for n3 and
# all that follow.
#
# tests/shared/nodes_check.py runs all of docs/cluster.md on them that such machines can run.
set -eu

ROOT=$(realpath "$(dirname "$0")/..")

usage() {
    sed -n 's/^#     scripts/usage: scripts/p' "$0" >&2
    exit 2
}

# What runs as process 1 of a node.
node_main() {
    local folder=$1 name=$2 address=$3
    mount -t tmpfs tmp /tmp
    chmod 1777 /tmp
    # Of Ray's, which is found by names that are the same on all.
    mount -t tmpfs shm /dev/shm
    hostname "$name"
    ip link set lo up
    until ip address add "$address/24" dev eth0 2> /dev/null; do sleep 0.05; done
    ip link set eth0 up
    ip route add default via 10.9.8.254
    if [ -e "$folder/slurm.conf" ]; then
        exec env SLURM_CONF="$folder/slurm.conf" slurmd -D -N "$name" -f "$folder/slurm.conf"
    fi
    # What a machine writes into its home is there when it is booted again.
    mkdir -p "$folder/$name.home" "$folder/$name.work"
    mount -t overlay home -o "lowerdir=$HOME,upperdir=$folder/$name.home,workdir=$folder/$name.work" "$HOME"
    mkdir -p /scratch
    mount -t tmpfs scratch /scratch
    exec /usr/sbin/sshd -D -e -h "$folder/key" -o "AuthorizedKeysFile=$folder/key.pub" -o StrictModes=no \
        -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes
}

is_up() {
    if [ -e "$1/slurm.conf" ]; then
        run "$1" scontrol update "nodename=$2" state=resume 2> /dev/null || true
        # Slurm marks a state that it does not trust yet.
        case $(run "$1" sinfo -h -n "$2" -o %T) in idle | allocated | mixed) ;; *) false ;; esac
    else
        ssh -q -i "$1/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=2 "$2" true
    fi
}

boot() {
    local folder=$1 name=$2 number=${2#n} pid
    ip link del "sgnodes$number" 2> /dev/null || true
    setsid unshare --net --pid --fork --kill-child --mount-proc --mount --uts \
        "$0" node "$folder" "$name" "10.9.8.$number" > "$folder/$name.log" 2>&1 < /dev/null &
    pid=$!
    echo "$pid" > "$folder/$name.pid"
    # Until it has a network of its own, it has this machine's.
    until [ -n "$(pgrep -P "$pid")" ]; do sleep 0.05; done
    ip link add "sgnodes$number" type veth peer name eth0 netns "$(pgrep -P "$pid")"
    ip link set "sgnodes$number" master sgnodes up
    for _ in $(seq 60); do
        is_up "$folder" "$name" && return
        sleep 1
    done
    echo "node $name does not come up; see $folder/$name.log" >&2
    exit 1
}

run() {
    local folder=$1
    shift
    SLURM_CONF="$folder/slurm.conf" "$@"
}

start_slurm() {
    local folder=$1 nodes=$2 number cpus named
    mkdir "$folder/state"
    cat > "$folder/slurm.conf" << END
ClusterName=shortgop
SlurmctldHost=$(hostname -s)(10.9.8.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=3600
SlurmdParameters=config_overrides
END
    read -ra named <<< "${CPUS:-$(nproc)}"
    for number in $(seq "$nodes"); do
        cpus=${named[number - 1]:-${named[-1]}}
        echo "NodeName=n$number NodeAddr=10.9.8.$number CPUs=$cpus RealMemory=4000" >> "$folder/slurm.conf"
    done
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >> "$folder/slurm.conf"
    pgrep -x munged > /dev/null || {
        [ -e /etc/munge/munge.key ] || mungekey
        mkdir -p /run/munge
        chown munge /run/munge
        setpriv --reuid=munge --regid=munge --clear-groups munged
    }
    run "$folder" slurmctld -f "$folder/slurm.conf"
}

start_ssh() {
    local folder=$1 nodes=$2
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
    mkdir -p /run/sshd
    python3 - "$ROOT/jobs/ray_up/machines.yaml" "$folder" "$nodes" "${SHORTGOP:-/opt/shortgop}" << 'PYTHON'
import pathlib
import re
import sys

text, folder, nodes = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2]), int(sys.argv[3])
text = text.replace("/opt/shortgop", sys.argv[4])
workers = "".join(f"    - 10.9.8.{number}\n" for number in range(2, nodes + 1))
text = re.sub(r"(worker_ips:\n)(    - .*\n)+", rf"\g<1>{workers}", text)
text = re.sub(r"head_ip: .*", "head_ip: 10.9.8.1", text)
text = re.sub(r"min_workers: &workers .*", f"min_workers: &workers {nodes - 1}", text)
text = re.sub(r"ssh_user: .*", "ssh_user: root", text)
text = re.sub(r"ssh_private_key: .*", f"ssh_private_key: {folder}/key", text)
(folder / "machines.yaml").write_text(text)
PYTHON
}

start() {
    local folder=$1 kind=$2 nodes=$3 number
    case $kind in slurm | ssh) ;; *) usage ;; esac
    if [ -e "$folder" ]; then
        echo "$folder is there already; give a folder that is not" >&2
        exit 2
    fi
    mkdir -p "$folder"
    ip link add sgnodes type bridge
    ip address add 10.9.8.254/24 dev sgnodes
    ip link set sgnodes up
    for number in $(seq "$nodes"); do
        # Only what is not there yet: this is the machine's own file.
        grep -q "^10.9.8.$number n$number\$" /etc/hosts || echo "10.9.8.$number n$number" >> /etc/hosts
    done
    "start_$kind" "$folder" "$nodes"
    for number in $(seq "$nodes"); do boot "$folder" "n$number"; done
}

kill_node() {
    # Its first process takes all others along.
    kill -9 -- "$(pgrep -P "$(cat "$1/$2.pid")")"
}

stop() {
    local folder=$1 file name
    for file in "$folder"/n*.pid; do
        name=$(basename "$file" .pid)
        kill_node "$folder" "$name" 2> /dev/null || true
        ip link del "sgnodes${name#n}" 2> /dev/null || true
        sed -i "/^10\.9\.8\.[0-9]* $name\$/d" /etc/hosts
    done
    if [ -e "$folder/slurmctld.pid" ]; then kill "$(cat "$folder/slurmctld.pid")" || true; fi
    ip link del sgnodes 2> /dev/null || true
    # Slurm's controller saves its state when it ends.
    for _ in $(seq 20); do
        rm -rf "$folder" 2> /dev/null && return
        sleep 0.5
    done
    rm -rf "$folder"
}

[ $# -ge 2 ] || usage
command=$1
folder=$(realpath -m "$2")
shift 2
case $command in
    start) start "$folder" "${1:-}" "${2:-3}" ;;
    run) run "$folder" "$@" ;;
    kill) kill_node "$folder" "$1" ;;
    boot) boot "$folder" "$1" ;;
    node) node_main "$folder" "$@" ;;
    stop) stop "$folder" ;;
    *) usage ;;
esac
