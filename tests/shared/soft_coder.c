/* The encoder of libnvidia-encode in software: libavcodec's x264 or x265, from the folder that SOFT_GPU_LIBAV names. */
#include "soft_nvenc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libavcodec, and the first fields of its structures. The type of a frame is one field later before libavutil 60. */

typedef struct {
    unsigned char *data[8]; int linesize[8]; unsigned char **extended; int width, height, samples, format;
    int types[4]; int64_t pts;
} Frame;
typedef struct { void *buffer; int64_t pts, dts; unsigned char *data; int size, stream, flags; } Packet;
typedef struct {
    int type, codec; unsigned tag; unsigned char *extra; int extra_size; void *side; int num_side, format;
    int64_t bit_rate; int bits[2], profile, level, width, height, aspect[2];
} Parameters;
typedef struct { int num, den; } Rational;
struct Coder { void *context; Frame *frame; Packet *packet; Parameters *parameters; Wanted wanted; };

static struct {
    void *(*find)(const char *), *(*alloc)(const void *);
    int (*open)(void *, const void *, void *), (*send)(void *, const Frame *), (*receive)(void *, Packet *);
    void (*free)(void **);
    Parameters *(*alloc_parameters)(void);
    int (*from_parameters)(void *, const Parameters *), (*to_parameters)(Parameters *, const void *);
    void (*free_parameters)(Parameters **);
    Packet *(*alloc_packet)(void);
    void (*unref_packet)(Packet *), (*free_packet)(Packet **);
    Frame *(*alloc_frame)(void);
    int (*get_buffer)(Frame *, int);
    void (*unref_frame)(Frame *), (*free_frame)(Frame **);
    int (*set)(void *, const char *, const char *, int), (*set_number)(void *, const char *, int64_t, int);
    int (*set_fraction)(void *, const char *, Rational, int), (*pixel_format)(const char *);
    unsigned (*version)(void);
} av;
static pthread_once_t loading = PTHREAD_ONCE_INIT;

static void load(void) {
    void *util = soft_library("libavutil"), *codec = soft_library("libavcodec");
    if (!util || !codec) return;
    av.find = dlsym(codec, "avcodec_find_encoder_by_name");
    av.alloc = dlsym(codec, "avcodec_alloc_context3");
    av.open = dlsym(codec, "avcodec_open2");
    av.send = dlsym(codec, "avcodec_send_frame");
    av.receive = dlsym(codec, "avcodec_receive_packet");
    av.free = dlsym(codec, "avcodec_free_context");
    av.alloc_parameters = dlsym(codec, "avcodec_parameters_alloc");
    av.from_parameters = dlsym(codec, "avcodec_parameters_to_context");
    av.to_parameters = dlsym(codec, "avcodec_parameters_from_context");
    av.free_parameters = dlsym(codec, "avcodec_parameters_free");
    av.alloc_packet = dlsym(codec, "av_packet_alloc");
    av.unref_packet = dlsym(codec, "av_packet_unref");
    av.free_packet = dlsym(codec, "av_packet_free");
    av.alloc_frame = dlsym(util, "av_frame_alloc");
    av.get_buffer = dlsym(util, "av_frame_get_buffer");
    av.unref_frame = dlsym(util, "av_frame_unref");
    av.free_frame = dlsym(util, "av_frame_free");
    av.set = dlsym(util, "av_opt_set");
    av.set_number = dlsym(util, "av_opt_set_int");
    av.set_fraction = dlsym(util, "av_opt_set_q");
    av.pixel_format = dlsym(util, "av_get_pix_fmt");
    av.version = dlsym(util, "avutil_version");
}

enum { VIDEO = 0, CHILDREN = 1, KEY = 1 };

/* GOPs, B-frames and what they refer to are as they are told, picture by picture: nothing is decided ahead. */
static void set_options(void *context, const Wanted *wanted) {
    char text[400], quality[16];
    snprintf(quality, sizeof quality, "%g", (double)wanted->quality);
    av.set(context, "preset", "ultrafast", CHILDREN);
    av.set(context, wanted->is_constant_qp ? "qp" : "crf", quality, CHILDREN);
    av.set(context, "forced-idr", "1", CHILDREN);
    av.set(context, "flags", "+global_header", 0);
    av.set_number(context, "threads", 1, 0);
    av.set_fraction(context, "time_base", (Rational){1, 25}, 0);
    if (wanted->is_hevc) {
        snprintf(text, sizeof text, "keyint=-1:min-keyint=1:scenecut=0:open-gop=0:bframes=%d:b-adapt=0:b-pyramid=%d:"
                 "rc-lookahead=%d:lookahead-slices=0:frame-threads=1:pools=none:wpp=0:log-level=none:info=0",
                 wanted->b_frames, wanted->b_references, wanted->b_frames ? wanted->b_frames + 1 : 0);
        av.set(context, "x265-params", text, CHILDREN);
    } else {
        snprintf(text, sizeof text, "keyint=infinite:scenecut=0:open-gop=0:bframes=%d:b-adapt=0:b-pyramid=%s:"
                 "rc-lookahead=0:sync-lookahead=0:mbtree=0:force-cfr=1:cabac=%d",
                 wanted->b_frames, wanted->b_references ? "normal" : "none", !wanted->is_cavlc);
        av.set(context, "x264-params", text, CHILDREN);
    }
    if (!wanted->colours[0]) return;
    av.set_number(context, "color_range", wanted->colours[1] ? 2 : 1, 0);
    av.set_number(context, "color_primaries", wanted->colours[2], 0);
    av.set_number(context, "color_trc", wanted->colours[3], 0);
    av.set_number(context, "colorspace", wanted->colours[4], 0);
}

Coder *soft_coder(const Wanted *wanted) {
    pthread_once(&loading, load);
    const void *found = av.version ? av.find(wanted->is_hevc ? "libx265" : "libx264") : NULL;
    if (!found) return NULL;
    Coder *made = calloc(1, sizeof *made);
    made->wanted = *wanted;
    made->context = av.alloc(found);
    made->frame = av.alloc_frame();
    made->packet = av.alloc_packet();
    Parameters *parameters = made->parameters = av.alloc_parameters();
    parameters->type = VIDEO;
    parameters->format = av.pixel_format(wanted->bits == 10 ? "yuv420p10le" : "yuv420p");
    parameters->width = wanted->width;
    parameters->height = wanted->height;
    memcpy(parameters->aspect, wanted->aspect, sizeof wanted->aspect);
    int error = av.from_parameters(made->context, parameters);
    set_options(made->context, wanted);
    if (error < 0 || av.open(made->context, found, NULL) < 0 || av.to_parameters(parameters, made->context) < 0) {
        soft_end_coder(made);
        return NULL;
    }
    return made;
}

void soft_end_coder(Coder *coder) {
    if (!coder) return;
    av.free(&coder->context);
    av.free_frame(&coder->frame);
    av.free_packet(&coder->packet);
    av.free_parameters(&coder->parameters);
    free(coder);
}

const unsigned char *soft_headers(const Coder *coder, size_t *size) {
    *size = (size_t)coder->parameters->extra_size;
    return coder->parameters->extra;
}

/* Copy planes of the surface, which are as far apart as its height says, to those of a frame. */
static void copy(const Surface *from, Frame *to) {
    const unsigned char *chroma = from->memory + (size_t)from->pitch * from->height;
    size_t sample = from->format == P010 ? 2 : 1;
    for (int plane = 0; plane < 3; plane++) {
        int width = plane ? to->width / 2 : to->width, height = plane ? to->height / 2 : to->height;
        size_t pitch = plane && from->format == YV12 ? from->pitch / 2 : from->pitch;
        const unsigned char *start = !plane ? from->memory
            : from->format == YV12 ? chroma + (plane == 1 ? pitch * (from->height / 2) : 0)
            : chroma + (plane == 2 ? sample : 0);
        size_t step = sample * (plane && from->format != YV12 ? 2 : 1);
        for (int y = 0; y < height; y++) {
            const unsigned char *line = start + (size_t)y * pitch;
            unsigned char *out = to->data[plane] + y * to->linesize[plane];
            for (int x = 0; x < width; x++, line += step) {
                if (sample == 1) out[x] = *line;
                else ((uint16_t *)out)[x] = *(const uint16_t *)line >> 6;
            }
        }
    }
}

int soft_code(Coder *coder, const Surface *surface, int64_t number, int type) {
    if (!surface) return av.send(coder->context, NULL) >= 0;
    /* libavutil's numbers of types: I, P and B are 1, 2 and 3. */
    static const int types[] = {[PICTURE_P] = 2, [PICTURE_B] = 3, [PICTURE_I] = 1, [PICTURE_IDR] = 1};
    Frame *frame = coder->frame;
    frame->width = coder->wanted.width;
    frame->height = coder->wanted.height;
    frame->format = coder->parameters->format;
    if (av.get_buffer(frame, 0) < 0) return 0;
    copy(surface, frame);
    frame->types[av.version() >> 16 >= 60 ? 0 : 1] = types[type];
    frame->pts = number;
    int error = av.send(coder->context, frame);
    av.unref_frame(frame);
    return error >= 0;
}

int soft_coded(Coder *coder, Coded *out) {
    Packet *packet = coder->packet;
    if (av.receive(coder->context, packet) < 0) return 0;
    *out = (Coded){packet->pts, packet->flags & KEY, (size_t)packet->size, malloc((size_t)packet->size)};
    memcpy(out->bytes, packet->data, out->size);
    av.unref_packet(packet);
    return 1;
}
