/* libnvcuvid.so.1 of the driver in software: caps, and decoders. See soft_driver.h.
 *
 * A decoder has surfaces, as NVDEC's have, and behind them libavcodec's decoder for the CPU, from the folder that
 * SOFT_GPU_LIBAV names. It is sent the slices that FFmpeg hands over, with parameter sets made of the picture's
 * parameters. Its pictures are taken in decode order, from the buffers that it asks for, and become NV12 or P016. */
#include "soft_nvcuvid.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libavcodec, and the first fields of its structures. */

typedef struct {
    unsigned char *data[8]; int linesize[8]; unsigned char **extended; int width, height, samples, format;
} Frame;
typedef struct { void *buffer; int64_t pts, dts; unsigned char *data; int size; } Packet;
typedef struct { const void *class; int log_level_offset; } CodecContext;
typedef int GetBuffer(CodecContext *, Frame *, int);

static struct {
    void *(*find)(const char *);
    CodecContext *(*alloc_context)(const void *);
    int (*open)(CodecContext *, const void *, void *);
    void (*free_context)(CodecContext **);
    int (*send)(CodecContext *, const Packet *);
    int (*receive)(CodecContext *, Frame *);
    GetBuffer *get_buffer;
    Packet *(*alloc_packet)(void);
    int (*new_packet)(Packet *, int);
    void (*free_packet)(Packet **);
    Frame *(*alloc_frame)(void), *(*clone_frame)(const Frame *);
    void (*free_frame)(Frame **);
    int (*option)(void *, const char *, int, int64_t *), (*pixel_format)(const char *);
} av;
static pthread_once_t loading = PTHREAD_ONCE_INIT;

static void load(void) {
    void *util = soft_library("libavutil"), *codec = soft_library("libavcodec");
    if (!util || !codec) return;
    av.find = dlsym(codec, "avcodec_find_decoder_by_name");
    av.alloc_context = dlsym(codec, "avcodec_alloc_context3");
    av.open = dlsym(codec, "avcodec_open2");
    av.free_context = dlsym(codec, "avcodec_free_context");
    av.send = dlsym(codec, "avcodec_send_packet");
    av.receive = dlsym(codec, "avcodec_receive_frame");
    av.get_buffer = dlsym(codec, "avcodec_default_get_buffer2");
    av.alloc_packet = dlsym(codec, "av_packet_alloc");
    av.new_packet = dlsym(codec, "av_new_packet");
    av.free_packet = dlsym(codec, "av_packet_free");
    av.alloc_frame = dlsym(util, "av_frame_alloc");
    av.clone_frame = dlsym(util, "av_frame_clone");
    av.option = dlsym(util, "av_opt_get_int");
    av.pixel_format = dlsym(util, "av_get_pix_fmt");
    av.free_frame = dlsym(util, "av_frame_free");
}

/* The buffer that libavcodec has asked for last: that of the picture that it decodes. */
static _Thread_local Frame *asked;

static int noted_buffer(CodecContext *context, Frame *frame, int flags) {
    int error = av.get_buffer(context, frame, flags);
    if (!error) {
        av.free_frame(&asked);
        asked = av.clone_frame(frame);
    }
    return error;
}

static CodecContext *software_decoder(int codec) {
    const void *found = av.find(codec == H264 ? "h264" : codec == HEVC ? "hevc" : "vp9");
    CodecContext *context = found ? av.alloc_context(found) : NULL;
    if (!context) return NULL;
    /* The field for the function that gives buffers is where the default one is. */
    GetBuffer **field = (GetBuffer **)context;
    for (int each = 0; each < 256 && *field != av.get_buffer; each++) field++;
    if (*field != av.get_buffer) abort();
    *field = noted_buffer;
    context->log_level_offset = 100; /* NVDEC says nothing */
    if (av.open(context, found, NULL) < 0) av.free_context(&context);
    return context;
}

/* Send an access unit in two parts; the picture that it makes, or NULL. A frame that comes out, if there is room for
 * one, is left in `shown`. */
static Frame *decoded(CodecContext *context, const unsigned char *sets, size_t sets_bytes, const unsigned char *bytes,
                      size_t num_bytes, Frame *shown) {
    Packet *packet = av.alloc_packet();
    Frame *unused = av.alloc_frame();
    av.free_frame(&asked);
    if (!av.new_packet(packet, (int)(sets_bytes + num_bytes))) {
        memcpy(packet->data, sets, sets_bytes);
        memcpy(packet->data + sets_bytes, bytes, num_bytes);
        av.send(context, packet);
        if (shown) av.send(context, NULL);
        while (!av.receive(context, shown ? shown : unused) && !shown) { }
    }
    av.free_frame(&unused);
    av.free_packet(&packet);
    Frame *found = asked;
    asked = NULL;
    return found;
}

int soft_look(int codec, const unsigned char *bytes, size_t size, Look *out) {
    pthread_once(&loading, load);
    CodecContext *context = av.free_frame ? software_decoder(codec) : NULL;
    if (!context) return 0;
    Frame *shown = av.alloc_frame(), *picture = decoded(context, NULL, 0, bytes, size, shown);
    int found = picture && shown->data[0];
    if (found) {
        int64_t tags[4] = {0};
        static const char *const names[] = {"color_range", "color_primaries", "color_trc", "colorspace"};
        for (int each = 0; each < 4; each++) av.option(context, names[each], 0, &tags[each]);
        int bits = shown->format == av.pixel_format("yuv420p10le") ? 10 : 8;
        *out = (Look){picture->width, picture->height, shown->width, shown->height, bits,
                      tags[0] == 2, (int)tags[1], (int)tags[2], (int)tags[3]};
    }
    if (picture) av.free_frame(&picture);
    av.free_frame(&shown);
    av.free_context(&context);
    return found;
}

/* The calls. */

typedef struct {
    int codec, chroma; unsigned bits_minus8, reserved1[3];
    unsigned char supported, engines; unsigned short formats; unsigned max_width, max_height, max_mbs;
    unsigned short min_width, min_height; unsigned char histogram, counter_bits; unsigned short bins;
    unsigned reserved3[10];
} Caps;
typedef struct {
    unsigned long width, height, surfaces; int codec, chroma;
    unsigned long flags, bits_minus8, intra, max_width, max_height, reserved; short area[4];
    int format, deinterlace; unsigned long target_width, target_height, outputs; void *lock; short target[4];
    unsigned long histogram, reserved2[4];
} CreateInfo;
typedef struct {
    unsigned width, height, target_width, target_height, surfaces, reserved[12]; short area[4], target[4];
    unsigned reserved2[11];
} ReconfigureInfo;
typedef struct { int progressive, second, top_first, unpaired; unsigned rest[4]; void *out; } ProcessingHead;

enum { MAX_SURFACES = 32, NOT_DECODED = 0, DECODED = 2, CONCEALED = 9 };
typedef struct {
    CreateInfo info;
    CodecContext *context;
    unsigned char *surfaces[MAX_SURFACES], *mapped[MAX_SURFACES];
    int status[MAX_SURFACES], order[MAX_SURFACES];
    size_t pitch, lines, bytes;
    unsigned char sets[4096];
    size_t sets_bytes;
    int in_use, device;
} Decoder;

#define CLOSING(name) do { \
    int error_ = soft_called(name); if (error_ || (error_ = soft_context(name))) return error_; } while (0)
/* A decoder is one of its context. */
#define CHECK_DEVICE(decoder) do { if ((decoder)->device != soft_device()) \
    soft_complain("a decoder of device %d in a context of device %d", (decoder)->device, soft_device()); } while (0)
#define IN_CONTEXT(name) do { CLOSING(name); if (soft_broken()) return soft_broken(); } while (0)

int cuvidGetDecoderCaps(Caps *caps) {
    IN_CONTEXT("cuvidGetDecoderCaps");
    /* As an H200, as far as libavcodec decodes it here. */
    int known = caps->codec == H264 ? !caps->bits_minus8 : (caps->codec == HEVC && caps->bits_minus8 <= 2)
        || (caps->codec == VP9 && !caps->bits_minus8);
    caps->supported = caps->chroma == 1 && known;
    if (!caps->supported) return SUCCESS;
    caps->engines = soft_plays("a slice with one engine") ? 1 : soft_plays("a slice without engines") ? 0 : 7;
    caps->formats = caps->bits_minus8 ? 2 : caps->codec == HEVC ? 3 : 1;
    caps->max_width = caps->max_height = caps->codec == H264 ? 4096 : 8192;
    caps->max_mbs = caps->max_width * caps->max_height / 256;
    caps->min_width = caps->codec == H264 ? 48 : caps->codec == HEVC ? 144 : 128;
    caps->min_height = caps->codec == H264 ? 16 : caps->codec == HEVC ? 144 : 128;
    return SUCCESS;
}

static void lay_out(Decoder *decoder) {
    size_t sample = decoder->info.bits_minus8 ? 2 : 1;
    decoder->pitch = (decoder->info.width * sample + 511) / 512 * 512;
    decoder->lines = (decoder->info.height + 1) / 2 * 2 + (soft_plays("chroma 16 lines late") ? 16 : 0);
    decoder->bytes = decoder->pitch * decoder->lines * 3 / 2;
}

static int free_surfaces(Decoder *decoder) {
    for (int each = 0; each < MAX_SURFACES; each++) {
        if (decoder->surfaces[each]) soft_release(decoder->surfaces[each]);
        decoder->surfaces[each] = NULL;
        decoder->status[each] = NOT_DECODED;
    }
    return OUT_OF_MEMORY;
}

static int make_surfaces(Decoder *decoder) {
    lay_out(decoder);
    for (unsigned long each = 0; each < decoder->info.surfaces; each++)
        if (!(decoder->surfaces[each] = soft_allocate(decoder->bytes))) return free_surfaces(decoder);
    return SUCCESS;
}

int cuvidCreateDecoder(Decoder **out, CreateInfo *info) {
    IN_CONTEXT("cuvidCreateDecoder");
    Caps caps = {.codec = info->codec, .chroma = info->chroma, .bits_minus8 = (unsigned)info->bits_minus8};
    cuvidGetDecoderCaps(&caps);
    if (!caps.supported) return NOT_SUPPORTED;
    if (info->width < caps.min_width || info->height < caps.min_height) return INVALID_VALUE;
    if (info->width > caps.max_width || info->height > caps.max_height) return INVALID_VALUE;
    if (!info->surfaces || info->surfaces > MAX_SURFACES || !info->outputs || info->outputs > MAX_SURFACES)
        return INVALID_VALUE;
    if (info->target_width != info->width || info->target_height != info->height || info->deinterlace)
        return NOT_SUPPORTED;
    if (info->format != (info->bits_minus8 ? 1 : 0)) return INVALID_VALUE;
    pthread_once(&loading, load);
    if (!av.free_frame) return NOT_SUPPORTED;
    Decoder *made = calloc(1, sizeof *made);
    made->info = *info;
    int error = make_surfaces(made);
    if (!error && !(made->context = software_decoder(info->codec))) error = NOT_SUPPORTED;
    if (error) {
        free_surfaces(made);
        free(made);
        return error;
    }
    made->device = soft_device();
    soft_count("open decoders", 1);
    soft_called(made->device ? "decoders of device 1" : "decoders of device 0");
    *out = made;
    return SUCCESS;
}

int cuvidDestroyDecoder(Decoder *decoder) {
    CLOSING("cuvidDestroyDecoder");
    CHECK_DEVICE(decoder);
    for (int each = 0; each < MAX_SURFACES; each++)
        if (decoder->mapped[each]) {
            soft_complain("a decoder is destroyed while a surface of it is mapped");
            soft_release(decoder->mapped[each]);
        }
    free_surfaces(decoder);
    av.free_context(&decoder->context);
    free(decoder);
    soft_count("open decoders", -1);
    return SUCCESS;
}

int cuvidReconfigureDecoder(Decoder *decoder, ReconfigureInfo *info) {
    IN_CONTEXT("cuvidReconfigureDecoder");
    CHECK_DEVICE(decoder);
    if (info->width > decoder->info.max_width || info->height > decoder->info.max_height) return INVALID_VALUE;
    if (!info->surfaces || info->surfaces > MAX_SURFACES) return INVALID_VALUE;
    for (int each = 0; each < MAX_SURFACES; each++)
        if (decoder->mapped[each]) soft_complain("a decoder is reconfigured while a surface of it is mapped");
    free_surfaces(decoder);
    decoder->info.width = info->width;
    decoder->info.height = info->height;
    decoder->info.surfaces = info->surfaces;
    return make_surfaces(decoder);
}

static int order_of(int codec, const Picture *picture) {
    return codec == H264 ? picture->codec.h264.order_counts[0] : picture->codec.hevc.order_count;
}

/* References have to be in the surfaces that FFmpeg names, since NVDEC reads them there. */
static void check_references(Decoder *decoder, const Picture *picture) {
    int own = order_of(decoder->info.codec, picture);
    for (int each = 0; each < 16; each++) {
        const H264Reference *entry = &picture->codec.h264.references[each];
        int is_h264 = decoder->info.codec == H264;
        int index = is_h264 ? entry->index : picture->codec.hevc.reference_index[each];
        int order = is_h264 ? entry->order_counts[0] : picture->codec.hevc.reference_order[each];
        /* FFmpeg counts a picture of HEVC among those that it may refer to. */
        if (index < 0 || (index == picture->index && order == own)) continue;
        if (index >= (int)decoder->info.surfaces || !decoder->status[index] || decoder->order[index] != order)
            soft_complain("picture %d refers to picture %d, which is not in surface %d", own, order, index);
    }
}

static void write_surface(Decoder *decoder, const Frame *frame, unsigned char *to) {
    int width = frame->width < (int)decoder->info.width ? frame->width : (int)decoder->info.width;
    int height = frame->height < (int)decoder->info.height ? frame->height : (int)decoder->info.height;
    int shift = 6 - 8 * (decoder->info.bits_minus8 == 4);
    for (int y = 0; y < height; y++) {
        const unsigned char *line = frame->data[0] + y * frame->linesize[0];
        if (!decoder->info.bits_minus8) memcpy(to + (size_t)y * decoder->pitch, line, (size_t)width);
        else for (int x = 0; x < width; x++)
            ((uint16_t *)(to + (size_t)y * decoder->pitch))[x] = (uint16_t)(((const uint16_t *)line)[x] << shift);
    }
    for (int y = 0; y < (height + 1) / 2; y++) {
        unsigned char *out = to + (decoder->lines + (size_t)y) * decoder->pitch;
        for (int x = 0; x < (width + 1) / 2 * 2; x++) {
            const unsigned char *line = frame->data[1 + x % 2] + y * frame->linesize[1 + x % 2];
            if (!decoder->info.bits_minus8) out[x] = line[x / 2];
            else ((uint16_t *)out)[x] = (uint16_t)(((const uint16_t *)line)[x / 2] << shift);
        }
    }
}

int cuvidDecodePicture(Decoder *decoder, Picture *picture) {
    IN_CONTEXT("cuvidDecodePicture");
    CHECK_DEVICE(decoder);
    if (picture->index < 0 || picture->index >= (int)decoder->info.surfaces) return INVALID_VALUE;
    if (__atomic_exchange_n(&decoder->in_use, 1, __ATOMIC_SEQ_CST)) soft_complain("two threads use one decoder");
    unsigned char sets[4096];
    size_t bytes = 0;
    int with_sets = picture->reserved[0] == WITH_SETS;
    if (decoder->info.codec != VP9 && !with_sets) {
        check_references(decoder, picture);
        if (!(bytes = soft_sets(decoder->info.codec, picture, sets))) {
            decoder->in_use = 0;
            return NOT_SUPPORTED;
        }
    }
    int changed = bytes != decoder->sets_bytes || memcmp(sets, decoder->sets, bytes);
    memcpy(decoder->sets, sets, decoder->sets_bytes = bytes);
    Frame *frame = decoded(decoder->context, sets, changed ? bytes : 0, picture->bytes, picture->num_bytes, NULL);
    static int num_decoded;
    int stale = ++num_decoded % 40 == 0 && soft_plays("every 40th picture is the one before in its surface");
    if (frame && !stale) write_surface(decoder, frame, decoder->surfaces[picture->index]);
    decoder->status[picture->index] = frame ? DECODED : CONCEALED;
    decoder->order[picture->index] = order_of(decoder->info.codec, picture);
    if (frame) av.free_frame(&frame);
    decoder->in_use = 0;
    return SUCCESS;
}

int cuvidGetDecodeStatus(Decoder *decoder, int index, int *status) {
    IN_CONTEXT("cuvidGetDecodeStatus");
    CHECK_DEVICE(decoder);
    if (index < 0 || index >= (int)decoder->info.surfaces) return INVALID_VALUE;
    *status = decoder->status[index];
    return SUCCESS;
}

int cuvidMapVideoFrame64(Decoder *decoder, int index, unsigned char **memory, unsigned *pitch, ProcessingHead *how) {
    (void)how;
    IN_CONTEXT("cuvidMapVideoFrame");
    CHECK_DEVICE(decoder);
    if (index < 0 || index >= (int)decoder->info.surfaces) return INVALID_VALUE;
    if (!decoder->status[index]) soft_complain("surface %d is mapped, and nothing was decoded into it", index);
    unsigned long slot = 0;
    while (slot < decoder->info.outputs && decoder->mapped[slot]) slot++;
    if (slot == decoder->info.outputs) {
        soft_complain("more than %lu surfaces are mapped at once", decoder->info.outputs);
        return INVALID_VALUE;
    }
    /* As NVDEC's post-processing does: a copy, which stays when the surface is decoded into again. */
    if (!(decoder->mapped[slot] = soft_allocate(decoder->bytes))) return OUT_OF_MEMORY;
    memcpy(decoder->mapped[slot], decoder->surfaces[index], decoder->bytes);
    *memory = decoder->mapped[slot];
    *pitch = (unsigned)decoder->pitch;
    soft_count("mapped surfaces", 1);
    return SUCCESS;
}

int cuvidUnmapVideoFrame64(Decoder *decoder, unsigned char *memory) {
    CLOSING("cuvidUnmapVideoFrame");
    CHECK_DEVICE(decoder);
    for (int slot = 0; slot < MAX_SURFACES; slot++)
        if (memory && decoder->mapped[slot] == memory) {
            soft_release(memory);
            decoder->mapped[slot] = NULL;
            soft_count("mapped surfaces", -1);
            return SUCCESS;
        }
    soft_complain("what is unmapped was not mapped");
    return INVALID_VALUE;
}

int cuvidCtxLockCreate(void **made, void *context) { *made = context; return SUCCESS; }
int cuvidCtxLockDestroy(void *made) { (void)made; return SUCCESS; }
int cuvidCtxLock(void *made, unsigned flags) { (void)made, (void)flags; return SUCCESS; }
int cuvidCtxUnlock(void *made, unsigned flags) { (void)made, (void)flags; return SUCCESS; }

#define NOT_HERE(name) int name(void) { return NOT_SUPPORTED; }
NOT_HERE(cuvidCreateVideoSource) NOT_HERE(cuvidCreateVideoSourceW) NOT_HERE(cuvidDestroyVideoSource)
NOT_HERE(cuvidSetVideoSourceState) NOT_HERE(cuvidGetVideoSourceState) NOT_HERE(cuvidGetSourceVideoFormat)
NOT_HERE(cuvidGetSourceAudioFormat)
#pragma weak cuvidCreateVideoParser
#pragma weak cuvidParseVideoData
#pragma weak cuvidDestroyVideoParser
NOT_HERE(cuvidCreateVideoParser) NOT_HERE(cuvidParseVideoData) NOT_HERE(cuvidDestroyVideoParser)
