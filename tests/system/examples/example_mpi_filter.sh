#!/bin/sh
# examples/mpi_filter: ranks that do not know how many items a filter leaves them take as many steps
# as each other, and as one rank alone; all together they have the same items.
dir=build/example_mpi_filter
. tests/rig/shell_rig
fresh_dir

command -v mpicc >/dev/null && command -v mpirun >/dev/null ||
    skip 'there is no mpicc or no mpirun (openmpi-bin, libopenmpi-dev)'
LINKED_CC=mpicc linked examples/mpi_filter.c $dir/mpi_filter || exit 1

flags=
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    flags='--allow-run-as-root --oversubscribe'
fi

for last in '' -d; do
    for ranks in 1 3 4; do
        # shellcheck disable=SC2086
        timeout -k 5 60 mpirun $flags -n $ranks $dir/mpi_filter -w 1 $last >$dir/said$ranks \
            2>$dir/errors || fail "$ranks ranks $last: $(cat $dir/errors)"
        cmp -s $dir/said1 $dir/said$ranks ||
            fail "$ranks ranks $last say $(cat $dir/said$ranks), one $(cat $dir/said1)"
    done
    awk '$3 != $5 { exit 1 }' $dir/said1 || fail "other steps: $(cat $dir/said1)"
    [ "$(wc -l <$dir/said1)" -eq 2 ] || fail "not two epochs: $(cat $dir/said1)"
    sed -n 's/.* \([0-9]*\) items.*/\1/p' $dir/said1 >$dir/items$last
done

# All that the filter keeps; without the last batches less.
[ "$(sort -u $dir/items | wc -l)" -eq 1 ] || fail "epochs have other items: $(cat $dir/said1)"
[ "$(head -n 1 $dir/items-d)" -lt "$(head -n 1 $dir/items)" ] || fail 'nothing is dropped'
[ $wrong -eq 0 ]
