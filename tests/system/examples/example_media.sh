#!/bin/sh
# Examples with libraries that people have. audio (libsndfile): crops lie in their files, are others
# in each epoch, and the same in each run. http (libcurl): many requests at once, failures that heal
# are tried again, an object that is not there ends the pipe. video (FFmpeg): each clip comes once.
# parquet (Arrow C++, as the Python package pyarrow has it): the sums of three files.
dir=build/example_media
. tests/rig/shell_rig
fresh_dir
python=/usr/bin/python3
[ -x $python ] || skip "there is no $python"
server=''
clean() {
    [ -z "$server" ] || kill $server 2>/dev/null
}
trap clean EXIT

missing='' more=''
has() { # HEADER
    printf '#include <stdio.h>\n#include <%s>\n' "$1" | ${CC:-cc} -E -x c - >/dev/null 2>&1
}

if has sndfile.h; then
    # Sample k of file i is k / 30000: so what a crop begins with tells its place. File c is short.
    $python - $dir <<'END_OF_PY' || fail 'no sound files'
import array, sys, wave
for i, (name, frames, channels) in enumerate((("a", 30000, 1), ("b", 30000, 2), ("c", 100, 1))):
    with wave.open("%s/%s.wav" % (sys.argv[1], name), "wb") as f:
        f.setparams((channels, 2, 16000, frames, "NONE", ""))
        f.writeframes(array.array("h", [k for k in range(frames) for _ in range(channels)]))
END_OF_PY
    linked examples/audio.c $dir/audio -lsndfile || fail 'audio does not compile'
    for run in 1 2; do
        timeout 60 $dir/audio $dir/a.wav $dir/b.wav $dir/c.wav >$dir/said.$run ||
            fail "audio: exit code $?: $(cat $dir/said.$run)"
    done
    cmp -s $dir/said.1 $dir/said.2 || fail 'audio: two runs differ'
    [ "$(grep '[ab].wav' $dir/said.1 | cut -d ' ' -f 6 | sort -u | wc -l)" -eq 4 ] ||
        fail "audio: crops that begin alike: $(cat $dir/said.1)"
    # The square root of the mean of squares of first .. first + 15999, over 32768.
    tr -d ',' <$dir/said.1 | awk '
        { n = /c.wav/ ? 100 : 16000; sum = 0; first = $6
          for (k = first; k < first + n; k++) sum += k * k
          want = sqrt(sum / 16000) / 32768
          off = $8 - want
          if (first > 14000 || off * off > 1e-8) { print $0, want; bad = 1 } }
        END { exit bad || NR != 6 }' || fail 'audio: a crop is not what lies in its file'
    timeout 60 $dir/audio $dir/a.wav $dir/none.wav >$dir/said && fail 'audio: a file that is none'
    grep -q 'none.wav' $dir/said || fail "audio: $(cat $dir/said)"
else
    missing="$missing libsndfile1-dev"
fi

if has curl/curl.h; then
    # A server that answers object i with i bytes, at the first try with 503. GET /most tells how
    # many requests were under way at once.
    cat >$dir/server.py <<'END_OF_PY'
import http.server, sys, threading, time
lock, seen, now, most = threading.Lock(), set(), 0, 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global now, most
        name = self.path[1:]
        with lock:
            now += name != "most"
            most = max(most, now)
            first = name not in seen
            seen.add(name)
        time.sleep(0.01)
        code, body = (200, str(most).encode()) if name == "most" else \
            (404, b"") if int(name) >= 200 else (503, b"") if first else (200, b"x" * int(name))
        with lock:
            now -= name != "most"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END_OF_PY
    $python $dir/server.py >$dir/port &
    server=$!
    await test -s $dir/port || fail 'http: the server does not begin'
    url=http://127.0.0.1:$(cat $dir/port)
    linked examples/http.c $dir/http -lcurl || fail 'http does not compile'
    timeout 60 $dir/http $url 200 >$dir/said || fail "http: exit code $?: $(cat $dir/said)"
    grep -q '^200 items, 19900 bytes$' $dir/said || fail "http: $(cat $dir/said)"
    most=$($python -c "import urllib.request as u; print(u.urlopen('$url/most').read().decode())")
    [ "$most" -gt 4 ] && [ "$most" -le 16 ] || fail "http: $most requests at once"
    timeout 60 $dir/http $url 201 >$dir/said && fail 'http: an object that is not there'
    grep -q '/200: .*404' $dir/said || fail "http: $(cat $dir/said)"
else
    missing="$missing libcurl4-openssl-dev"
fi

if has libavformat/avformat.h && command -v ffmpeg >/dev/null 2>&1; then
    for v in 'red 20' 'lime 50' 'blue 7'; do # 2, 6 and 0 clips of 8 frames
        # shellcheck disable=SC2086
        set -- $v
        ffmpeg -v error -f lavfi -i "color=c=$1:s=96x80:r=25" -frames:v $2 -c:v mpeg4 -q:v 2 \
            $dir/$1.avi </dev/null || fail "no video of $1"
    done
    linked examples/video.c $dir/video -lavformat -lavcodec -lavutil -lswscale ||
        fail 'video does not compile'
    timeout 60 $dir/video $dir/red.avi $dir/lime.avi $dir/blue.avi >$dir/said ||
        fail "video: exit code $?: $(cat $dir/said)"
    awk '/red/ && $4 > 240 && $5 < 15 && $6 < 15 { red++ }
        /lime/ && $4 < 15 && $5 > 240 && $6 < 15 { lime++ }
        END { exit red != 2 || lime != 6 || NR != 8 }' $dir/said || fail "video: $(cat $dir/said)"
    awk '{ print $1 }' $dir/said | uniq | wc -l >$dir/changes
    [ "$(cat $dir/changes)" -gt 2 ] || fail "video: clips are not mixed: $(cat $dir/said)"
    echo no video >$dir/none.avi
    timeout 60 $dir/video $dir/red.avi $dir/none.avi >$dir/said && fail 'video: a file that is none'
    grep -q 'none.avi: ' $dir/said || fail "video: $(cat $dir/said)"
else
    more=' ffmpeg libavformat-dev libavcodec-dev libswscale-dev (make deps-more)'
fi

arrow=$(build/arrow/bin/python -c 'import pyarrow; print(*pyarrow.get_library_dirs())' 2>/dev/null)
if [ -n "$arrow" ] && command -v c++ >/dev/null 2>&1; then
    build/arrow/bin/python - $dir <<'END_OF_PY' >$dir/want || fail 'no files of Parquet'
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, sys
def write(name, k, a, group):
    pq.write_table(pa.table({"a": a, "b": pa.array(k * 0.5, pa.float64()),
                             "c": pa.array(k % 7, pa.int32()), "d": pa.array(k % 3, pa.float32())}),
                   "%s/%s.parquet" % (sys.argv[1], name), row_group_size=group)
all = []
for i, (n, group) in enumerate(((1000, 100), (777, 250), (5, 5))):
    all.append(np.arange(n) + 1000 * i)
    write(i, all[-1], pa.array(all[-1], pa.int64()), group)
k = np.concatenate(all)
print("%d rows, means" % len(k), *("%g" % x.mean() for x in (k, k * 0.5, k % 7, k % 3)))
write("text", k[:9], pa.array(["x"] * 9), 9)
whole = open(sys.argv[1] + "/0.parquet", "rb").read()
open(sys.argv[1] + "/torn.parquet", "wb").write(whole[:60] + bytes(40) + whole[100:])
END_OF_PY
    lib_made && c++ -std=c++20 -w -O0 -I. "-I${arrow%% *}/include" -o $dir/parquet \
        examples/parquet.cpp build/lib/tests.a $arrow/libparquet.so.*00 $arrow/libarrow.so.*00 \
        -Wl,-rpath,$arrow -lpthread || fail 'parquet does not compile'
    timeout 60 $dir/parquet $dir/0.parquet $dir/1.parquet $dir/2.parquet >$dir/said ||
        fail "parquet: exit code $?: $(cat $dir/said)"
    cmp -s $dir/want $dir/said || fail "parquet: $(cat $dir/said), not $(cat $dir/want)"
    for bad in text:'a is no number' torn:snappy none:'No such file'; do
        timeout 60 $dir/parquet $dir/0.parquet $dir/${bad%%:*}.parquet >$dir/said &&
            fail "parquet: $bad is taken for data"
        grep -q "${bad#*:}" $dir/said || fail "parquet, $bad: $(cat $dir/said)"
    done
else
    more="$more pyarrow and a compiler of C++ (make deps-more)"
fi

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "not installed:$missing; the rest is well"
[ $wrong -eq 0 ] && [ -n "$more" ] && echo "not installed:$more; the rest is well" && exit 78
[ $wrong -eq 0 ]
