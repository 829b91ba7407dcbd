/* JPEGs for benchmarks, by libjpeg-turbo: a decoder that each thread keeps, and 500 x 375 pictures
   cut out of photographs. Comes behind dlpipe.h. HAVE_JPEG is 0 where libjpeg is not installed. */
#include <stdio.h>

#if defined(__has_include)
#if __has_include(<jpeglib.h>)
#define HAVE_JPEG 1
#endif
#endif
#ifndef HAVE_JPEG
#define HAVE_JPEG 0
#endif

#if HAVE_JPEG
#include <math.h>
#include <setjmp.h>

#include <jpeglib.h>
#undef FAR /* which it defines to be nothing */

enum { SIDE = 224, PICTURE_BYTES = SIDE * SIDE * 3, CUT_WIDTH = 500, CUT_HEIGHT = 375 };

/* libjpeg calls error_exit and expects it not to return. */
struct jpeg_trouble {
    struct jpeg_error_mgr base;
    jmp_buf out;
    char words[JMSG_LENGTH_MAX];
};

static void jpeg_trouble_exit(j_common_ptr info) {
    struct jpeg_trouble *t = (struct jpeg_trouble *)info->err;
    info->err->format_message(info, t->words);
    longjmp(t->out, 1);
}

static void jpeg_trouble_quiet(j_common_ptr info) {
    DLPI_UNUSED(info);
}

static struct jpeg_error_mgr *jpeg_trouble_init(struct jpeg_trouble *t) {
    jpeg_std_error(&t->base);
    t->base.error_exit = jpeg_trouble_exit;
    t->base.output_message = jpeg_trouble_quiet;
    return &t->base;
}

/* A thread's own: libjpeg's record lives on from picture to picture. */
struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_trouble trouble;
    uint8_t *line;
    size_t line_bytes;
    bool ready;
};

/* Decode the lines of an image that has been begun, all of them, and keep the SIDE x SIDE in the
   middle. */
static void decoder_lines(struct decoder *d, uint8_t *out) {
    uint32_t left = (d->jpeg.output_width - SIDE) / 2, top = (d->jpeg.output_height - SIDE) / 2;
    while (d->jpeg.output_scanline < d->jpeg.output_height) {
        uint32_t y = d->jpeg.output_scanline;
        jpeg_read_scanlines(&d->jpeg, &d->line, 1);
        if (y >= top && y < top + SIDE) {
            memcpy(out + (size_t)(y - top) * SIDE * 3, d->line + (size_t)left * 3, SIDE * 3);
        }
    }
}

static bool decoder_room(struct decoder *d) {
    size_t want = (size_t)d->jpeg.output_width * 3;
    if (want > d->line_bytes) {
        free(d->line);
        d->line = malloc(want);
        d->line_bytes = d->line == NULL ? 0 : want;
    }
    return d->line != NULL;
}

/* Decode a picture and keep [SIDE][SIDE][3] of its middle. All of it is decoded, as PIL does, whose
   figures stand beside ours. Returns NULL, or why not. */
static const char *decode(struct decoder *d, const uint8_t *bytes, size_t n, uint8_t *out) {
    if (setjmp(d->trouble.out) != 0) {
        jpeg_abort_decompress(&d->jpeg);
        return d->trouble.words;
    }
    if (!d->ready) {
        d->jpeg.err = jpeg_trouble_init(&d->trouble);
        jpeg_create_decompress(&d->jpeg);
        d->ready = true;
    }
    jpeg_mem_src(&d->jpeg, bytes, (unsigned long)n);
    jpeg_read_header(&d->jpeg, TRUE);
    d->jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d->jpeg);
    if (d->jpeg.output_width < SIDE || d->jpeg.output_height < SIDE || !decoder_room(d)) {
        jpeg_abort_decompress(&d->jpeg);
        return "a picture under 224 x 224, or no memory";
    }
    decoder_lines(d, out);
    jpeg_finish_decompress(&d->jpeg);
    return NULL;
}

static void decoder_end(struct decoder *d) {
    if (d->ready) {
        jpeg_destroy_decompress(&d->jpeg);
    }
    free(d->line);
    *d = (struct decoder){.ready = false};
}

/* ---- pictures cut out of photographs ----------------------------------------------------------
 */

struct photo {
    uint8_t *rgb;
    uint32_t width, height;
};

static bool photo_read(struct photo *p, const char *path) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_trouble trouble;
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return false;
    }
    jpeg.err = jpeg_trouble_init(&trouble);
    jpeg_create_decompress(&jpeg);
    p->rgb = NULL;
    if (setjmp(trouble.out) == 0) {
        jpeg_stdio_src(&jpeg, f);
        jpeg_read_header(&jpeg, TRUE);
        jpeg.out_color_space = JCS_RGB;
        jpeg_start_decompress(&jpeg);
        p->width = jpeg.output_width, p->height = jpeg.output_height;
        p->rgb = malloc((size_t)p->width * p->height * 3);
        while (p->rgb != NULL && jpeg.output_scanline < p->height) {
            uint8_t *line = p->rgb + (size_t)jpeg.output_scanline * p->width * 3;
            jpeg_read_scanlines(&jpeg, &line, 1);
        }
    }
    jpeg_destroy_decompress(&jpeg);
    fclose(f);
    return p->rgb != NULL;
}

/* A made picture, for where there are no photographs: waves of colour, and noise. */
static bool photo_made(struct photo *p, uint32_t width, uint32_t height) {
    *p = (struct photo){malloc((size_t)width * height * 3), width, height};
    for (uint32_t y = 0; p->rgb != NULL && y < height; y++) {
        for (uint32_t x = 0; x < width * 3; x++) {
            uint32_t noise = (x * 2654435761u ^ y * 2246822519u) >> 27;
            p->rgb[(size_t)y * width * 3 + x] =
                (uint8_t)(100 + 60 * sin(x * 0.013) * cos(y * 0.021 + x % 3) + noise);
        }
    }
    return p->rgb != NULL;
}

/* Copy CUT_WIDTH x CUT_HEIGHT out of a photograph, each pixel the mean of shrink x shrink. */
static void photo_cut(const struct photo *p, uint32_t left, uint32_t top, uint32_t shrink,
                      uint8_t *out) {
    for (uint32_t y = 0; y < CUT_HEIGHT; y++) {
        for (uint32_t x = 0; x < CUT_WIDTH * 3; x++) {
            uint32_t sum = 0;
            for (uint32_t k = 0; k < shrink * shrink; k++) {
                size_t row = top + y * shrink + k / shrink;
                size_t column = left + x / 3 * shrink + k % shrink;
                sum += p->rgb[(row * p->width + column) * 3 + x % 3];
            }
            *out++ = (uint8_t)(sum / (shrink * shrink));
        }
    }
}

static bool picture_write(const char *path, uint8_t *rgb, int quality) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_trouble trouble;
    FILE *f = fopen(path, "wb");
    bool good = false;
    if (f == NULL) {
        return false;
    }
    jpeg.err = jpeg_trouble_init(&trouble);
    jpeg_create_compress(&jpeg);
    if (setjmp(trouble.out) == 0) {
        jpeg_stdio_dest(&jpeg, f);
        jpeg.image_width = CUT_WIDTH, jpeg.image_height = CUT_HEIGHT;
        jpeg.input_components = 3, jpeg.in_color_space = JCS_RGB;
        jpeg_set_defaults(&jpeg);
        jpeg_set_quality(&jpeg, quality, TRUE);
        jpeg_start_compress(&jpeg, TRUE);
        while (jpeg.next_scanline < CUT_HEIGHT) {
            uint8_t *line = rgb + (size_t)jpeg.next_scanline * CUT_WIDTH * 3;
            jpeg_write_scanlines(&jpeg, &line, 1);
        }
        jpeg_finish_compress(&jpeg);
        good = true;
    }
    jpeg_destroy_compress(&jpeg);
    return fclose(f) == 0 && good;
}

/* Write pictures 0..n-1 as NNNNN.jpg into a folder: each cut out of the next photograph, at a place
   and a scale that follow from its number alone. */
static bool pictures_cut(const struct photo *photo, uint32_t n_photos, uint32_t n, int dir) {
    static uint8_t rgb[CUT_WIDTH * CUT_HEIGHT * 3];
    for (uint32_t i = 0; i < n; i++) {
        const struct photo *p = &photo[i % n_photos];
        uint64_t random = dlp_hash(20250131, i, 0, 0);
        uint32_t most = p->width / CUT_WIDTH < p->height / CUT_HEIGHT ? p->width / CUT_WIDTH
                                                                      : p->height / CUT_HEIGHT;
        uint32_t shrink = 1 + (uint32_t)(random % (most < 3 ? most : 3));
        uint32_t left = (uint32_t)(random >> 8) % (p->width - CUT_WIDTH * shrink + 1);
        uint32_t top = (uint32_t)(random >> 36) % (p->height - CUT_HEIGHT * shrink + 1);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d/%05u.jpg", dir, i);
        photo_cut(p, left, top, shrink, rgb);
        if (!picture_write(path, rgb, 92)) {
            return false;
        }
    }
    return true;
}
#endif
