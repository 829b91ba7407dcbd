#!/bin/sh
# The charts of the benchmarks are those that their tables give, and charts.py finds no fault of
# them. Each of its checks is seen to find one that is made.
dir=build/charts_tool
. tests/rig/shell_rig
fresh_dir
[ -x /usr/bin/python3 ] || skip 'there is no /usr/bin/python3 (Debian: python3)'
export PYTHONDONTWRITEBYTECODE=1

cp -r tests/bench/tables $dir && mkdir $dir/charts
/usr/bin/python3 tests/bench/bench_tables.py $dir/none $dir >$dir/said
diff -r tests/bench/charts $dir/charts >$dir/differ ||
    fail "make bench-tables draws other charts: $(head -n 3 $dir/differ)"
/usr/bin/python3 tests/tools/charts.py tests/bench >$dir/found || fail "$(cat $dir/found)"

found() { # CHECK FILE SCRIPT-OF-SED: the fault that sed makes of a copy of the file
    rm -rf $dir/made && mkdir $dir/made
    cp -r tests/bench/bench_charts.py tests/bench/tables tests/bench/charts $dir/made
    sed "$3" "tests/bench/$2" >$dir/made/$2
    ! cmp -s "tests/bench/$2" $dir/made/$2 || fail "$1: sed makes no fault of $2"
    ! /usr/bin/python3 tests/tools/charts.py $dir/made >$dir/found || fail "$1: no fault is found"
    grep -q "$1: " $dir/found || fail "$1 is not what is found: $(head -n 3 $dir/found)"
}
bar='<rect class="other" x="20" y="2" width="9" height="3"><title>peers; peers_small, workers 2, '
bar=$bar'prefetch 2, item bytes 784, item\/s; torch_bulk; near: theirs<\/title><\/rect>'
bar=$bar'<text class="ink" x="40" y="9" font-size="9">56.6 k<\/text>'
found cell bench_charts.py 's/\[c.strip().strip("`") for c in .*$/line.strip("| ").split(" | ")/'
found bar charts/queue.svg 's/>25.5 M</>58.1 M</'
found missing bench_charts.py 's/"SPDL", OTHER, "spdl"/"SPDL", OTHER, "spd"/'
found raw charts/s3.svg 's/>boto3</>s3_cpu_ms</'
found way charts/s3_pipe.svg 's/(shorter is better)//'
found dark charts/order.svg '/prefers-color-scheme/d'
wide='decode_and_crop_jpeg, the whole of tf.data'
found room charts/crop.svg "s/>tf.data, decode_and_crop</>$wide</"
found one charts/loader.svg "s/<\/svg>/$bar&/"
[ $wrong -eq 0 ]
