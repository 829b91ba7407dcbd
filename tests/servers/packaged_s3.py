#!/usr/bin/python3
"""S3 servers that come as one program in a Python package, for tests.

    packaged_s3.py seaweedfs|juicefs|rclone [OPTION..] [-- COMMAND..]       (common.py)

seaweedfs: its S3 gateway; juicefs: MinIO's gateway over a file system of its own; rclone: a folder.
"make deps" puts the programs into build/servers/bin. All check signatures, by keys of ours.
"""
import json
import os
import subprocess
import sys

from common import Rig, answers, endpoint, free_ports, need, options

here = os.path.dirname(os.path.abspath(__file__))
os.environ['PATH'] = os.path.join(here, '../../build/servers/bin') + ':' + os.environ['PATH']


def seaweedfs(rig, a, port):
    need('weed')
    more = free_ports(7, a.address)
    keys = {'credentials': [{'accessKey': a.access, 'secretKey': a.secret}]}
    config = rig.write('s3.json', json.dumps({'identities': [
        {'name': 'a test', 'actions': ['Admin', 'Read', 'Write', 'List', 'Tagging'], **keys}]}))
    names = ('master.port', 'master.port.grpc', 'volume.port', 'volume.port.grpc', 'filer.port',
             'filer.port.grpc', 's3.port.grpc')
    return ['weed', 'server', f'-dir={rig.path("data")}', f'-ip={a.address}',
            f'-ip.bind={a.address}', '-volume.max=64', '-master.volumeSizeLimitMB=64', '-filer',
            '-master.telemetry=false', '-s3', f'-s3.port={port}', f'-s3.config={config}',
            *(f'-{name}={number}' for name, number in zip(names, more))]


def juicefs(rig, a, port):
    need('juicefs')
    meta = f'sqlite3://{rig.path("meta.db")}'
    os.environ.update(MINIO_ROOT_USER=a.access, MINIO_ROOT_PASSWORD=a.secret, MINIO_UPDATE='off')
    subprocess.run(['juicefs', 'format', '--no-update', '--storage', 'file', '--bucket',
                    rig.path('data/'), '--trash-days', '0', meta, 'test'], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return ['juicefs', 'gateway', '--no-usage-report', '--no-banner', '--multi-buckets',
            '--keep-etag', '--cache-dir', rig.path('cache'), '--log', rig.path('juicefs.log'),
            meta, f'{a.address}:{port}']


def rclone(rig, a, port):
    need('rclone')
    return ['rclone', 'serve', 's3', '--config', rig.write('rclone.conf', ''), '--auth-key',
            f'{a.access},{a.secret}', '--addr', f'{a.address}:{port}', rig.path('data')]


kinds = {'seaweedfs': seaweedfs, 'juicefs': juicefs, 'rclone': rclone}
parser, argv, command = options()
parser.add_argument('kind', choices=kinds)
arguments = parser.parse_args(argv)
arguments.command = command
rig = Rig(arguments.kind)
os.mkdir(rig.path('data'))
port = arguments.port or free_ports(1, arguments.address)[0]
rig.start(arguments.kind, kinds[arguments.kind](rig, arguments, port),
          env={**os.environ, 'HOME': rig.dir})
rig.wait_for(arguments.kind, lambda: answers(port, arguments.address))
rig.live(arguments, endpoint(rig, arguments, port, 'us-east-1'))
