#!/usr/bin/python3
"""A small S3 client of Python's own library alone: fills buckets, makes objects of several parts,
presigns, and reads and lists what another client has written.

    s3.py fill BUCKET COUNT BYTES      objects 000000.bin and so on; the n-th one holds pattern(n)
    s3.py large                        object 256m of 256 MiB in bucket large: pattern(0)
    s3.py presign BUCKET COUNT|KEY     their paths, with a signature each, one a line
    s3.py parts BUCKET KEY BYTES..     an object of parts of these sizes: the pattern of 7
    s3.py public BUCKET                let everybody read
    s3.py check BUCKET FILE            its keys are those in FILE, each ended by a zero byte, and
                                       each object holds its own key
    s3.py get BUCKET KEY | list BUCKET [PREFIX]
"""
import array
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import json
import os
import re
import sys
import threading
import urllib.parse
from xml.etree import ElementTree


def encode(text, safe=''):
    return urllib.parse.quote(text, safe=safe + '-_.~')


def pattern(number, size):
    """Bytes that tell objects apart, and places in them: 64-bit words of both their numbers."""
    first, words = number << 32, (size + 7) // 8
    return array.array('Q', range(first, first + words)).tobytes()[:size]


class S3:
    """Requests to one endpoint; threads have a connection each."""

    def __init__(self, endpoint=None, access=None, secret=None, region=None):
        self.url = urllib.parse.urlsplit(endpoint or os.environ['AWS_ENDPOINT_URL'])
        self.access = access or os.environ['AWS_ACCESS_KEY_ID']
        self.secret = secret or os.environ['AWS_SECRET_ACCESS_KEY']
        self.region = region or os.environ['AWS_REGION']
        self.local = threading.local()

    def signature(self, now, canonical):
        scope = f'{now[:8]}/{self.region}/s3/aws4_request'
        text = '\n'.join(['AWS4-HMAC-SHA256', now, scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = ('AWS4' + self.secret).encode()
        for part in (*scope.split('/'), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return scope, key.hex()

    def target(self, bucket, key, query):
        path = '/' + bucket + ('/' + encode(key, '/') if key else '')
        return path, '&'.join(f'{encode(k)}={encode(str(v))}' for k, v in sorted(query.items()))

    def presign(self, bucket, key, seconds=86400):
        now = datetime.datetime.utcnow().strftime('%Y%m%dT%H%M%SZ')
        path, query = self.target(bucket, key, {
            'X-Amz-Algorithm': 'AWS4-HMAC-SHA256', 'X-Amz-Date': now, 'X-Amz-Expires': seconds,
            'X-Amz-Credential': f'{self.access}/{now[:8]}/{self.region}/s3/aws4_request',
            'X-Amz-SignedHeaders': 'host'})
        canonical = f'GET\n{path}\n{query}\nhost:{self.url.netloc}\n\nhost\nUNSIGNED-PAYLOAD'
        return f'{path}?{query}&X-Amz-Signature={self.signature(now, canonical)[1]}'

    def do(self, method, bucket, key='', query=None, body=b'', headers=None):
        """Returns the body and the headers of a 2xx answer."""
        now = datetime.datetime.utcnow().strftime('%Y%m%dT%H%M%SZ')
        path, text = self.target(bucket, key, query or {})
        signed = {'host': self.url.netloc, 'x-amz-content-sha256': hashlib.sha256(body).hexdigest(),
                  'x-amz-date': now, **{k.lower(): v for k, v in (headers or {}).items()}}
        names = ';'.join(sorted(signed))
        canonical = '\n'.join([method, path, text,
                               *(f'{name}:{signed[name]}' for name in sorted(signed)), '', names,
                               signed['x-amz-content-sha256']])
        scope, signature = self.signature(now, canonical)
        signed['authorization'] = (f'AWS4-HMAC-SHA256 Credential={self.access}/{scope},'
                                   f'SignedHeaders={names},Signature={signature}')
        if not hasattr(self.local, 'connection'):
            self.local.connection = http.client.HTTPConnection(self.url.netloc, timeout=60)
        c = self.local.connection
        c.request(method, path + ('?' + text if text else ''), body, signed)
        answer = c.getresponse()
        content = answer.read()
        if answer.status // 100 != 2:
            raise OSError(f'{method} {path}: {answer.status} {content.decode(errors="replace")}')
        return content, answer.headers

    def keys(self, bucket, prefix=''):
        token, found = {}, []
        while True:
            page, _ = self.do('GET', bucket, query={'list-type': 2, 'encoding-type': 'url',
                                                    'prefix': prefix, **token})
            tree = ElementTree.fromstring(re.sub(rb' xmlns="[^"]*"', b'', page))
            found += [urllib.parse.unquote_plus(e.text) for e in tree.findall('Contents/Key')]
            next_token = tree.findtext('NextContinuationToken')
            if not next_token:
                return found
            token = {'continuation-token': next_token}

    def multipart(self, bucket, key, parts):
        page, _ = self.do('POST', bucket, key, {'uploads': ''})
        upload = re.search(rb'<UploadId>(.*?)</UploadId>', page).group(1).decode()
        text = ''
        for i, part in enumerate(parts, 1):
            _, headers = self.do('PUT', bucket, key, {'partNumber': i, 'uploadId': upload}, part)
            text += f'<Part><PartNumber>{i}</PartNumber><ETag>{headers["ETag"]}</ETag></Part>'
        self.do('POST', bucket, key, {'uploadId': upload},
                f'<CompleteMultipartUpload>{text}</CompleteMultipartUpload>'.encode())


def name_of(number):
    return f'{number:06d}.bin'


def main(what, bucket='', *more):
    s3 = S3()
    if what == 'fill':
        count, size = map(int, more)
        s3.do('PUT', bucket)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda i: s3.do('PUT', bucket, name_of(i), body=pattern(i, size)),
                          range(count)))
    elif what == 'large':
        s3.do('PUT', 'large')
        s3.do('PUT', 'large', '256m', body=pattern(0, 256 << 20))
    elif what == 'presign':
        keys = map(name_of, range(int(more[0]))) if more[0].isdigit() else more
        for key in keys:
            print(s3.presign(bucket, key))
    elif what == 'parts':
        s3.do('PUT', bucket)
        sizes = list(map(int, more[1:]))
        whole = pattern(7, sum(sizes))
        s3.multipart(bucket, more[0], [whole[sum(sizes[:i]):sum(sizes[:i + 1])]
                                       for i in range(len(sizes))])
    elif what == 'public':
        s3.do('PUT', bucket, query={'policy': ''}, body=json.dumps({
            'Version': '2012-10-17', 'Statement': [{
                'Effect': 'Allow', 'Principal': '*', 'Action': ['s3:GetObject', 's3:ListBucket'],
                'Resource': [f'arn:aws:s3:::{bucket}', f'arn:aws:s3:::{bucket}/*']}]}).encode())
    elif what == 'check':
        with open(more[0], 'rb') as file:
            keys = sorted(file.read().decode().split('\0')[:-1])
        assert sorted(s3.keys(bucket)) == keys, f'{s3.keys(bucket)} are not {keys}'
        for key in keys:
            assert s3.do('GET', bucket, key)[0] == key.encode(), repr(key)
    elif what == 'get':
        sys.stdout.buffer.write(s3.do('GET', bucket, more[0])[0])
    elif what == 'list':
        for key in s3.keys(bucket, *more):
            print(repr(key))
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
