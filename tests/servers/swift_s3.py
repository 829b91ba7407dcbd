#!/usr/bin/python3
"""OpenStack Swift with its S3 interface, for tests. Unlike others it refuses a wrong region.

    swift_s3.py [--region NAME] [OPTION..] [-- COMMAND..]       (common.py)

Debian: swift-proxy swift-account swift-container swift-object. Any user may run it.
"""
import os
import sys

from common import Rig, endpoint, need, options

parser, argv, command = options(access='test:tester')
parser.add_argument('--region', default='us-east-1')
arguments = parser.parse_args(argv)
arguments.command = command
need('swift-proxy-server', 'swift-account-server', 'swift-container-server',
     'swift-object-server')

rig = Rig('swift')
here = os.path.dirname(os.path.abspath(__file__))
rig.start('swift', [sys.executable, os.path.join(here, 'one_swift.py'), rig.dir, arguments.address,
                    str(arguments.port or 0)],
          env={**os.environ, **endpoint(rig, arguments, 0, arguments.region)})
rig.wait_for('swift', lambda: os.path.exists(rig.path('port')))
with open(rig.path('port')) as file:
    rig.live(arguments, endpoint(rig, arguments, int(file.read()), arguments.region))
