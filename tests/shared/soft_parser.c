/* The parser of libnvcuvid in software: whole access units in Annex B, H.264 and HEVC, each with its picture at once.
 *
 * libavcodec reads the parameter sets. Surfaces are taken in turns, however long a picture is referred to: the decoder
 * behind them keeps its references elsewhere, so a client that maps a picture too late maps another one. */
#include "soft_nvcuvid.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int codec; unsigned rate[2];
    unsigned char progressive, luma_bits_minus8, chroma_bits_minus8, min_surfaces;
    unsigned coded_width, coded_height; int left, top, right, bottom;
    int chroma; unsigned bitrate; int aspect[2];
    unsigned char signal, primaries, transfer, matrix; unsigned extra;
} Format;
typedef struct { unsigned long flags, size; const unsigned char *bytes; long long timestamp; } Unit;
typedef struct { int index, progressive, top_first, repeat; long long timestamp; } Shown;
typedef struct {
    int codec; unsigned surfaces, clock, threshold, delay, flags, reserved[4]; void *user;
    int (*sequence)(void *, Format *); int (*decode)(void *, Picture *); int (*display)(void *, Shown *);
    void *point, *sei, *reserved2[5], *extended;
} Params;
typedef struct { Params params; int num_surfaces, next, has_sets; Look look; } Parser;

enum { END_OF_STREAM = 1, END_OF_PICTURE = 8 };

int cuvidCreateVideoParser(Parser **out, const Params *params) {
    int error = soft_called("cuvidCreateVideoParser");
    if (error) return error;
    if (params->codec != H264 && params->codec != HEVC) return NOT_SUPPORTED;
    *out = calloc(1, sizeof **out);
    (*out)->params = *params;
    soft_count("open parsers", 1);
    return SUCCESS;
}

int cuvidDestroyVideoParser(Parser *parser) {
    int error = soft_called("cuvidDestroyVideoParser");
    if (error) return error;
    free(parser);
    soft_count("open parsers", -1);
    return SUCCESS;
}

/* Whether the unit holds a parameter set of the sequence, and how many slices. */
static int sets_in(int codec, const unsigned char *bytes, size_t size, int *slices) {
    int found = 0;
    *slices = 0;
    for (size_t at = 0; at + 3 < size; at++) {
        if (bytes[at] || bytes[at + 1] || bytes[at + 2] != 1) continue;
        int type = codec == H264 ? bytes[at + 3] & 31 : bytes[at + 3] >> 1 & 63;
        if (type == (codec == H264 ? 7 : 33)) found = 1;
        if (codec == H264 ? type == 1 || type == 5 : type < 32) (*slices)++;
    }
    return found;
}

static int told(Parser *parser) {
    Look *look = &parser->look;
    Format format = {
        .codec = parser->params.codec, .progressive = 1, .chroma = 1, .min_surfaces = 2,
        .luma_bits_minus8 = (unsigned char)(look->bits - 8), .chroma_bits_minus8 = (unsigned char)(look->bits - 8),
        .coded_width = (unsigned)look->coded_width, .coded_height = (unsigned)look->coded_height,
        .right = look->width, .bottom = look->height, .signal = look->full_range ? 0x0D : 0x05,
        .primaries = (unsigned char)look->primaries, .transfer = (unsigned char)look->transfer,
        .matrix = (unsigned char)look->matrix,
    };
    soft_count("sequences", 1);
    parser->num_surfaces = parser->params.sequence(parser->params.user, &format);
    parser->next = 0;
    if (parser->num_surfaces == 1) parser->num_surfaces = (int)parser->params.surfaces;
    return parser->num_surfaces > 0;
}

int cuvidParseVideoData(Parser *parser, const Unit *unit) {
    int error = soft_called("cuvidParseVideoData");
    if (error || (error = soft_context("cuvidParseVideoData"))) return error;
    if (unit->size && !(unit->flags & END_OF_PICTURE)) soft_complain("an access unit that is not said to be whole");
    int slices, codec = parser->params.codec;
    if (unit->size) {
        Look look;
        if (sets_in(codec, unit->bytes, unit->size, &slices)) {
            int known = soft_look(codec, unit->bytes, unit->size, &look);
            if (known && memcmp(&look, &parser->look, sizeof look)) {
                parser->look = look;
                if (!told(parser)) return 999;
            }
            parser->has_sets |= known;
        }
        if (!parser->has_sets) return SUCCESS; /* nothing is decoded before parameter sets */
        if (slices) {
            Picture picture = {
                .width_in_mbs = parser->look.coded_width / 16, .height_in_mbs = parser->look.coded_height / 16,
                .index = parser->next++ % parser->num_surfaces, .num_bytes = (unsigned)unit->size,
                .bytes = unit->bytes, .num_slices = (unsigned)slices, .reserved = {WITH_SETS},
            };
            Shown shown = {.index = picture.index, .progressive = 1, .timestamp = unit->timestamp};
            if (!parser->params.decode(parser->params.user, &picture)) return 999;
            if (!parser->params.display(parser->params.user, &shown)) return 999;
        }
    }
    if (unit->flags & END_OF_STREAM) {
        parser->has_sets = 0;
        parser->look = (Look){0};
    }
    return SUCCESS;
}
