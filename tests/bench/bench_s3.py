#!/usr/bin/python3
"""What bench_s3.c has done in Python.

    bench_s3.py boto3 BUCKET COUNT IN_FLIGHT     read objects by threads, print seconds and CPU
    bench_s3.py boto3 BUCKET KEY IN_FLIGHT       read one, in parts
    bench_s3.py obstore BUCKET COUNT IN_FLIGHT   read objects in one loop, print the same
    bench_s3.py list boto3|obstore PREFIX COUNT  list keys of bucket "many", print the same
    bench_s3.py table LINES                      what make bench-s3 left, for people
    bench_s3.py markdown LINES                   the same as the table of README.md
"""
import io
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def boto3_read(bucket, what, in_flight):
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    # What of the environment is meant for real services does not matter here; nor do its faults.
    client = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL'],
                          config=Config(max_pool_connections=in_flight))

    def get(i):
        body = client.get_object(Bucket=bucket, Key=f'{i:06d}.bin')['Body'].read()
        assert len(body) == 100000

    begin, cpu = time.monotonic(), time.process_time()
    if what.isdigit():
        with ThreadPoolExecutor(in_flight) as pool:
            list(pool.map(get, range(int(what))))
    else:
        client.download_fileobj(bucket, what, io.BytesIO(),
                                Config=TransferConfig(max_concurrency=in_flight))
    print(time.monotonic() - begin, time.process_time() - cpu)


def obstore_of(bucket):
    from obstore.store import S3Store
    return S3Store(bucket, endpoint=os.environ['AWS_ENDPOINT_URL'],
                   region=os.environ['AWS_REGION'], client_options={'allow_http': True})


def obstore_read(bucket, count, in_flight):
    import asyncio
    store = obstore_of(bucket)

    async def some(numbers):
        for i in numbers:
            body = await (await store.get_async(f'{i:06d}.bin')).bytes_async()
            assert len(body) == 100000

    async def all_of_them():
        numbers = iter(range(count))
        await asyncio.gather(*(some(numbers) for _ in range(in_flight)))

    begin, cpu = time.monotonic(), time.process_time()
    asyncio.run(all_of_them())
    print(time.monotonic() - begin, time.process_time() - cpu)


def list_keys(peer, prefix, count):
    if peer == 'boto3':
        import boto3
        client = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL'])
        pages = client.get_paginator('list_objects_v2').paginate(Bucket='many', Prefix=prefix)
        begin, cpu = time.monotonic(), time.process_time()
        n = sum(len(page['Contents']) for page in pages)
    else:
        # A prefix is a folder there: the keys are listed from one on, as many as are wanted.
        store = obstore_of('many')
        begin, cpu, n = time.monotonic(), time.process_time(), 0
        for chunk in store.list(chunk_size=1000):
            n += len(chunk)
            if n >= count:
                break
    assert n == count, n
    print(time.monotonic() - begin, time.process_time() - cpu)


# name: what it is, whether less is better, what is wanted of (ours, theirs by peer)
def wanted(name, ours, theirs):
    if name.startswith('s3_100k_30ms'):
        return '0.95 of wrk', ours >= 0.95 * theirs.get('wrk', 0)
    if name.startswith('s3_100k_loop'):
        return '1.0 of curl', ours >= theirs.get('curl', 0)
    if name.startswith('s3_cpu_ms_per_object loop'):
        return '0.8 of curl', ours <= 0.8 * theirs.get('curl', 0)
    if name == 's3_256m':
        return "1 GB/s or the server's limit", ours >= min(1, 0.95 * theirs.get('wrk', 0))
    if name == 's3_faults_s':
        return '1 s, 0.4 of rclone', ours < 1 and ours <= 0.4 * theirs.get('rclone', 0)
    if name == 's3_list_75ms':
        return '100,000 keys/s', ours >= 100000
    if name.startswith('s3_503_') and name.endswith('_s'):
        return '1.0 of obstore', ours <= theirs.get('obstore', 0)
    if name == 's3_faults_requests':
        return '1.15', ours <= 1.15
    return '', None


PEERS = ['wrk', 'curl', 'rclone', 'boto3', 'obstore', 'serial']
WORDS = {
    's3_100k_loop_c16': 'loopback, 16 in flight', 's3_100k_loop_c64': 'loopback, 64',
    's3_cpu_ms_per_object loop_c16': "client's processor time, loopback, 16",
    's3_cpu_ms_per_object loop_c64': 'the same, 64',
    's3_100k_30ms_c16': '30 ms away, 16 in flight', 's3_100k_30ms_c64': '30 ms, 64',
    's3_100k_30ms_c256': '30 ms, 256', 's3_256m': 'one object of 256 MiB',
    's3_faults_s': '600 objects with faults, 64 in flight',
    's3_faults_requests': 'requests for an object then',
    's3_503_0_s': '600 objects, 64 in flight', 's3_503_5_s': '5 % answers 503',
    's3_503_10_s': '10 %', 's3_503_15_s': '15 %',
    's3_list_75ms': 'keys listed, 75 ms a page (serial: dlpipe, page after page)'}


def read(path):
    rows = {}
    with open(path) as file:
        for line in map(json.loads, file):
            name = line['bench'] + (' ' + line['at'] if 'at' in line else '')
            row = rows.setdefault(name, {'unit': line.get('unit', ''), 'theirs': {}, 'ours': None,
                                         'regimes': set()})
            if 'skipped' in line:
                continue
            row['regimes'].add(line['regime'])
            row['ours'] = line['ours']
            if 'theirs' in line:
                row['theirs'][line['peer']] = line['theirs']
    return {name: row for name, row in rows.items() if row['ours'] is not None}


def figure(x):
    return f'{x:,.0f}' if x >= 100 else f'{x:.2g}' if x < 1 else f'{x:.3g}'


def markdown(path):
    print('| what (`make bench-s3`) | dlpipe, one thread | ' + ' | '.join(PEERS) + ' |')
    print('|---|' + '---|' * (1 + len(PEERS)))
    for name, row in read(path).items():
        if name not in WORDS:
            continue
        unit = row['unit'].replace('requests per object', '').replace('object/s', 'objects/s')
        cells = [figure(row['theirs'][p]) if p in row['theirs'] else '' for p in PEERS]
        print(f'| {WORDS[name]} | {figure(row["ours"])} {unit} | ' + ' | '.join(cells) + ' |')


def table(path):
    print(f'{"":32} {"unit":9} {"dlpipe":>8} ' + ' '.join(f'{p:>8}' for p in PEERS) + '  wanted')
    for name, row in read(path).items():
        figures = ' '.join(f'{row["theirs"][p]:8.4g}' if p in row['theirs'] else f'{"":8}'
                           for p in PEERS)
        want, good = wanted(name, row['ours'], row['theirs'])
        verdict = '' if good is None else f'{want}: {"yes" if good else "NO"}'
        print(f'{name:32} {row["unit"]:9} {row["ours"]:8.4g} {figures}  {verdict}'
              f' ({", ".join(sorted(row["regimes"]))})')


if __name__ == '__main__':
    if len(sys.argv) == 5 and sys.argv[1] == 'boto3':
        boto3_read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) == 5 and sys.argv[1] == 'obstore':
        obstore_read(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif len(sys.argv) == 5 and sys.argv[1] == 'list':
        list_keys(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) == 3 and sys.argv[1] == 'table':
        table(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == 'markdown':
        markdown(sys.argv[2])
    else:
        sys.exit(__doc__)
