/* Clips of videos: an expand decodes a video and cuts it into clips of 8 frames of 64 x 64 pixels.
   A window mixes clips of several videos. A batch is uint8_t [count][8][64][64][3].
     video FILE...      all that FFmpeg reads
     cc -O2 video.c -lavformat -lavcodec -lavutil -lswscale -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
#include <stdio.h>

enum { FRAMES = 8, SIDE = 64, MOST = 256 /* clips of a video */, BYTES = SIDE * SIDE * 3 };
static int cut(void *paths, dlp_expand *x) {
    const char *path = ((char **)paths)[x->item->index];
    uint8_t *clip = av_malloc(FRAMES * BYTES);
    AVFormatContext *in = NULL;
    AVCodecContext *c = avcodec_alloc_context3(NULL);
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    struct SwsContext *scale = NULL;
    const AVCodec *codec = NULL;
    int rc = avformat_open_input(&in, path, NULL, NULL), n = 0, v = -1, end = 0;
    if (rc >= 0) rc = avformat_find_stream_info(in, NULL);
    if (rc >= 0) rc = v = av_find_best_stream(in, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (rc >= 0) rc = avcodec_parameters_to_context(c, in->streams[v]->codecpar);
    if (rc >= 0) rc = avcodec_open2(c, codec, NULL); /* one thread: other workers have the cores */
    while (rc >= 0 && !end && x->n_made < MOST) {
        end = av_read_frame(in, packet) < 0;
        if (end || packet->stream_index == v) avcodec_send_packet(c, end ? NULL : packet);
        while (avcodec_receive_frame(c, frame) >= 0 && x->n_made < MOST) {
            uint8_t *to[] = {clip + n++ * BYTES};
            scale = sws_getCachedContext(scale, frame->width, frame->height, frame->format, SIDE,
                                         SIDE, AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
            sws_scale(scale, (const uint8_t *const *)frame->data, frame->linesize, 0, frame->height,
                      to, (const int[]){SIDE * 3});
            if (n < FRAMES) continue;
            dlp_item *made = dlp_expand_add(x);
            memcpy(made->data[0], clip, FRAMES * BYTES);
            *(uint32_t *)made->data[1] = (uint32_t)x->item->index;
            n = 0;
        }
        av_packet_unref(packet);
    }
    if (rc < 0) rc = dlp_fail(x->call, 0, "%s: %s", path, av_err2str(rc));
    sws_freeContext(scale), av_frame_free(&frame), av_packet_free(&packet), av_free(clip);
    avcodec_free_context(&c), avformat_close_input(&in);
    return rc < 0 ? rc : 0;
}

int main(int argc, char **argv) {
    const dlp_field fields[] = {
        {.name = "clip", .dtype = DLP_U8, .ndim = 4, .shape = {FRAMES, SIDE, SIDE, 3}},
        {.name = "video", .dtype = DLP_U32}};
    const dlp_node_expand clips = {
        .expand = cut, .user = argv + 1, .max_out = MOST, .fields = fields, .n_fields = 2};
    const dlp_node nodes[] = {
        {.name = "videos", .verb = DLP_LIST, .list = {.n_items = (uint64_t)argc - 1, .shuffle = 1}},
        {.name = "cut", .verb = DLP_EXPAND, .workers = {.num_workers = 2}, .expand = clips},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 64}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (argc < 2) return puts("video FILE..."), 2;
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), NULL, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        for (uint32_t i = 0; i < batch->count; i++) {
            const uint8_t *at = dlp_u8(batch, "clip") + i * FRAMES * BYTES;
            unsigned long sum[3] = {0};
            for (int k = 0; k < FRAMES * BYTES; k++) sum[k % 3] += at[k];
            for (int k = 0; k < 3; k++) sum[k] /= FRAMES * SIDE * SIDE;
            printf("%s: mean colour %lu %lu %lu\n", argv[1 + dlp_u32(batch, "video")[i]], sum[0],
                   sum[1], sum[2]);
        }
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
