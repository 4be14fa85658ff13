/* A library with the calls of libnvcuvid that shortgop makes. It decodes nothing: a picture has the value of its
 * timestamp, from the calls back to the mapped memory. It writes down its calls, checks their order and what they are
 * given, and fails where it is told to. The structures are its own copy of the layouts that
 * tests/gpu/test_nvcuvid_structs.py holds against the header. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int left, top, right, bottom; } LongRect;
typedef struct {
    int codec; unsigned rate[2];
    unsigned char progressive, luma_bits, chroma_bits, min_surfaces;
    unsigned coded_width, coded_height; LongRect area;
    int chroma; unsigned bitrate; int aspect[2];
    unsigned char signal, primaries, transfer, matrix; unsigned extra;
} Format;
typedef struct { unsigned long flags, size; const unsigned char *data; long long timestamp; } Packet;
typedef struct {
    int mbs[2], index, field, bottom, second; unsigned bytes; const unsigned char *data; unsigned slices;
    const unsigned *offsets; int ref, intra; unsigned reserved[30]; long long timestamp; unsigned specific[1022];
} Picture;
typedef struct { int index, progressive, top_first, repeat; long long timestamp; } Shown;
typedef struct {
    int codec; unsigned surfaces, clock, threshold, delay, flags, reserved[4]; void *user;
    int (*sequence)(void *, Format *); int (*decode)(void *, Picture *); int (*display)(void *, Shown *);
    void *point, *sei, *reserved2[5], *extended;
} ParserParams;
typedef struct {
    unsigned long width, height, surfaces; int codec, chroma;
    unsigned long flags, bits, intra, max_width, max_height, reserved; short area[4];
    int format, deinterlace; unsigned long target_width, target_height, outputs; void *lock; short target[4];
    unsigned long histogram, reserved2[4];
} CreateInfo;
typedef struct {
    unsigned width, height, target_width, target_height, surfaces, reserved[12]; short area[4], target[4];
    unsigned reserved2[11];
} ReconfigureInfo;
typedef struct {
    int progressive, second, top_first, unpaired; unsigned flags, zero; unsigned long long raw; unsigned raw_pitch,
    raw_format; unsigned long long raw_out; unsigned raw_out_pitch, reserved; void *stream; unsigned reserved1[46];
    void *histogram, *reserved2;
} ProcessingParams;
typedef struct { int status; unsigned reserved[31]; void *pointers[8]; } Status;

#define MAX_SURFACES 32
#define MAX_OUTPUTS 64
typedef struct { ParserParams params; int started, next, surfaces; } Parser;
typedef struct {
    unsigned width, height, surfaces, outputs, max_width, max_height; int bytes;
    long long content[MAX_SURFACES]; unsigned char *mapped[MAX_OUTPUTS];
} Decoder;

static char written[1 << 20];
static size_t used;
static char stream[1 << 20];
static size_t stream_bytes;
static int parsers, decoders, mappings, pitch_gap = 32;
static Format format;
static const char *failing = "";
static char failing_call[64];
static int fail_after, fail_with, damaged = -1, late, twice, every;

void note(const char *text, ...) {
    va_list values;
    va_start(values, text);
    if (used < sizeof written - 256) {
        used += vsnprintf(written + used, 200, text, values);
        used += sprintf(written + used, "\n");
    }
    va_end(values);
}
const char *log_text(void) { return written; }
size_t log_stream(const char **data) { *data = stream; return stream_bytes; }
void forget(void) { used = stream_bytes = 0; written[0] = 0; }
void open_handles(int *counts) { counts[0] = parsers; counts[1] = decoders; counts[2] = mappings; }
void set_format(int codec, int width, int height, int coded_width, int coded_height, int bits, int surfaces) {
    memset(&format, 0, sizeof format);
    format.codec = codec; format.chroma = 1; format.progressive = 1;
    format.luma_bits = format.chroma_bits = bits - 8;
    format.coded_width = coded_width; format.coded_height = coded_height; format.min_surfaces = surfaces;
    format.area.right = width; format.area.bottom = height;
}
void set_colours(int matrix, int full_range) { format.matrix = matrix; format.signal = full_range ? 8 : 0; }
/* The call of this name fails with this error after so many that did not. */
void fail(const char *call, int after, int error) {
    strncpy(failing_call, call, sizeof failing_call - 1); failing = failing_call; fail_after = after; fail_with = error;
}
/* The picture of this timestamp has an error; pictures come a packet late; packets hold two pictures; parameter sets
 * come with every packet. */
void misbehave(int damaged_picture, int late_pictures, int two_pictures, int all_sets) {
    damaged = damaged_picture; late = late_pictures; twice = two_pictures; every = all_sets;
}
static int fails(const char *call) { return !strcmp(call, failing) && fail_after-- <= 0 ? fail_with : 0; }

int cuGetErrorName(int error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
    return *name ? 0 : 1;
}

int cuvidCreateVideoParser(Parser **made, ParserParams *params) {
    int error = fails("cuvidCreateVideoParser");
    if (error) return error;
    if (params->surfaces != 1 || params->delay || params->flags || !params->sequence || !params->display) return 1;
    *made = calloc(1, sizeof **made);
    (*made)->params = *params;
    parsers++;
    note("create parser codec %d", params->codec);
    return 0;
}
int cuvidDestroyVideoParser(Parser *parser) { parsers--; note("destroy parser"); free(parser); return 0; }

static int picture(Parser *parser, const Packet *packet) {
    Picture params = {.timestamp = packet->timestamp, .bytes = packet->size, .data = packet->data};
    Shown shown = {.timestamp = packet->timestamp, .progressive = 1};
    params.index = shown.index = parser->next;
    parser->next = (parser->next + 1) % parser->surfaces;
    if (!parser->params.decode(parser->params.user, &params)) return 999;
    return parser->params.display(parser->params.user, &shown) ? 0 : 999;
}
int cuvidParseVideoData(Parser *parser, const Packet *packet) {
    static Packet before;
    int error = fails("cuvidParseVideoData");
    if (error) return error;
    if (packet->flags & 1) {
        note("end of stream");
        parser->started = 0;
        return packet->size ? 1 : 0;
    }
    if (packet->flags != 10 || packet->size < 5 || memcmp(packet->data, "\0\0\0\1", 4)) return 1;
    note("parse %lld", packet->timestamp);
    memcpy(stream + stream_bytes, packet->data, packet->size);
    stream_bytes += packet->size;
    if (!parser->started) {
        /* Parameter sets come first: an SPS of H.264, a VPS of HEVC. */
        int kind = parser->params.codec == 4 ? packet->data[4] & 31 : packet->data[4] >> 1 & 63;
        if (kind != (parser->params.codec == 4 ? 7 : 32)) return 1;
        parser->surfaces = parser->params.sequence(parser->params.user, &format);
        if (!parser->surfaces) return 999;
        parser->started = 1;
        if (late) { before = *packet; return 0; }
    }
    if (every && !parser->params.sequence(parser->params.user, &format)) return 999;
    if (late) { Packet now = before; before = *packet; return picture(parser, &now); }
    error = picture(parser, packet);
    return error || !twice ? error : picture(parser, packet);
}

int cuvidCreateDecoder(Decoder **made, CreateInfo *info) {
    int error = fails("cuvidCreateDecoder");
    if (error) return error;
    if (info->chroma != 1 || info->deinterlace || info->target_width != info->width || info->lock) return 1;
    if (info->target_height != info->height || info->area[2] != (short)info->width || info->intra) return 1;
    if (info->width > info->max_width || info->height > info->max_height || info->surfaces > MAX_SURFACES) return 1;
    if (info->format != (info->bits > 0)) return 1;
    *made = calloc(1, sizeof **made);
    **made = (Decoder){info->width, info->height, info->surfaces, info->outputs, info->max_width, info->max_height,
                       info->bits ? 2 : 1, {0}, {0}};
    decoders++;
    note("create decoder %lux%lu of up to %lux%lu, %lu surfaces", info->width, info->height, info->max_width,
         info->max_height, info->surfaces);
    return 0;
}
int cuvidReconfigureDecoder(Decoder *decoder, ReconfigureInfo *info) {
    int error = fails("cuvidReconfigureDecoder");
    if (error) return error;
    if (info->width > decoder->max_width || info->height > decoder->max_height || mappings) return 1;
    if (info->target_width != info->width || info->target_height != info->height) return 1;
    decoder->width = info->width; decoder->height = info->height; decoder->surfaces = info->surfaces;
    note("reconfigure %ux%u, %u surfaces", info->width, info->height, info->surfaces);
    return 0;
}
int cuvidDestroyDecoder(Decoder *decoder) { decoders--; note("destroy decoder"); free(decoder); return 0; }
int cuvidDecodePicture(Decoder *decoder, const Picture *params) {
    int error = fails("cuvidDecodePicture");
    if (error) return error;
    if (params->index < 0 || params->index >= (int)decoder->surfaces) return 1;
    decoder->content[params->index] = params->timestamp;
    note("decode %lld", params->timestamp);
    return 0;
}
int cuvidGetDecodeStatus(Decoder *decoder, int index, Status *status) {
    int error = fails("cuvidGetDecodeStatus");
    status->status = decoder->content[index] == damaged ? 8 : 2;
    return error;
}
/* The picture with its value in every sample of luma, 100 more in U, 200 more in V, and 77 in all gaps. */
int cuvidMapVideoFrame64(Decoder *decoder, int index, unsigned long long *address, unsigned *pitch, ProcessingParams *how) {
    int error = fails("cuvidMapVideoFrame64");
    unsigned at = 0, bytes = decoder->width * decoder->bytes, x, y;
    long long value = decoder->content[index];
    if (error) return error;
    if (how->progressive != 1 || how->second || how->unpaired) return 1;
    while (at < decoder->outputs && decoder->mapped[at]) at++;
    if (at == decoder->outputs) return 1;
    *pitch = bytes + pitch_gap;
    unsigned char *memory = decoder->mapped[at] = malloc(*pitch * decoder->height * 3 / 2);
    memset(memory, 77, *pitch * decoder->height * 3 / 2);
    for (y = 0; y < decoder->height * 3 / 2; y++)
        for (x = 0; x < decoder->width; x++) {
            int sample = (int)value + (y < decoder->height ? 0 : x % 2 ? 200 : 100);
            if (decoder->bytes == 1) memory[y * *pitch + x] = sample;
            else ((unsigned short *)(memory + y * *pitch))[x] = sample << 6;
        }
    *address = (unsigned long long)memory;
    mappings++;
    note("map %lld on %lld", value, (long long)how->stream);
    return 0;
}
int cuvidUnmapVideoFrame64(Decoder *decoder, unsigned long long address) {
    unsigned at = 0;
    int error = fails("cuvidUnmapVideoFrame64");
    if (error) return error;
    while (at < decoder->outputs && (unsigned long long)decoder->mapped[at] != address) at++;
    if (at == decoder->outputs) return 1;
    note("unmap %d", *(unsigned char *)decoder->mapped[at]);
    free(decoder->mapped[at]);
    decoder->mapped[at] = NULL;
    mappings--;
    return 0;
}
