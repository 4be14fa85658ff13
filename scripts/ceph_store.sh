#!/usr/bin/env bash
# A Ceph of one machine, to try shortgop against its S3 gateway: one monitor, one OSD that keeps all in memory, one
# gateway. Nothing of it is safe or lasting.
#
#     apt install --no-install-recommends radosgw ceph-mon ceph-osd ceph-common
#     scripts/ceph_store.sh start FOLDER [GIB]    # a new folder; how much it may hold, 4 by default
#     scripts/ceph_store.sh stop FOLDER
#
# `start` ends once the gateway answers, and prints the settings that point s3:// there.
set -eu

usage() {
    echo "usage: $0 start FOLDER [GIB] | stop FOLDER" >&2
    exit 2
}

start() {
    local gib=${2:-4} cluster osd
    if [ -e "$1" ]; then
        echo "$1 is there already; give a folder that is not" >&2
        exit 2
    fi
    mkdir -p "$1/mon" "$1/osd" "$1/run" "$1/log"
    cluster=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    cat > "$1/ceph.conf" <<END
[global]
fsid = $cluster
mon host = 127.0.0.1:6789
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
ms bind msgr2 = false
admin socket = $1/run/\$name.asok
pid file = $1/run/\$name.pid
log file = $1/log/\$name.log
mon data = $1/mon
osd data = $1/osd
osd objectstore = memstore
memstore device bytes = ${gib}G
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:7480
END
    export CEPH_CONF="$1/ceph.conf"
    monmaptool --create --add a 127.0.0.1:6789 --fsid "$cluster" "$1/monmap" > /dev/null
    ceph-mon -i a --mkfs --monmap "$1/monmap"
    ceph-mon -i a
    # The OSD is refused if the monitor knows another number of it.
    ceph osd new "$osd" > /dev/null
    ceph-osd -i 0 --mkfs --osd-uuid "$osd"
    ceph-osd -i 0
    radosgw -n client.rgw.a
    for _ in $(seq 120); do
        if curl -s -o /dev/null http://127.0.0.1:7480; then
            radosgw-admin user create --uid shortgop --display-name shortgop --access-key key --secret-key secret > /dev/null
            echo "export AWS_ENDPOINT_URL=http://127.0.0.1:7480 AWS_ALLOW_HTTP=true AWS_REGION=us-east-1"
            echo "export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret"
            return
        fi
        sleep 1
    done
    echo "the gateway does not answer; see $1/log" >&2
    exit 1
}

stop() {
    for file in "$1"/run/*.pid; do
        kill "$(cat "$file")" || true
    done
}

[ $# -ge 2 ] || usage
case $1 in
    start) start "$(realpath -m "$2")" "${3:-4}" ;;
    stop) stop "$(realpath "$2")" ;;
    *) usage ;;
esac
