#!/bin/sh
# examples/jpeg_folder: with -c, which decodes only what is kept, it has the same bytes as without,
# with any number of workers, of pictures of odd sizes, all usual subsamplings, baseline and
# progressive, at every scale; a picture that is cut off is replaced in both.
dir=$(pwd)/build/example_jpeg
. tests/rig/shell_rig
fresh_dir
printf '#include <stdio.h>\n#include <jpeglib.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1 ||
    skip "no libjpeg to compile with"

cat >"$dir/make.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>
/* make FILE WIDTH HEIGHT HORIZONTAL VERTICAL PROGRESSIVE: noise over a gradient */
int main(int argc, char **argv) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char line[3 * 4096];
    unsigned width = (unsigned)atoi(argv[2]), height = (unsigned)atoi(argv[3]), seed = width * 7919;
    FILE *f = argc == 7 ? fopen(argv[1], "wb") : NULL;
    JSAMPROW row = line;
    if (f == NULL || width > 4096) return 1;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = width;
    c.image_height = height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    c.comp_info[0].h_samp_factor = atoi(argv[4]);
    c.comp_info[0].v_samp_factor = atoi(argv[5]);
    if (atoi(argv[6])) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (unsigned y = 0; y < height; y++) {
        for (unsigned x = 0; x < 3 * width; x++) {
            seed = seed * 1664525 + 1013904223;
            line[x] = (unsigned char)((seed >> 24) / 2 + (x + y) % 128);
        }
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    return fclose(f) != 0;
}
END
${CC:-cc} -std=c11 -O1 -o "$dir/make" "$dir/make.c" -ljpeg || exit 1
linked examples/jpeg_folder.c "$dir/jpeg_folder" -ljpeg || exit 1

mkdir "$dir/pictures"
for size in '224 224' '225 301' '231 224' '259 333' '447 449' '500 375' '1023 900'; do
    for samples in '1 1' '2 1' '2 2' '1 2'; do
        for progressive in 0 1; do
            name=$(echo "$size $samples $progressive" | tr ' ' _)
            # shellcheck disable=SC2086
            "$dir/make" "$dir/pictures/$name.jpg" $size $samples $progressive || exit 1
        done
    done
done

sum_of() { # OPTIONS..
    "$dir/jpeg_folder" -s -b 8 -e 2 "$@" "$dir/pictures" >"$dir/said" 2>&1 || fail "$* failed"
    sed -n 's/^sum of all bytes: //p' "$dir/said"
}
all_alike() {
    whole=$(sum_of -w 0)
    for options in '-w 3' '-c -w 0' '-c -w 3'; do
        # shellcheck disable=SC2086
        sum=$(sum_of $options)
        [ -n "$sum" ] && [ "$sum" = "$whole" ] || fail "$options: $sum, whole pictures: $whole"
    done
}
all_alike
head -c 20000 "$dir/pictures/500_375_2_2_0.jpg" >"$dir/pictures/cut_off.jpg"
all_alike
grep -q 'cut_off.jpg' "$dir/said" || fail "a picture that is cut off is not named"

[ $wrong -eq 0 ]
