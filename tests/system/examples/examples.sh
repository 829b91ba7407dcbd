#!/bin/sh
# The small examples: loader says what it should, and the text of the header is that program,
# slow says what the README shows, mixture pads less and less, stages, interrupted anywhere,
# prints in two lives what it prints in one, stream likewise, of a pipe, share hands out each
# batch to each, or to one, and chunks learns, and the same in several lives, parts whatever
# reads its shards, tokens in one life or two, folder tells its classes apart, epochs has no gap
# between them, table reads what is a table only, tar and webdataset find the samples of shards,
# jsonl reads lines, positions gives any ranks the same rows, pack packs each token, join has the
# rows of all its datasets, graph the same rows of each table whatever its workers, and evaluate
# sees each validation item in each epoch.
dir=build/examples_test
. tests/rig/shell_rig
fresh_dir

for e in loader slow queues actors stages share stream mixture parts concurrent decode tokens \
    folder epochs table tar webdataset jsonl dlpipe_index pack mixture_pack join graph \
    evaluate; do
    linked examples/$e.c $dir/$e || exit 1
done

# loader: two epochs of 16 batches, the last of 40 items, each epoch in an order of its own.
timeout 60 $dir/loader >$dir/said || fail "loader: exit code $?"
[ "$(wc -l <$dir/said)" -eq 32 ] || fail "loader: $(wc -l <$dir/said) batches"
[ "$(grep -c ': 40 items' $dir/said)" -eq 2 ] || fail 'loader: not two short batches'
grep '^epoch 0' $dir/said | sed 's/^epoch .//' >$dir/first
grep '^epoch 1' $dir/said | sed 's/^epoch .//' >$dir/second
! cmp -s $dir/first $dir/second || fail 'loader: both epochs have one order'

# The same code, but for comments and white space, stands in the header.
body() {
    sed -n '/static int fetch(void \*user, dlp_item \*item) {/,/return dlp_pipe_close/p' "$1" |
        sed 's|/\*.*\*/||; s|//.*||' | tr -d ' \n'
}
body examples/loader.c >$dir/body
body dlpipe.h >$dir/body.header
sed -n '/^int main/,$p' examples/loader.c | wc -l >$dir/lines
[ "$(cat $dir/lines)" -le 30 ] || fail "loader: main has $(cat $dir/lines) lines"
[ -s $dir/body ] || fail 'loader: no program found'
cmp -s $dir/body $dir/body.header || fail "the example of the header is not examples/loader.c"

# slow: the README shows the first lines that it says about itself, but for the numbers.
shape() { sed 's/[0-9][0-9.]*/N/g; s/ [num]*s\([;,.]\)/ T\1/g'; }
sed -n '/^<!-- output of examples\/slow.c -->$/,/^$/p' README.md | grep '^[A-Z][a-z]*: ' |
    shape >$dir/slow.readme
timeout 60 $dir/slow $dir/slow.svg | shape >$dir/slow.said || fail "slow: exit code $?"
head -n "$(wc -l <$dir/slow.readme)" $dir/slow.said >$dir/slow.first
[ -s $dir/slow.readme ] && cmp -s $dir/slow.readme $dir/slow.first ||
    fail "README.md does not show what slow says: $(cat $dir/slow.said)"
grep -q '>the consumer waits<' $dir/slow.svg || fail 'slow: left no picture'

# evaluate: the same numbers for any number of workers; each epoch has all items of the validation,
# and training stops early, three epochs after the best one, or after as many as it is told.
for workers in 0 3; do
    timeout 60 $dir/evaluate -w $workers >$dir/said.$workers || fail "evaluate -w $workers: code $?"
done
cmp -s $dir/said.0 $dir/said.3 || fail "evaluate: other numbers: $(cat $dir/said.0 $dir/said.3)"
awk '/^epoch/ { n++; if ($0 !~ /of 250 items$/) wrong = 1 }
    /^stopped early/ { stopped = 1; if ($5 + 0 != n - 1 || $5 - $9 != 3) wrong = 1 }
    END { exit wrong || !stopped || n > 50 }' $dir/said.0 || fail "evaluate: $(cat $dir/said.0)"
timeout 60 $dir/evaluate -e 2 >$dir/said && grep -q '^done after epoch 1, ' $dir/said &&
    [ "$(grep -c '^epoch' $dir/said)" -eq 2 ] || fail "evaluate -e 2: $(cat $dir/said)"

# actors: one is killed, and what the learner gets is enough to find the way.
timeout 60 $dir/actors 3 300 >$dir/said || fail "actors: exit code $?: $(cat $dir/said)"
grep -q '^300 batches, the goal is 10 steps away$' $dir/said || fail "actors: $(cat $dir/said)"

# queues: a writer is killed half way, and nothing that it had pushed is lost.
timeout 60 $dir/queues >$dir/said || fail "queues: exit code $?: $(cat $dir/said)"
grep -q '^writer 2: killed by signal 9 after 10000 records' $dir/said &&
    [ "$(grep -c '^writer [0-3]: 20000 records$' $dir/said)" -eq 4 ] ||
    fail "queues says: $(cat $dir/said)"

# mixture: the same texts in each of the three ways, with ever less padding, under the budget.
timeout 60 $dir/mixture >$dir/said || fail "mixture: exit code $?: $(cat $dir/said)"
[ "$(grep -c '; 20000 books 8000 chats 12000 code$' $dir/said)" -eq 3 ] ||
    fail "mixture: not the weights' shares: $(cat $dir/said)"
sed 's/.*up to *\([0-9]*\) tokens, *\([0-9]*\)\.[0-9] % padding.*/\1 \2/' $dir/said | awk '
    NR > 1 && $2 * 2 > padding { wrong = 1 } NR == 3 && $1 > 16384 { wrong = 1 } { padding = $2 }
    END { exit wrong || NR != 3 }' || fail "mixture: padding or budget: $(cat $dir/said)"

# pack: the same tokens by each rule; one repeated gives each but a document's last a label.
timeout 60 $dir/pack >$dir/said || fail "pack: exit code $?: $(cat $dir/said)"
sed 's/.* segments, *\([0-9]*\) tokens, *\([0-9.]*\) %.*; *\([0-9]*\) labels.*/\1 \2 \3/' \
    $dir/said | awk '
    { tokens[NR] = $1; padding[NR] = $2; labels[NR] = $3 }
    END { exit !(NR == 4 && tokens[1] == tokens[3] && tokens[1] == tokens[4] &&
                 labels[2] == tokens[1] - 4000 && labels[3] < labels[2] && padding[1] < 0.1 &&
                 padding[4] < padding[3] && padding[3] < 2) }' || fail "pack: $(cat $dir/said)"

# mixture_pack: a resume changes no loss; the shares are the weights' by documents, of which those
# of the second corpus are shorter; words are easier than numbers. Files of the user are read, too.
timeout 60 $dir/mixture_pack >$dir/said || fail "mixture_pack: exit code $?: $(cat $dir/said)"
awk '/^corpus/ { tokens[+n] = $3; bits[+n] = $5; alone[n++] = $NF }
    /^two lives: the same as one$/ { same = 1 }
    END { exit !(same && n == 2 && tokens[0] + tokens[1] == 614400 && tokens[0] > 3 * tokens[1] &&
                 bits[1] > bits[0] + 0.3 && alone[0] < bits[0] && alone[1] > bits[0] + 0.3) }' \
    $dir/said || fail "mixture_pack: $(cat $dir/said)"
for i in 1 2 3; do echo "{\"text\": \"document $i\"}"; done >$dir/own.jsonl
timeout 60 $dir/mixture_pack $dir/own.jsonl $dir/own.jsonl |
    grep -q '^two lives: the same as one$' ||
    fail 'mixture_pack: not of files'
! timeout 60 $dir/mixture_pack $dir/own.jsonl $dir/said 2>$dir/why || fail 'mixture_pack: any file'
grep -q 'no line {"text"' $dir/why || fail "mixture_pack: $(cat $dir/why)"

# join: pictures with their own labels, and of a mix the weights' shares, each by its own stage.
timeout 60 $dir/join -k 64 -w 6 >$dir/said || fail "join: exit code $?"
printf 'zipped: 600 rows, 0 wrong\nmixed: 1200 rows, 0 wrong; quick 900, slow 300\n' |
    cmp -s - $dir/said || fail "join says: $(cat $dir/said)"

# decode: any number of cells and workers, the same pictures.
timeout 60 $dir/decode -w 1 >$dir/said || fail "decode: exit code $?"
timeout 60 $dir/decode -k 64 -w 3 -c 40 >>$dir/said || fail "decode -k: exit code $?"
[ "$(grep -c 'a mean of 0.6136, 0 labels wrong' $dir/said)" -eq 2 ] ||
    fail "decode says: $(cat $dir/said)"

# graph: a plan and a line for each table. Workers and reads in flight change no checksum. Three of
# the tables have the same rows.
graph() {
    timeout 60 $dir/graph -n 2000 "$@" >$dir/said 2>&1 || fail "graph $*: $(cat $dir/said)"
    sed -n 's|, [1-9][0-9]* rows/s, checksum| |p' $dir/said
}
graph >$dir/whole
[ "$(wc -l <$dir/whole)" -eq 9 ] || fail "graph says: $(cat $dir/said)"
[ "$(grep -c '^---- ' $dir/said)" -eq 9 ] && [ "$(grep -c '^total  *= ' $dir/said)" -eq 9 ] ||
    fail "graph does not say all plans: $(cat $dir/said)"
grep -q '^link read -> decode ' $dir/said || fail "graph has other links: $(cat $dir/said)"
grep -q '^link read -> log ' $dir/said && grep -q '^shards: the log had [0-9]* batches' $dir/said ||
    fail "graph has no log: $(cat $dir/said)"
sum=$(sed -n 's/^economic: 2000 rows *//p' $dir/whole)
[ "$(grep -Ec "^(economic|classic|speeds): 2000 rows +$sum" $dir/whole)" -eq 3 ] ||
    fail "graph, of the same rows: $(cat $dir/whole)"
graph -q -w 0 -k 1 | cmp -s - $dir/whole || fail "graph without workers: $(cat $dir/said)"
[ "$(wc -l <$dir/said)" -eq 10 ] || fail "graph -q says: $(cat $dir/said)"
graph -w 3 filtered speeds pushed >$dir/took
for t in filtered speeds pushed; do grep $t $dir/whole; done | cmp -s - $dir/took ||
    fail "graph -w 3: $(cat $dir/took)"
graph -q -g $dir/graph.svg speeds
! [ -s $dir/said ] && grep -q '>decode</text>' $dir/graph.svg || fail "graph -g: $(cat $dir/said)"
timeout 60 $dir/graph rows >$dir/said 2>&1
[ $? -eq 2 ] && grep -q '^usage: graph ' $dir/said || fail "graph rows: $(cat $dir/said)"

# concurrent: each row of its table has the same items.
timeout 60 $dir/concurrent -n 256 -l 2 >$dir/said || fail "concurrent: exit code $?"
[ "$(grep -c 'items/s' $dir/said)" -eq 6 ] || fail "concurrent says: $(cat $dir/said)"
timeout 60 $dir/concurrent -l 0 examples >$dir/said || fail "concurrent examples: $(cat $dir/said)"

# stages: one life, and lives that end after a few batches.
timeout 60 $dir/stages $dir/state >$dir/whole 2>$dir/said ||
    fail "stages: exit code $?: $(cat $dir/said)"
[ "$(wc -l <$dir/whole)" -eq 250 ] || fail "stages: $(wc -l <$dir/whole) batches, expected 250"
grep -q '^done; 80 signals replaced' $dir/said || fail "stages says: $(cat $dir/said)"
for cut in 1 57 124 125 200 250; do
    rm -f $dir/state
    {
        timeout 60 $dir/stages $dir/state $cut && timeout 60 $dir/stages $dir/state
    } >$dir/lives 2>$dir/said || fail "stages, cut at $cut: exit code $?: $(cat $dir/said)"
    cmp -s $dir/whole $dir/lives || fail "stages, cut at $cut: two lives differ from one"
done

# A damaged state is refused.
printf 'x' | dd of=$dir/state bs=1 seek=100 conv=notrunc 2>/dev/null
if timeout 60 $dir/stages $dir/state >$dir/lives 2>$dir/said; then
    fail 'stages: took a damaged state'
fi
grep -q 'DLP_ERR_CORRUPT' $dir/said || fail "stages, of a damaged state: $(cat $dir/said)"

# What is no state at all is refused, and left as it is: by stream, too.
for text in 'my thesis' ''; do
    printf '%s' "$text" >$dir/state
    timeout 60 $dir/stages $dir/state >$dir/lives 2>$dir/said && fail "stages: took '$text'"
    grep -q "$dir/state: not a file that this program has written" $dir/said ||
        fail "stages, of '$text': $(cat $dir/said)"
    echo a | timeout 60 $dir/stream -s $dir/state >$dir/lives 2>$dir/said &&
        fail "stream: took '$text'"
    grep -q "$dir/state: not a file that this program has written" $dir/said ||
        fail "stream, of '$text': $(cat $dir/said)"
    [ ! -s $dir/lives ] && [ "$(cat $dir/state)" = "$text" ] || fail "'$text': not left as it is"
done
cat $dir/whole $dir/whole >$dir/state # longer than any
timeout 60 $dir/stages $dir/state >$dir/lives 2>$dir/said && fail 'stages: took a long file'

# stream: lines of a pipe, in one life and in several; a jump; a way back that is not there.
lines() {
    awk "BEGIN { for (i = 1; i <= $1; i++) print i }"
}
lines 30 | timeout 60 $dir/stream >$dir/whole || fail "stream: exit code $?"
[ "$(wc -l <$dir/whole)" -eq 8 ] || fail "stream: $(wc -l <$dir/whole) batches, expected 8"
grep -q '^batch 7, lines 28..29: \[29\] \[30\]$' $dir/whole || fail 'stream: another last batch'
for cut in 1 4 7 8; do
    rm -f $dir/state
    lines 30 | timeout 60 $dir/stream -s $dir/state -n $cut >$dir/lives || fail "stream: rc $?"
    lines 30 | timeout 60 $dir/stream -s $dir/state >>$dir/lives || fail "stream: exit code $?"
    cmp -s $dir/whole $dir/lives || fail "stream, cut at $cut: two lives differ from one"
done
lines 30 >$dir/lines30
timeout 60 $dir/stream -b 5 $dir/lines30 >$dir/lives || fail "stream -b: exit code $?"
tail -3 $dir/whole | cmp -s - $dir/lives || fail 'stream: another jump'
printf 'a\nb' | timeout 60 $dir/stream >$dir/lives
grep -q '^batch 0, lines 0..1: \[a\] \[b\]$' $dir/lives || fail 'stream: a line without its end'

# share: two trainers get 600 batches each, or 600 together; the name is gone afterwards.
name=examples-share-$$
share() { # mode
    timeout 60 $dir/share take $name >$dir/took.1 2>&1 &
    one=$!
    timeout 60 $dir/share take $name >$dir/took.2 2>&1 &
    two=$!
    timeout 60 $dir/share serve $name "$1" >$dir/said 2>&1 || fail "share $1: $(cat $dir/said)"
    grep -q "^serving '$name': waiting for 2 trainers" $dir/said || fail "share: $(cat $dir/said)"
    wait $one || fail "share take, $1: $(cat $dir/took.1)"
    wait $two || fail "share take, $1: $(cat $dir/took.2)"
    cat $dir/took.1 $dir/took.2 >$dir/took
    ! [ -e /dev/shm/dlpipe.$name ] || fail "share $1: the name is left"
}
share each
[ "$(grep -c 'took: 600 batches, 30000 items, sum 149985000: all' $dir/took)" -eq 2 ] ||
    fail "share each: $(cat $dir/took)"
# A logger beside: it misses some, and holds up nobody.
timeout 60 $dir/share serve $name each >$dir/said 2>&1 &
one=$!
timeout 60 $dir/share log $name >$dir/logged 2>&1 &
two=$!
timeout 60 $dir/share take $name >$dir/took 2>&1 || fail "share take beside log: $(cat $dir/took)"
wait $one || fail "share serve beside log: $(cat $dir/said)"
wait $two || fail "share log: $(cat $dir/logged)"
grep -q ': all$' $dir/took && grep -q ': all but [1-9][0-9]* missed$' $dir/logged ||
    fail "share log: $(cat $dir/took $dir/logged)"
share one
sum=$(awk '/: all$/ { sub(":", "", $7); n += $7 } END { printf "%d", n }' $dir/took)
[ "$sum" -eq 149985000 ] ||
    fail "share one: $(cat $dir/took)"

gone() {
    ! kill -0 "$1" 2>/dev/null || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# positions: any ranks, workers and lives learn from the same rows; a filter keeps a tenth.
positions() {
    timeout 60 $dir/positions -f 30 -n 60 "$@" $dir/games 2>&1
}
if printf '#include <zlib.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1; then
    linked examples/positions.c $dir/positions -lz || exit 1
    mkdir -p $dir/games
    positions >$dir/said || fail "positions: $(cat $dir/said)"
    grep -q '^[0-9]* positions/s of 2 ranks; two plain threads, .*: [1-9]' $dir/said ||
        fail "positions says: $(cat $dir/said)"
    grep -q "^rank 0: Inputs: 'quiet' makes [0-9]* items of each" $dir/said ||
        fail "positions does not say what is kept: $(cat $dir/said)"
    grep '^60 steps, 61440 positions, sum' $dir/said >$dir/whole ||
        fail "positions: $(cat $dir/said)"
    for ranks in 1 4; do
        positions -p -r $ranks -w $ranks | grep '^60 steps' | cmp -s - $dir/whole ||
            fail "positions: $ranks ranks are others than 2"
    done
    rm -f $dir/state
    for life in '2 1' '1 16' '4 20' '2 99'; do
        positions -p -s $dir/state -r ${life% *} -k ${life#* } >$dir/lives ||
            fail "positions: $(cat $dir/lives)"
    done
    tail -1 $dir/lives | cmp -s - $dir/whole || fail 'positions: four lives are others than one'
    [ "$(ls $dir/games | wc -l)" -eq 30 ] || fail "positions: $(ls $dir/games | wc -l) shards"
    printf x >$dir/games/games-0003.gz
    positions -p >$dir/said && fail 'positions: took a shard that is none'
    grep -q 'can.t read .*games-0003.gz' $dir/said || fail "positions, torn: $(cat $dir/said)"
fi

# chunks: validation gets better, then training stops early; in lives that end anywhere, without
# loader threads, and with any preload it learns the same; Ctrl-C leaves what was learnt.
linked examples/chunks.c $dir/chunks -O2 || exit 1
chunks() {
    timeout 60 $dir/chunks -n 2500 -c 250 "$@" 2>$dir/why || fail "chunks $*: $(cat $dir/why)"
}
chunks >$dir/whole
awk '/^epoch.*rate/ { loss = $(NF - 4) + 0; right = $(NF - 1)
                      if (n++ == 0) { first = loss; best = loss } if (loss < best) best = loss }
     /: nothing better for 3 epochs: training stops$/ { early = 1 }
     /^test accuracy/ { test = $3 }
     END { exit !(n > 4 && n < 30 && early && best < 0.95 * first && right > 60 && test > 60) }' \
    $dir/whole || fail "chunks learns nothing, or does not stop: $(cat $dir/whole)"
chunks -q 99 -e 6 >$dir/took
grep -q '^epoch  5:' $dir/took && ! grep -q 'training stops' $dir/took ||
    fail "chunks, with patience: $(cat $dir/took)"
chunks -w 0 | cmp -s - $dir/whole || fail 'chunks: not the same without loaders'
chunks -p 1 -w 2 >$dir/took
for preload in 2 3; do
    chunks -p $preload | cmp -s - $dir/took || fail "chunks: not the same with preload $preload"
done
for cut in 1 44 45 46 130; do # an epoch has 45 steps
    rm -f $dir/state
    {
        chunks -s $dir/state -k $cut | grep '^epoch'
        chunks -s $dir/state -w 0
    } >$dir/lives
    cmp -s $dir/whole $dir/lives || fail "chunks, cut at $cut: $(diff $dir/whole $dir/lives)"
done
tail -1 $dir/whole >$dir/end
chunks -s $dir/state | cmp -s - $dir/end || fail 'chunks: goes on with what was over'
( # what a shell puts in the background may ignore SIGINT; the program asks for it again
    exec $dir/chunks -e 9999 -q 9999 -n 2000 -c 500 -p 3
) >$dir/said 2>&1 &
pid=$!
await handles 2 $pid || fail 'chunks: has no handler for SIGINT'
sleep 1
kill -INT $pid 2>/dev/null
await gone $pid || fail 'chunks: SIGINT does not end it'
kill -KILL $pid 2>/dev/null
wait $pid
grep -q '^stopped after [0-9]* steps' $dir/said || fail "chunks, SIGINT: $(cat $dir/said)"
grep -q '^test accuracy' $dir/said || fail "chunks, SIGINT: $(cat $dir/said)"

# parts: makes its shards, and learns the same with part workers as without.
mkdir $dir/shards
timeout 60 $dir/parts -e 1 $dir/shards >$dir/said 2>&1 || fail "parts: $(cat $dir/said)"
timeout 60 $dir/parts -e 1 -w 0 -q 12 $dir/shards >$dir/took 2>&1 || fail "parts: $(cat $dir/took)"
grep '^epoch 0: 9[0-9]' $dir/said >$dir/first || fail "parts: $(cat $dir/said)"
grep '^epoch' $dir/took | cmp -s - $dir/first || fail 'parts: not the same without part workers'
[ "$(ls $dir/shards | wc -l)" -eq 24 ] || fail "parts: $(ls $dir/shards | wc -l) shards"

# tokens: learns, and in two lives prints what it prints in one, whatever the workers.
timeout 60 $dir/tokens >$dir/whole 2>$dir/said || fail "tokens: exit code $?: $(cat $dir/said)"
grep -q '^3 shards, 83331 tokens, 1301 windows' $dir/said || fail "tokens says: $(cat $dir/said)"
awk '{ last = $NF } NR == 1 { first = last } END { exit !(first > 4 && last < 1.5) }' $dir/whole ||
    fail "tokens: learns nothing: $(cat $dir/whole)"
for cut in 1 100 162 300; do
    rm -f $dir/state
    {
        timeout 60 $dir/tokens -w 0 -n $cut -s $dir/state &&
            timeout 60 $dir/tokens -w 2 -s $dir/state
    } >$dir/lives 2>$dir/said || fail "tokens, cut at $cut: exit code $?: $(cat $dir/said)"
    cmp -s $dir/whole $dir/lives || fail "tokens, cut at $cut: two lives differ from one"
done
timeout 60 $dir/tokens -t 32 -s $dir/state >$dir/lives 2>$dir/said && fail 'tokens: took that state'
grep -q 'DLP_ERR_RESUME' $dir/said || fail "tokens, of another length: $(cat $dir/said)"
timeout 60 $dir/tokens "$dir/no*" >$dir/lives 2>$dir/said && fail 'tokens: found shards'
grep -q 'no file matches' $dir/said || fail "tokens, without shards: $(cat $dir/said)"

# folder: three classes of one colour each; a picture that is none is replaced and counted.
timeout 60 $dir/folder >$dir/said || fail "folder: exit code $?"
[ "$(grep -c ' 40 files, mean colour' $dir/said)" -eq 3 ] || fail "folder says: $(cat $dir/said)"
grep -q '^red .*mean colour 1[0-9][0-9]  50  50$' $dir/said || fail "folder says: $(cat $dir/said)"
mkdir -p $dir/pictures/a $dir/pictures/b
printf 'P6 1 1 255\nabc' >$dir/pictures/a/1.ppm
printf 'P6 9 9 255\nabc' >$dir/pictures/b/short.ppm
printf 'P6 1 1 255\nxyz' >$dir/pictures/b/2.PPM
timeout 60 $dir/folder $dir/pictures >$dir/said || fail "folder: exit code $?: $(cat $dir/said)"
grep -q '^1 could not be decoded' $dir/said || fail "folder, damaged: $(cat $dir/said)"
timeout 60 $dir/folder $dir/none >$dir/said 2>&1 && fail 'folder: listed nothing'
grep -q 'No such file' $dir/said || fail "folder, of nothing: $(cat $dir/said)"
mkdir -p $dir/validation/b
cp $dir/pictures/b/2.PPM $dir/validation/b
timeout 60 $dir/folder -t $dir/pictures $dir/validation >$dir/said 2>&1 || fail "folder -t: $?"
grep -q '^b  *1 files' $dir/said && grep -q 'classes without files: 1 (a)' $dir/said ||
    fail "folder -t says: $(cat $dir/said)"
mkdir $dir/validation/other
timeout 60 $dir/folder -t $dir/pictures $dir/validation >$dir/said 2>&1 &&
    fail 'folder -t: took all'
grep -q '"other" is none of the 2 classes' $dir/said || fail "folder -t says: $(cat $dir/said)"

# epochs: one pipe has the same workers for all epochs, and loses less at borders than a pipe each,
# with set_epoch too.
timeout 60 $dir/epochs -e 4 -w 3 -i 60 -o $dir >$dir/said || fail "epochs: exit code $?"
awk '/^one pipe for/ { way = 0 } /^one pipe with/ { way = 1 } /^a pipe/ { way = 2 }
     /^  epoch/ { if (NF != 6) wrong = 1
                  for (i = 4; i <= NF; i++) if (!pid[$i]++) seen[way]++ }
     /^epoch/ { n++; if ($7 < 60) wrong = 1; for (i = 0; i < 3; i++) lost[i] += $(3 + 2 * i) }
     END { exit !(!wrong && n == 3 && seen[0] == 3 && seen[1] == 3 && seen[2] == 12 &&
                  lost[0] * 3 < lost[2] && lost[1] < lost[2]) }' $dir/said ||
    fail "epochs says: $(cat $dir/said)"
grep -q '^same batches: yes$' $dir/said || fail "epochs: $(cat $dir/said)"
for words in 'one pipe for all epochs: ' 'one pipe with set_epoch: ' 'a pipe for each epoch: ' \
    '>fetch-2<'; do
    grep -q "$words" $dir/epochs.svg || fail "epochs: its picture has no '$words'"
done

# table: means of columns, in any order of the rows; a line that is cut is named.
timeout 60 $dir/table >$dir/said || fail "table: exit code $?"
grep -q '^1000 rows, 499.5, 249.75, 332834$' $dir/said || fail "table says: $(cat $dir/said)"
printf 'a,b\r\n1,2\r\n3,4' >$dir/table.csv
timeout 60 $dir/table -w 1 $dir/table.csv >$dir/said || fail "table: exit code $?"
grep -q '^2 rows, 2, 3$' $dir/said || fail "table says: $(cat $dir/said)"
printf 'a,b\n1,2\n3\n5,6,7\n' >$dir/table.csv
timeout 60 $dir/table $dir/table.csv >$dir/said 2>&1 && fail 'table: took lines of other lengths'
grep -Eq 'item [12] .*column [23]: (missing|surplus)' $dir/said ||
    fail "table says: $(cat $dir/said)"

# jsonl: each text once, with any number of threads; an index file is written once; a line is named.
timeout 60 $dir/jsonl -w 3 >$dir/said || fail "jsonl: exit code $?"
texts='1000 texts, 10.50 bytes each; 143 143 143 143 143 143 142 0 0 0'
[ "$(cat $dir/said)" = "$texts" ] || fail "jsonl says: $(cat $dir/said)"
printf '{"text": "a", "label": 1}\r\n\n{"label": 2, "text": "bcd"}' >$dir/a.jsonl
cp $dir/a.jsonl $dir/b.jsonl
for i in 1 2; do
    timeout 60 $dir/jsonl -w 1 -t 2 $dir/a.jsonl $dir/b.jsonl >$dir/said ||
        fail "jsonl: exit code $?"
    grep -q '^4 texts, 2.00 bytes each; 0 2 2 0' $dir/said || fail "jsonl says: $(cat $dir/said)"
done
[ "$(wc -c <$dir/b.jsonl.dlpidx)" -eq 88 ] || fail 'jsonl: no index file of two lines'

# dlpipe_index: the index of each file is there before a job; one that cannot be written is told.
cp $dir/b.jsonl $dir/c.jsonl
timeout 60 $dir/dlpipe_index -e $dir/b.jsonl $dir/c.jsonl >$dir/said || fail "dlpipe_index: $?"
grep -q '/b.jsonl: 2 items.*its index was there$' $dir/said &&
    grep -q '/c.jsonl: 2 items, the longest has [0-9]* bytes$' $dir/said ||
    fail "dlpipe_index says: $(cat $dir/said)"
cmp -s $dir/b.jsonl.dlpidx $dir/c.jsonl.dlpidx && fail 'dlpipe_index: the index of another file'
[ "$(wc -c <$dir/c.jsonl.dlpidx)" -eq 88 ] || fail 'dlpipe_index: no index file of two lines'
timeout 60 $dir/dlpipe_index -d $dir/not/there $dir/c.jsonl >$dir/said 2>&1 &&
    fail 'dlpipe_index: no index, and no word'
grep -q 'its index file cannot be written' $dir/said || fail "dlpipe_index: $(cat $dir/said)"
timeout 60 $dir/dlpipe_index $dir/none.tar >$dir/said 2>&1 && fail 'dlpipe_index: of nothing'
grep -q 'none.tar: open: No such file' $dir/said || fail "dlpipe_index: $(cat $dir/said)"
echo '{"text": "a", "label": 11}' >$dir/a.jsonl
timeout 60 $dir/jsonl $dir/a.jsonl >$dir/said 2>&1 && fail 'jsonl: took a label of 11'
grep -q 'item 0 .*no label of 0 to 9' $dir/said || fail "jsonl says: $(cat $dir/said)"

# tar: each sample of made-up shards once; of one that tar made, where it has that; a label is lost.
timeout 60 $dir/tar >$dir/said || fail "tar: exit code $?"
[ "$(grep -c ': 75 samples, ' $dir/said)" -eq 10 ] || fail "tar says: $(cat $dir/said)"
if command -v tar >/dev/null 2>&1; then
    mkdir $dir/samples
    for i in 10 11 12 13 14 15 16 17 18 19; do
        printf '%064d' 0 >$dir/samples/$i.bin
        echo $((i % 10)) >$dir/samples/$i.cls
    done
    (cd $dir/samples && tar -cf ../a.tar 1?.* && rm 15.cls && tar -cf ../b.tar 1?.*)
    timeout 60 $dir/tar -w 1 -b 4 $dir/a.tar >$dir/said || fail "tar: exit code $?"
    [ "$(grep -c ': 1 samples, first bytes sum to 48$' $dir/said)" -eq 10 ] ||
        fail "tar says: $(cat $dir/said)"
    timeout 60 $dir/tar $dir/a.tar $dir/b.tar >$dir/said 2>&1 && fail 'tar: a label is missing'
    grep -q 'sample 5 of .*b.tar: no .cls' $dir/said || fail "tar says: $(cat $dir/said)"
    # webdataset: the same of all samples at random, and of whole shards.
    for s in '' -s; do
        timeout 60 $dir/webdataset $s >$dir/said || fail "webdataset $s: exit code $?"
        [ "$(grep -c ': 75 samples, ' $dir/said)" -eq 10 ] || fail "webdataset: $(cat $dir/said)"
        timeout 60 $dir/webdataset $s -w 1 -b 4 -m 1 $dir/a.tar >$dir/said ||
            fail "webdataset $s: exit code $?"
        [ "$(grep -c ': 1 samples, first bytes sum to 48$' $dir/said)" -eq 10 ] ||
            fail "webdataset says: $(cat $dir/said)"
        timeout 60 $dir/webdataset $s -m 1 $dir/a.tar $dir/b.tar >$dir/said 2>&1 &&
            fail 'webdataset: a label is missing'
        grep -q ': 15 has no member .cls' $dir/said ||
            fail "webdataset says: $(cat $dir/said)"
        head -c 3000 $dir/a.tar >$dir/cut.tar
        timeout 60 $dir/webdataset $s -m 1 $dir/cut.tar >$dir/said 2>&1 &&
            fail 'webdataset: took a cut shard'
        grep -q 'cut.tar: byte 3000: it was cut' $dir/said || fail "webdataset: $(cat $dir/said)"
    done
    [ -s $dir/a.tar.dlpidx ] || fail 'webdataset: no index file'
fi

[ $wrong -eq 0 ]
