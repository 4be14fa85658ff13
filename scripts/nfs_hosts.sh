#!/usr/bin/env bash
# Two hosts with one folder over NFS, to try shortgop between them: `one` serves an ext4 disk by Linux's own NFS server, and
# mounts it over loopback; `two` mounts it over a network. Each is a Linux of its own in user mode, with a page cache of its
# own.
#
#     apt install --no-install-recommends user-mode-linux kmod dropbear-bin openssh-client nfs-kernel-server nfs-common rpcbind
#     scripts/nfs_hosts.sh start FOLDER                      # a new folder
#     scripts/nfs_hosts.sh mount FOLDER [MOUNT_OPTIONS]      # on both, as /mnt/data; anew if it is mounted
#     scripts/nfs_hosts.sh export FOLDER EXPORT_OPTIONS      # what `one` exports it with from now on
#     scripts/nfs_hosts.sh run FOLDER one|two COMMAND...
#     scripts/nfs_hosts.sh kill FOLDER one|two               # as a host that loses its power
#     scripts/nfs_hosts.sh boot FOLDER one|two
#     scripts/nfs_hosts.sh stop FOLDER
#
# On each, `/run/other COMMAND...` runs a command on the other one:
#
#     scripts/nfs_hosts.sh run FOLDER one "python tests/shared/root_race.py --folder /mnt/data --other-host /run/other"
#
# Needs root of a machine with Debian, where it makes a network for them (sgnfs, 10.9.9.0/24), and MEMORY for each
# (2G). They see all files of this machine read only, but have a /tmp, /run, /root, /home and /mnt of their own. Folders
# below those that they shall see too are named in SHARED, with spaces between. DISK is the size of the disk (4G).
set -eu

EXPORT_OPTIONS="rw,no_root_squash,no_subtree_check,sync,fsid=0"

usage() {
    sed -n 's/^#     scripts/usage: scripts/p' "$0" >&2
    exit 2
}

number_of() {
    case $1 in
        one) echo 1 ;;
        two) echo 2 ;;
        *) usage ;;
    esac
}

# What runs as process 1 of both. The kernel's command line says which one it is.
make_init() {
    cat > "$1/init" << END
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
number=\$(sed 's/.*host_number=\([0-9]\).*/\1/' /proc/cmdline)
names=(none one two)
hostname "\${names[\$number]}"
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for each in /dev/shm /tmp /run /root /mnt /var/tmp /var/lib/nfs /home /srv; do mount -t tmpfs tmp "\$each"; done
chmod 1777 /dev/shm /tmp /var/tmp
for shared in $1 ${SHARED:-}; do
    mkdir -p "\$shared"
    mount -t hostfs -o "\$shared,ro" none "\$shared"
done
mkdir -p /run/modules/lib /run/lock /run/rpcbind /root/.ssh
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/nfsdcld
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
chown statd /var/lib/nfs /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/state
ln -s /usr/lib/uml/modules /run/modules/lib/modules
for each in nfs nfsv3 nfsv4 nfsd; do modprobe -d /run/modules "\$each"; done
ip link set lo up
ip address add 10.9.9.\$number/24 dev vec0
ip link set vec0 up
cp /etc/hosts /run/hosts
printf '10.9.9.1 one\n10.9.9.2 two\n' >> /run/hosts
mount --bind /run/hosts /etc/hosts
cp $1/key.pub /root/.ssh/authorized_keys
chmod 711 /root
chmod 700 /root/.ssh
chmod 600 /root/.ssh/authorized_keys
cat > /run/other << OTHER
#!/bin/bash
exec ssh -q -i $1/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@10.9.9.\$((3 - number)) "cd \\\$PWD && \\\$*"
OTHER
chmod +x /run/other
dropbearkey -t ed25519 -f /run/host_key > /dev/null
dropbear -E -s -r /run/host_key -p 22
rpcbind -w
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
rpc.statd
if [ "\$number" = 1 ]; then
    mkdir -p /srv/data
    mount /dev/ubda /srv/data
    chmod 1777 /srv/data
    mount -t nfsd nfsd /proc/fs/nfsd
    exportfs -o "\$(cat $1/export)" '*:/srv/data'
    nfsdcld
    rpc.mountd
    rpc.nfsd 8
fi
touch /run/is-up
while true; do sleep 1; done
END
    chmod +x "$1/init"
}

boot() {
    local folder=$1 name=$2 number disk=()
    number=$(number_of "$name")
    if [ ! -e /sys/class/net/sgnfs ]; then
        ip link add sgnfs type bridge
        ip address add 10.9.9.254/24 dev sgnfs
        ip link set sgnfs up
    fi
    ip link del "sgnfs$number" 2> /dev/null || true
    ip tuntap add dev "sgnfs$number" mode tap
    ip link set "sgnfs$number" master sgnfs up
    if [ "$name" = one ]; then disk=("ubd0=$folder/disk.img"); fi
    TMPDIR=/dev/shm setsid linux "mem=${MEMORY:-2G}" "umid=shortgop-$name" "uml_dir=$folder/uml" \
        rootfstype=hostfs root=/dev/root rootflags=/ ro "init=$folder/init" "host_number=$number" quiet "${disk[@]}" \
        "vec0:transport=tap,ifname=sgnfs$number,depth=64,mac=52:54:00:09:09:0$number" \
        con=null con0=fd:0,fd:1 ssl=null > "$folder/$name.log" 2>&1 < /dev/null &
    echo $! > "$folder/$name.pid"
    for _ in $(seq 20); do
        run "$folder" "$name" test -e /run/is-up 2> /dev/null && return
        sleep 1
    done
    echo "host $name does not come up; see $folder/$name.log" >&2
    exit 1
}

run() {
    local folder=$1 number
    number=$(number_of "$2")
    shift 2
    ssh -q -i "$folder/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=2 \
        "root@10.9.9.$number" "$@"
}

start() {
    local folder=$1
    if [ -e "$folder" ]; then
        echo "$folder is there already; give a folder that is not" >&2
        exit 2
    fi
    mkdir -p "$folder/uml"
    make_init "$folder"
    echo "$EXPORT_OPTIONS" > "$folder/export"
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
    truncate -s "${DISK:-4G}" "$folder/disk.img"
    mkfs.ext4 -q -F "$folder/disk.img"
    boot "$folder" one
    boot "$folder" two
}

mount_both() {
    local path=/srv/data
    # Version 4 counts paths from the folder that is exported with fsid=0.
    case $2 in
        *vers=4*) path=/ ;;
    esac
    for name in one two; do
        run "$1" "$name" "while mountpoint -q /mnt/data; do umount /mnt/data || exit 1; done
            mkdir -p /mnt/data && mount -t nfs -o '$2' 10.9.9.1:$path /mnt/data && grep ' /mnt/data ' /proc/mounts"
    done
}

kill_host() {
    kill -9 -- "-$(cat "$1/$2.pid")"
}

stop() {
    for name in one two; do
        kill_host "$1" "$name" 2> /dev/null || true
        ip link del "sgnfs$(number_of "$name")" 2> /dev/null || true
    done
    ip link del sgnfs 2> /dev/null || true
    rm -rf "$1"
}

[ $# -ge 2 ] || usage
command=$1
folder=$(realpath -m "$2")
shift 2
case $command in
    start) start "$folder" ;;
    mount) mount_both "$folder" "${1:-vers=4.2}" ;;
    export) run "$folder" one "exportfs -ua && exportfs -o '$1' '*:/srv/data'" ;;
    run) run "$folder" "$@" ;;
    kill) kill_host "$folder" "$1" ;;
    boot) boot "$folder" "$1" ;;
    stop) stop "$folder" ;;
    *) usage ;;
esac
