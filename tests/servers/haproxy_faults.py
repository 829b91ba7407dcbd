#!/usr/bin/python3
"""HAProxy in front of a server, spoiling a share of the requests.

    haproxy_faults.py [--unavailable PERCENT] [--reset PERCENT] [--late PERCENT] [--late-ms MS]
                      -- COMMAND..

The server is the one of AWS_ENDPOINT_URL; COMMAND gets the front's address instead, and in
S3_FAULTS_SOCKET that of its statistics. --unavailable: answered with 503 SlowDown; --reset: the
connection is closed instead of an answer; --late: passed on after MS (1500). Debian: haproxy.
"""
import argparse
import os
import sys
from urllib.parse import urlsplit

from common import Rig, answers, free_ports, need

here = sys.argv.index('--') if '--' in sys.argv else len(sys.argv)
parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument('--unavailable', type=float, default=0)
parser.add_argument('--reset', type=float, default=0)
parser.add_argument('--late', type=float, default=0)
parser.add_argument('--late-ms', type=int, default=1500)
arguments = parser.parse_args(sys.argv[1:here])
if here + 1 >= len(sys.argv) or 'AWS_ENDPOINT_URL' not in os.environ:
    sys.exit(__doc__)
need('haproxy')

rig = Rig('haproxy')
port, = free_ports(1)
xml = ('<?xml version=\\"1.0\\" encoding=\\"UTF-8\\"?><Error><Code>SlowDown</Code><Message>Please '
       'reduce your request rate.</Message><RequestId>front</RequestId></Error>')
delay = rig.write('delay.lua', f'''
core.register_action("delay", {{"http-req"}}, function(transaction)
    core.msleep({arguments.late_ms})
end)
''')


def share(percent):
    return f'if {{ rand(10000) lt {round(percent * 100)} }}'


unavailable = share(arguments.unavailable)
config = rig.write('haproxy.cfg', f'''
global
    lua-load {delay}
    nbthread 1
    maxconn 4096
    stats socket {rig.path('socket')}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    http-reuse always
frontend front
    bind 127.0.0.1:{port}
    http-request lua.delay {share(arguments.late)}
    http-request reject {share(arguments.reset)}
    http-request return status 503 content-type application/xml string "{xml}" {unavailable}
    default_backend server
backend server
    server only {urlsplit(os.environ['AWS_ENDPOINT_URL']).netloc}
''')
rig.start('haproxy', ['haproxy', '-db', '-f', config])
rig.wait_for('haproxy', lambda: os.path.exists(rig.path('socket')) and answers(port))
url = f'http://127.0.0.1:{port}'
sys.exit(rig.run(sys.argv[here + 1:],
                 {**os.environ, 'AWS_ENDPOINT_URL': url, 'AWS_ENDPOINT_URL_S3': url,
                  'S3_FAULTS_SOCKET': rig.path('socket')}))
