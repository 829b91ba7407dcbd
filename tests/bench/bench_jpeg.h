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

struct size {
    uint32_t width, height; /* at most CUT_WIDTH, CUT_HEIGHT */
};

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

static void jpeg_trouble_quiet(j_common_ptr info) { DLPI_UNUSED(info); }

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
    uint8_t *room; /* line, and what lies before it */
    uint8_t *line; /* see decoder_room */
    size_t line_bytes;
    bool ready;
    bool crops; /* decode only what is kept, see decoder_crop */
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

/* libjpeg-turbo writes a line that begins at a multiple of its vectors, 16 or 32 bytes, past the
   caches; copied out again it comes from memory, which makes a picture a third dearer. malloc gives
   such a place to one thread and none to another, always the same, so that rows of a table would
   differ by it alone. 8 bytes behind what malloc gives there is none. */
enum { LINE_SHIFT = 8 };

static bool decoder_room(struct decoder *d) {
    size_t want = (size_t)d->jpeg.output_width * 3;
    if (want > d->line_bytes) {
        free(d->room);
        d->room = malloc(LINE_SHIFT + want);
        d->line = d->room == NULL ? NULL : d->room + LINE_SHIFT;
        d->line_bytes = d->room == NULL ? 0 : want;
    }
    return d->room != NULL;
}

/* Decode only the SIDE x SIDE in the middle, and what comes with it in its blocks: lines above are
   skipped (their entropy decoding is not), lines below are not looked at. Two columns more on each
   side are asked for, which fancy upsampling takes chroma from; so the bytes are those of the whole
   picture's middle. */
static void decoder_crop(struct decoder *d, uint8_t *out) {
    uint32_t width = d->jpeg.output_width, left = (width - SIDE) / 2;
    uint32_t right = left + SIDE + 2 < width ? left + SIDE + 2 : width;
    JDIMENSION x = left < 2 ? 0 : left - 2, n = right - x;
    jpeg_crop_scanline(&d->jpeg, &x, &n);
    jpeg_skip_scanlines(&d->jpeg, (d->jpeg.output_height - SIDE) / 2);
    for (size_t y = 0; y < SIDE; y++) {
        jpeg_read_scanlines(&d->jpeg, &d->line, 1);
        memcpy(out + y * SIDE * 3, d->line + (size_t)(left - x) * 3, SIDE * 3);
    }
}

/* Decode a picture and keep [SIDE][SIDE][3] of its middle. All of it is decoded, as PIL does, whose
   figures stand beside ours, or where it crops what is kept; the bytes are the same, those of the
   accurate integer DCT and of fancy upsampling. Returns NULL, or why not. */
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
    d->jpeg.dct_method = JDCT_ISLOW;
    d->jpeg.do_fancy_upsampling = TRUE;
    jpeg_start_decompress(&d->jpeg);
    if (d->jpeg.output_width < SIDE || d->jpeg.output_height < SIDE || !decoder_room(d)) {
        jpeg_abort_decompress(&d->jpeg);
        return "a picture under 224 x 224, or no memory";
    }
    if (d->crops) {
        decoder_crop(d, out);
        jpeg_abort_decompress(&d->jpeg);
    } else {
        decoder_lines(d, out);
        jpeg_finish_decompress(&d->jpeg);
    }
    return NULL;
}

static void decoder_end(struct decoder *d) {
    if (d->ready) { jpeg_destroy_decompress(&d->jpeg); }
    free(d->room);
    *d = (struct decoder){.crops = d->crops};
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
    if (f == NULL) { return false; }
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

/* Make a photograph a third as wide and high: each pixel the mean of 3 x 3. */
static void photo_shrink(struct photo *p) {
    uint32_t width = p->width / 3, height = p->height / 3;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width * 3; x++) {
            const uint8_t *from = p->rgb + ((size_t)y * 3 * p->width + x / 3 * 3) * 3 + x % 3;
            uint32_t sum = 0;
            for (size_t k = 0; k < 9; k++) { sum += from[(k / 3 * p->width + k % 3) * 3]; }
            p->rgb[(size_t)y * width * 3 + x] = (uint8_t)(sum / 9); /* is behind what is read */
        }
    }
    p->width = width, p->height = height;
}

/* How much there is to see: the mean difference of neighbours, in sixteenths. */
static uint32_t cut_detail(const uint8_t *rgb, struct size size) {
    uint32_t n = size.width * size.height * 3;
    uint64_t sum = 0;
    for (uint32_t i = 3; i < n; i++) { sum += (uint64_t)abs(rgb[i] - rgb[i - 3]); }
    return (uint32_t)(sum * 16 / n);
}

static bool picture_write(const char *path, uint8_t *rgb, struct size size, int quality) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_trouble trouble;
    FILE *f = fopen(path, "wb");
    if (f == NULL) { return false; }
    jpeg.err = jpeg_trouble_init(&trouble);
    jpeg_create_compress(&jpeg);
    if (setjmp(trouble.out) != 0) {
        jpeg_destroy_compress(&jpeg);
        fclose(f);
        return false;
    }
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = size.width, jpeg.image_height = size.height;
    jpeg.input_components = 3, jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < size.height) {
        uint8_t *line = rgb + (size_t)jpeg.next_scanline * size.width * 3;
        jpeg_write_scanlines(&jpeg, &line, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return fclose(f) == 0;
}

/* Cut picture number i out of a photograph, at a place that follows from the number alone. Much of
   the photographs is blurred: of some places the first is taken that has detail. */
static void picture_cut(const struct photo *photo, uint32_t n_photos, uint32_t i, struct size size,
                        uint8_t *rgb) {
    for (uint32_t k = 0; k < 24; k++) {
        const struct photo *p = &photo[(i + k) % n_photos];
        uint64_t random = dlp_hash(20250131, i, k, 0);
        uint32_t left = (uint32_t)(random & 0xffffff) % (p->width - size.width + 1);
        uint32_t top = (uint32_t)(random >> 32) % (p->height - size.height + 1);
        for (size_t y = 0; y < size.height; y++) {
            memcpy(rgb + y * size.width * 3, p->rgb + ((top + y) * p->width + left) * 3,
                   (size_t)size.width * 3);
        }
        if (cut_detail(rgb, size) >= 80) { return; }
    }
}

/* Those of a package of photographs that are there. "made": a computed one. */
static uint32_t photos_read(struct photo photo[4], const char *where) {
    static const char *const name[4] = {"Fossa_by_Jasper_Roks.jpg", "Infinite-Sea_by_Aury88.jpg",
                                        "Kleiber_by_Lukas_Baubkus.jpg",
                                        "Painting-Colors_by__herobrine7gamer.jpg"};
    uint32_t n = 0;
    if (strcmp(where, "made") == 0) { return photo_made(&photo[0], 800, 600) ? 1 : 0; }
    for (size_t i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", where, name[i]);
        if (photo_read(&photo[n], path)) { photo_shrink(&photo[n++]); }
    }
    return n;
}

/* Write pictures 0..n-1 as NNNNN.jpg into a folder, cut out of the photographs in where. */
static bool pictures_cut(const char *where, struct size size, uint32_t n, const char *folder) {
    static uint8_t rgb[CUT_WIDTH * CUT_HEIGHT * 3];
    struct photo photo[4];
    uint32_t n_photos = photos_read(photo, where);
    bool good = n_photos > 0;
    for (uint32_t i = 0; i < n && good; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%05u.jpg", folder, i);
        picture_cut(photo, n_photos, i, size, rgb);
        good = picture_write(path, rgb, size, 95);
    }
    for (uint32_t i = 0; i < n_photos; i++) { free(photo[i].rgb); }
    return good;
}
#endif
