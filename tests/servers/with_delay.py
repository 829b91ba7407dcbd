#!/usr/bin/python3
"""A server at the other end of a long link, for tests and benchmarks (delay.c says how).

    with_delay.py ONE_WAY_MS SERVER.py [OPTION..] -- COMMAND..

COMMAND runs in a namespace where the server is 10.199.0.2, with its endpoint and keys in its
environment; the MTU is 9,000. Needs a C compiler, and the right to make namespaces.
"""
import os
import subprocess
import sys

from common import Rig, need

if len(sys.argv) < 5 or '--' not in sys.argv:
    sys.exit(__doc__)
cc = os.environ.get('CC', 'cc').split()
need(cc[0])
split = sys.argv.index('--')
here = os.path.dirname(os.path.abspath(__file__))
rig = Rig('delay')
subprocess.run([*cc, '-std=c11', '-O2', '-o', rig.path('delay'), os.path.join(here, 'delay.c'),
                '-lpthread'], check=True)
# The client's shell waits for the server, which writes how it is reached.
client = '''while [ ! -f "$0" ]; do kill -0 $PPID || exit 1; sleep 0.05; done
set -a; . "$0"; set +a; exec "$@"'''
sys.exit(rig.run(
    [rig.path('delay'), sys.argv[1], '9000', os.path.join(here, sys.argv[2]), *sys.argv[3:split],
     '--address', '10.199.0.2', '--env', rig.path('env'), '--', 'sh', '-c', client,
     rig.path('env'), *sys.argv[split + 1:]]))
