#!/usr/bin/python3
"""OpenStack Swift with its S3 interface: proxy, account, container and object server in one
process, one replica, all data in one directory. swift_s3.py starts it; its environment says the
rest:

    one_swift.py DIRECTORY ADDRESS PORT

Writes the port to DIRECTORY/port when it serves. Four processes, and three that build their rings,
take ten seconds to start; this takes two.
"""
import os
import sys

address, port = sys.argv[2:4]
directory = os.path.abspath(sys.argv[1])
etc = os.path.join(directory, 'etc')
os.environ['SWIFT_CONF_DIR'] = etc # read when swift is imported
os.environ['TZ'] = 'UTC+0'
for name in ('etc', 'devices/d1'):
    os.makedirs(os.path.join(directory, name))


def write(name, text):
    path = os.path.join(etc, name)
    with open(path, 'w') as file:
        file.write(text)
    return path


write('swift.conf', '''
[swift-hash]
swift_hash_path_prefix = before
swift_hash_path_suffix = behind
[storage-policy:0]
name = only
default = yes
[swift-constraints]
max_header_size = 16384
''')

import eventlet # noqa: E402
import eventlet.wsgi # noqa: E402
from swift.common import utils, wsgi # noqa: E402
from swift.common.http_protocol import SwiftHttpProtocol # noqa: E402
from swift.common.ring import RingBuilder # noqa: E402

eventlet.hubs.use_hub(utils.get_hub())
utils.eventlet_monkey_patch()
eventlet.debug.hub_exceptions(False)

COMMON = f'''
[DEFAULT]
bind_ip = 127.0.0.1
swift_dir = {etc}
devices = {directory}/devices
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
log_level = ERROR
log_udp_host = 127.0.0.1
log_udp_port = 9
conn_timeout = 60
node_timeout = 60
container_update_timeout = 60
''' # It asks itself: where it has to wait for the processor, half a second is no sign of a fault.

account, user = os.environ['AWS_ACCESS_KEY_ID'].split(':')
PROXY = COMMON + f'''
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:slo]
use = egg:swift#slo
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {os.environ['AWS_SECRET_ACCESS_KEY']} .admin
[filter:s3api]
use = egg:swift#s3api
location = {os.environ['AWS_REGION']}
storage_domain = {os.environ['S3_DOMAIN']}
allow_multipart_uploads = true
min_segment_size = 1
'''


def serve(listener, path):
    """Serve the application of a configuration file, in a green thread."""
    app = wsgi.loadapp(path, global_conf={'log_name': 'swift'})
    eventlet.spawn(eventlet.wsgi.server, listener, app, utils.NullLogger(),
                   protocol=SwiftHttpProtocol, capitalize_response_headers=False,
                   max_size=1024)


listeners = {}
for kind in ('account', 'container', 'object'):
    listener = listeners[kind] = eventlet.listen(('127.0.0.1', 0))
    at = listener.getsockname()[1]
    builder = RingBuilder(2, 1, 1)
    builder.add_dev({'region': 1, 'zone': 1, 'ip': '127.0.0.1', 'port': at, 'device': 'd1',
                     'weight': 1.0, 'replication_ip': '127.0.0.1', 'replication_port': at})
    builder.rebalance(seed=1)
    builder.get_ring().save(os.path.join(etc, kind + '.ring.gz'))
for kind, listener in listeners.items():
    serve(listener, write(kind + '-server.conf', COMMON + f'''
bind_port = {listener.getsockname()[1]}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
'''))
proxy = eventlet.listen((address, int(port)), backlog=1024)
serve(proxy, write('proxy-server.conf', PROXY))
write('../port.new', str(proxy.getsockname()[1]))
os.rename(os.path.join(directory, 'port.new'), os.path.join(directory, 'port'))
while True:
    eventlet.sleep(3600)
