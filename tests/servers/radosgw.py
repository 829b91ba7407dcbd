#!/usr/bin/python3
"""Ceph's S3 gateway for tests: a monitor, one OSD that keeps all in memory, and the gateway.

    radosgw.py [--tls PEM]... [OPTION..] [-- COMMAND..]       (common.py)

--tls, once or more: also an https port with this file's key and certificate; S3_TLS_PORT_1 and so
on say which. Debian: radosgw ceph-mon ceph-osd ceph-base ceph-common. Any user may run it.
"""
import base64
import json
import os
import struct
import subprocess
import sys
import uuid

from common import Rig, answers, endpoint, free_ports, need, options

parser, argv, command = options()
parser.add_argument('--tls', action='append', default=[])
parser.add_argument('--memory', type=int, default=4096, help='MiB that objects may take')
parser.add_argument('--threads', type=int, default=128)
arguments = parser.parse_args(argv)
arguments.command = command
need('ceph-mon', 'ceph-osd', 'radosgw', 'radosgw-admin', 'monmaptool')
try:
    import rados
except ImportError:
    print('skipped: there is no python3-rados')
    sys.exit(77)

rig = Rig('radosgw')
mon_port, port, *tls_ports = free_ports(2 + len(arguments.tls), arguments.address)
port = arguments.port or port
fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
monitor = f'v2:127.0.0.1:{mon_port}/0'
frontends = [f'beast tcp_nodelay=1 endpoint={arguments.address}:{port}'] + [
    f'beast tcp_nodelay=1 ssl_endpoint={arguments.address}:{p} ssl_certificate={pem}'
    for p, pem in zip(tls_ports, map(os.path.abspath, arguments.tls))]

conf = rig.write('ceph.conf', f'''
[global]
fsid = {fsid}
mon host = {monitor}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
keyring = {rig.path('keyring')}
run dir = {rig.dir}
crash dir = {rig.dir}
admin socket =
log file =
log to stderr = true
debug mon = 0/0
debug paxos = 0/0
debug ms = 0/0
debug osd = 0/0
debug filestore = 0/0
debug memstore = 0/0
debug rgw = 0/0
debug objecter = 0/0
debug auth = 0/0
ms crc data = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 0
mon pg warn min per osd = 0
paxos propose interval = 0.02
[mon.a]
mon data = {rig.path('mon')}
[osd.0]
osd data = {rig.path('osd')}
osd objectstore = memstore
memstore device bytes = {arguments.memory << 20}
osd class load list = *
osd class default list = *
osd max object name len = 2048
[client.rgw]
rgw data = {rig.path('rgw')}
rgw frontends = {', '.join(frontends)}
rgw dns name = {arguments.domain}
rgw thread pool size = {arguments.threads}
rgw enable usage log = false
rgw enable ops log = false
rgw gc max objs = 8
rgw lc max objs = 4
rgw usage max shards = 1
rgw run sync thread = false
rgw dynamic resharding = false
''')
key = base64.b64encode(struct.pack('<HIIH', 1, 1, 0, 16) + os.urandom(16)).decode()
keyring = ''.join(f'[{name}]\n\tkey = {key}\n\tcaps mon = "allow *"\n\tcaps osd = "allow *"\n'
                  for name in ('mon.', 'client.admin', 'client.rgw', 'osd.0'))
for path in ('keyring', 'osd/keyring', 'rgw/keyring'):
    rig.write(path, keyring)


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}: {done.stdout}')


def tell_monitor(cluster, **what):
    code, _, said = cluster.mon_command(json.dumps(what), b'', timeout=100)
    if code != 0:
        sys.exit(f'{what["prefix"]}: {said}')


map_file = rig.path('monmap')
run('monmaptool', '--create', '--fsid', fsid, '--addv', 'a', f'[{monitor[:-2]}]', map_file)
run('ceph-mon', '-c', conf, '-i', 'a', '--mkfs', '--monmap', map_file)
rig.start('mon', ['ceph-mon', '-c', conf, '-i', 'a', '-f'])
with rados.Rados(conffile=conf, name='client.admin') as cluster:
    tell_monitor(cluster, prefix='osd new', uuid=osd, id=0)
    tell_monitor(cluster, prefix='osd crush add', id=0, weight=1.0,
                 args=['root=default', 'host=localhost'])
run('ceph-osd', '-c', conf, '-i', '0', '--mkfs', '--osd-uuid', osd)
rig.start('osd', ['ceph-osd', '-c', conf, '-i', '0', '-f'])
rig.start('radosgw', ['radosgw', '-c', conf, '-n', 'client.rgw', '-f'])
run('radosgw-admin', '-c', conf, '-n', 'client.rgw', 'user', 'create', '--uid=dlpipe',
    '--display-name=dlpipe', '--access-key=' + arguments.access, '--secret=' + arguments.secret)
rig.wait_for('radosgw', lambda: answers(port, arguments.address))

environment = endpoint(rig, arguments, port, 'us-east-1')
for i, p in enumerate(tls_ports):
    environment[f'S3_TLS_PORT_{i + 1}'] = str(p)
rig.live(arguments, environment)
