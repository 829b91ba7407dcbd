"""What the servers beside this file share: a directory that vanishes, children that end with their
parent, free ports, and how a server lives: as long as its command, its parent, or till a signal.

A server is started as  NAME.py [OPTION..] [-- COMMAND..]: COMMAND runs with the server's endpoint
and keys in its environment, and its exit code is the server's. Without one, they are printed (with
--env FILE: written there, as lines of NAME=VALUE) when the server serves, and it stays.
"""
import argparse
import atexit
import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG = 1
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
libc = ctypes.CDLL(None)
ACCESS = 'AKIAIOSFODNN7EXAMPLE'
SECRET = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'
DOMAIN = 's3.localhost'


def end_with_parent(parent, number):
    """Let this process get a signal when its parent ends, however that happens."""
    libc.prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def ignore_ends():
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def told_to_end(number, frame):
    ignore_ends()
    sys.exit(128 + number)


class Rig:
    """A directory and the processes in it. All of it goes when this process does."""

    def __init__(self, name):
        self.dir = tempfile.mkdtemp(prefix=f'dlpipe-{name}.')
        self.children = []
        # Nobody else has the pipe's other end: that is closed when this process is gone.
        end, self.leash = os.pipe()
        self.cleaner = subprocess.Popen(
            ['sh', '-c', 'read x; until rm -rf "$0"; do sleep 0.1; done', self.dir], stdin=end,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(end)
        atexit.register(self.end)
        for number in ENDS:
            signal.signal(number, told_to_end)
        end_with_parent(os.getppid(), signal.SIGTERM)

    def end(self):
        ignore_ends()
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait()
        os.close(self.leash)
        self.cleaner.wait()

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), 'w') as file:
            file.write(text)
        return self.path(name)

    def child(self, command, number, **options):
        """Start a process that gets this signal when this one ends."""
        me = os.getpid()
        child = subprocess.Popen(command, preexec_fn=lambda: end_with_parent(me, number),
                                 **options)
        self.children.insert(0, child)
        return child

    def start(self, name, command, **options):
        """Start a server; what it says goes to NAME.log."""
        with open(self.path(name + '.log'), 'w') as log:
            self.child(command, signal.SIGKILL, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                       **options)

    def run(self, command, environment=None):
        """Run a command on our input and output. Returns its exit code as a shell would."""
        code = self.child(command, signal.SIGTERM, env=environment).wait()
        return code if code >= 0 else 128 - code

    def logs(self):
        for name in sorted(os.listdir(self.dir)):
            if name.endswith('.log'):
                with open(self.path(name), errors='replace') as log:
                    for line in log.readlines()[-12:]:
                        sys.stderr.write(f'{name}: {line.rstrip()}\n')

    def wait_for(self, what, ready, seconds=120):
        """Wait until ready() is true; end with the logs if a server ended or it takes too long."""
        until = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > until or any(c.poll() is not None for c in self.children):
                self.logs()
                sys.exit(f'{what} did not come up')
            time.sleep(0.02)

    def live(self, arguments, environment):
        """Run the command with this environment, or tell it and wait for the end."""
        if arguments.command:
            sys.exit(self.run(arguments.command, {**os.environ, **environment}))
        lines = ''.join(f'{name}={value}\n' for name, value in environment.items())
        if arguments.env:
            with open(arguments.env + '.new', 'w') as file:
                file.write(lines)
            os.rename(arguments.env + '.new', arguments.env)
        else:
            print(re.sub('^', 'export ', lines.rstrip(), flags=re.M), flush=True)
        while all(child.poll() is None for child in self.children):
            time.sleep(0.5)
        self.logs()
        sys.exit('a server ended')


claims = []


def free_ports(n, address='127.0.0.1'):
    """Ports that nobody listens on, below those that the kernel gives to clients. As long as this
    process lives, others who ask here get others: a socket with the port's name says so."""
    ports = []
    while len(ports) < n:
        port = random.SystemRandom().randrange(20000, 30000)
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                claim.bind(f'\0dlpipe-port-{port}')
                probe.bind((address, port))
            except OSError:
                claim.close()
                continue
        claims.append(claim)
        ports.append(port)
    return ports


def answers(port, address='127.0.0.1'):
    """Does it take a request and answer?"""
    try:
        with socket.create_connection((address, port), 1) as s:
            s.settimeout(2)
            s.sendall(b'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n')
            return s.recv(5) == b'HTTP/'
    except OSError:
        return False


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            print(f'skipped: there is no {program}')
            sys.exit(77)


def options(**defaults):
    """The options of every server. What follows "--" is its command."""
    here = sys.argv.index('--') if '--' in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument('--env', help='write endpoint and keys there')
    parser.add_argument('--access', default=defaults.get('access', ACCESS))
    parser.add_argument('--secret', default=SECRET)
    parser.add_argument('--address', default='127.0.0.1', help='another in a namespace of its own')
    parser.add_argument('--port', type=int, help='default: a free one')
    parser.add_argument('--domain', default=DOMAIN, help='of virtual-host names')
    return parser, sys.argv[1:here], sys.argv[here + 1:]


def endpoint(rig, arguments, port, region):
    url = f'http://{arguments.address}:{port}'
    return {'AWS_ACCESS_KEY_ID': arguments.access, 'AWS_SECRET_ACCESS_KEY': arguments.secret,
            'AWS_REGION': region, 'AWS_DEFAULT_REGION': region, 'AWS_ENDPOINT_URL': url,
            'AWS_ENDPOINT_URL_S3': url, 'S3_DOMAIN': arguments.domain, 'S3_SERVER_DIR': rig.dir}
