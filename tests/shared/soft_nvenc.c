/* libnvidia-encode.so.1 of the driver in software: sessions, their pictures and their packets. See soft_nvenc.h.
 *
 * As NVENC does, it decides the types of pictures by the GOP's length, the interval of P and forced keyframes; keeps a
 * picture that is to be a B-frame until the next P is there, and reads it from the device's memory no earlier; and fills
 * the buffers for packets in the order in which it was given them. A GOP is closed: its last frame is a P. What it was
 * asked is written to the file that SOFT_NVENC_ASKED names, a line for each session. */
#include "soft_nvenc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Sessions. */

enum { MOST = 64, RECORDED = 600, CUDA = 1 };
typedef struct { unsigned char *bytes; size_t size; uint64_t timestamp, duration; int type, is_waiting; } Output;
typedef struct { const Surface *surface; uint64_t timestamp, duration; int64_t number; int type; } Picture;
struct Session {
    Head head;
    const Chip *chip;
    int is_hevc, slot, in_gop, num_held, num_waiting;
    InitParams params;
    Config config;
    Coder *coder;
    void *memory;
    int64_t num_pictures;
    Picture held[MOST], known[MOST];
    Output *waiting[MOST];
    char types[RECORDED + 1], forced[RECORDED + 1], error[200];
};

static const Guid codecs[] = {
    {{0x62, 0x27, 0xc8, 0x6b, 0x63, 0x4e, 0xa4, 0x4c, 0xaa, 0x85, 0x1e, 0x50, 0xf3, 0x21, 0xf6, 0xbf}},
    {{0x88, 0xdc, 0x0c, 0x79, 0x22, 0x45, 0x7b, 0x4d, 0x94, 0x25, 0xbd, 0xa9, 0x97, 0x5f, 0x76, 0x03}},
};

static int failed(Session *session, int error, const char *why) {
    snprintf(session->error, sizeof session->error, "%s", why);
    return error;
}

static unsigned newest_api(void) {
    const char *text = getenv("SOFT_NVENC_API");
    unsigned major = 13, minor = 1;
    if (text) sscanf(text, "%u.%u", &major, &minor);
    return major << 4 | minor;
}

int NvEncodeAPIGetMaxSupportedVersion(unsigned *out) {
    CALLED("NvEncodeAPIGetMaxSupportedVersion");
    *out = newest_api();
    return SUCCESS;
}

/* Sessions of all processes, where SOFT_NVENC_SESSIONS="2 /folder" bounds them: one locked file for each. */
static int take_slot(int *out) {
    const char *text = getenv("SOFT_NVENC_SESSIONS");
    int most, found = -1;
    char folder[2048], path[2100];
    if (!text || sscanf(text, "%d %2047s", &most, folder) != 2) return 1;
    for (int each = 0; each < most && found < 0; each++) {
        snprintf(path, sizeof path, "%s/session %d", folder, each);
        found = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (found >= 0 && flock(found, LOCK_EX | LOCK_NB)) {
            close(found);
            found = -1;
        }
    }
    *out = found;
    return found >= 0;
}

static int open_session(const OpenParams *params, Session **out) {
    CALLED("nvEncOpenEncodeSessionEx");
    unsigned asked = (params->api & 0xff) << 4 | params->api >> 24;
    if (asked > newest_api() || asked < 0xd0 || !soft_version(params->version, params->api, 1, 0)) return NV_INVALID_VERSION;
    if (params->type != CUDA || !params->device) return NV_INVALID_DEVICE;
    if (!soft_chip()->has_engine) return NV_NO_ENGINE;
    int slot = -1;
    if (!take_slot(&slot)) return NV_OUT_OF_MEMORY;
    Session *made = *out = calloc(1, sizeof **out);
    made->chip = soft_chip();
    made->head.api = params->api;
    made->slot = slot;
    soft_count("open encoders", 1);
    return SUCCESS;
}

static int count_codecs(Session *session, unsigned *out) {
    (void)session;
    CALLED("nvEncGetEncodeGUIDCount");
    *out = 2;
    return SUCCESS;
}
static int list_codecs(Session *session, Guid *out, unsigned room, unsigned *count) {
    (void)session;
    CALLED("nvEncGetEncodeGUIDs");
    if (room < 2) return NV_INVALID_PARAM;
    memcpy(out, codecs, sizeof codecs);
    *count = 2;
    return SUCCESS;
}
static int codec_of(const Guid *codec) {
    return !memcmp(codec, &codecs[0], sizeof *codec) ? 0 : !memcmp(codec, &codecs[1], sizeof *codec) ? 1 : -1;
}

static int get_cap(Session *session, Guid codec, const CapsParam *params, int *out) {
    CALLED("nvEncGetEncodeCaps");
    VERSION(session, params, 1, 0);
    if (codec_of(&codec) < 0) return NV_INVALID_PARAM;
    *out = soft_cap(session->chip, codec_of(&codec), params->cap);
    return SUCCESS;
}

static int get_preset(Session *session, Guid codec, Guid preset, unsigned tuning, PresetConfig *out) {
    CALLED("nvEncGetEncodePresetConfigEx");
    VERSION(session, out, 5, 1);
    VERSION(session, &out->config, 9, 1);
    if (codec_of(&codec) < 0) return NV_INVALID_PARAM;
    return tuning && soft_preset(codec_of(&codec), &preset, &out->config) ? SUCCESS : NV_UNSUPPORTED_PARAM;
}

/* At its first use: libavcodec opens some encoders one at a time, and NVENC's may be one of the same library, which is
 * being opened while it initializes this. */
static int has_coder(Session *session) {
    if (session->coder) return 1;
    Config *config = &session->config;
    const InitParams *params = &session->params;
    unsigned *colours = soft_field(config, session->is_hevc, COLOURS);
    Wanted wanted = {
        .is_hevc = session->is_hevc, .width = (int)params->width, .height = (int)params->height,
        .bits = *soft_field(config, session->is_hevc, BITS) == 10 ? 10 : 8,
        .b_frames = config->interval_p > 1 ? config->interval_p - 1 : 0,
        .b_references = config->interval_p > 2 && *soft_field(config, session->is_hevc, B_REFERENCES),
        .is_cavlc = !session->is_hevc && config->codec[11] == 2,
        .is_constant_qp = !config->rate_control,
        .quality = config->rate_control ? (float)config->quality + (float)config->quality_256ths / 256
                                        : (float)config->const_qp[0],
        .aspect = {(int)(params->aspect[0] * params->height), (int)(params->aspect[1] * params->width)},
        .colours = {(int)colours[2], (int)colours[4], 2, 2, 2},
    };
    if (colours[5]) for (int each = 0; each < 3; each++) wanted.colours[2 + each] = (int)colours[6 + each];
    if (config->rate_control && !config->quality) wanted.quality = 26;
    session->coder = soft_coder(&wanted);
    if (!session->coder) failed(session, NV_GENERIC, "libavcodec does not open its encoder");
    return session->coder != NULL;
}

static int initialize(Session *session, const InitParams *params) {
    CALLED("nvEncInitializeEncoder");
    if (soft_context("nvEncInitializeEncoder")) return NV_INVALID_DEVICE;
    VERSION(session, params, 7, 1);
    if (!params->config) return failed(session, NV_INVALID_PARAM, "the driver in software wants a configuration");
    VERSION(session, params->config, 9, 1);
    int codec = codec_of(&params->codec);
    if (codec < 0 || session->head.is_open) return NV_UNSUPPORTED_PARAM;
    const char *why = soft_refusal(session->chip, codec, params);
    if (why) return failed(session, NV_INVALID_PARAM, why);
    session->is_hevc = codec;
    session->params = *params;
    session->config = *params->config;
    /* Reconstructed pictures and what else an encoder keeps. */
    if (!(session->memory = soft_allocate((size_t)params->width * params->height * 12)))
        return failed(session, NV_OUT_OF_MEMORY, "EncodeAPI Internal Error.");
    session->head.is_open = 1;
    return SUCCESS;
}

/* What was asked, as JSON. */
static void record(Session *session) {
    const char *path = getenv("SOFT_NVENC_ASKED");
    int file = path && session->head.is_open ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file < 0) return;
    Config *c = &session->config;
    const InitParams *p = &session->params;
    const unsigned *colours = soft_field(c, session->is_hevc, COLOURS);
    dprintf(file, "{\"codec\": \"%s\", \"width\": %u, \"height\": %u, \"preset\": %d, \"gop_length\": %u, \"idr_period\": %u, "
            "\"interval_p\": %d, \"rate_control\": %u, \"quality\": %g, \"average_rate\": %u, \"most_rate\": %u, "
            "\"strict_gop\": %d, \"looks_ahead\": %d, \"adaptive_i\": %d, \"adaptive_b\": %d, \"b_references\": %u, "
            "\"entropy\": %u, \"level\": %u, \"colours\": [%u, %u, %u, %u, %u], \"aspect\": [%u, %u], "
            "\"types\": \"%s\", \"forced\": \"%s\"}\n",
            session->is_hevc ? "hevc" : "h264", p->width, p->height, soft_preset_number(&p->preset), c->gop_length,
            *soft_field(c, session->is_hevc, IDR_PERIOD), c->interval_p, c->rate_control,
            c->quality + c->quality_256ths / 256.0, c->average_rate, c->most_rate, !!(c->rate_flags & STRICT_GOP),
            !!(c->rate_flags & LOOK_AHEAD), !(c->rate_flags & NO_ADAPTIVE_I), !(c->rate_flags & NO_ADAPTIVE_B),
            *soft_field(c, session->is_hevc, B_REFERENCES), session->is_hevc ? 0 : c->codec[11],
            *soft_field(c, session->is_hevc, LEVEL), colours[2], colours[4], colours[6], colours[7], colours[8],
            p->aspect[0], p->aspect[1], session->types, session->forced);
    close(file);
}

static int destroy(Session *session) {
    CALLED("nvEncDestroyEncoder");
    if (soft_context("nvEncDestroyEncoder")) return NV_INVALID_DEVICE;
    record(session);
    soft_end_coder(session->coder);
    if (session->memory) soft_release(session->memory);
    if (session->slot >= 0) close(session->slot);
    free(session);
    soft_count("open encoders", -1);
    return SUCCESS;
}

static const char *last_error(Session *session) { return session->error; }

/* Pictures in, packets out. */

static int take_packets(Session *session) {
    Coded coded;
    while (soft_coded(session->coder, &coded)) {
        Picture *picture = &session->known[coded.number % MOST];
        if (!session->num_waiting) {
            soft_complain("more packets than buffers for them");
            return NV_GENERIC;
        }
        if ((picture->type == PICTURE_IDR) != coded.is_key)
            soft_complain("picture %d: the encoder in software made another type", (int)coded.number);
        Output *output = session->waiting[0];
        memmove(session->waiting, session->waiting + 1, sizeof *session->waiting * (size_t)--session->num_waiting);
        unsigned flags = *soft_field(&session->config, session->is_hevc, FLAGS);
        int is_quiet = flags >> (session->is_hevc ? 6 : 7) & 1;
        size_t headers_size = 0;
        const unsigned char *headers = soft_headers(session->coder, &headers_size);
        if (is_quiet || picture->type != PICTURE_IDR) headers_size = 0;
        *output = (Output){malloc(headers_size + coded.size), headers_size + coded.size,
                           picture->timestamp, picture->duration, picture->type, 0};
        memcpy(output->bytes, headers, headers_size);
        memcpy(output->bytes + headers_size, coded.bytes, coded.size);
        free(coded.bytes);
    }
    return SUCCESS;
}

static int encode_one(Session *session, Picture *picture, int type) {
    picture->type = type;
    if (picture->number < RECORDED) session->types[picture->number] = "PBIK"[type];
    if (picture->surface->is_registered && !picture->surface->mapped)
        soft_complain("picture %d is encoded, and its memory is not mapped any more", (int)picture->number);
    session->known[picture->number % MOST] = *picture;
    return soft_code(session->coder, picture->surface, picture->number, type) ? take_packets(session) : NV_GENERIC;
}

/* The pictures that are held become B-frames, and P the last of them where no P follows. */
static int encode_held(Session *session, int closes) {
    int error = SUCCESS;
    const char *tail = getenv("SOFT_NVENC_TAIL");
    for (int each = 0; each < session->num_held && !error; each++) {
        int is_p = closes && (each == session->num_held - 1 || (tail && !strcmp(tail, "P")));
        error = encode_one(session, &session->held[each], is_p ? PICTURE_P : PICTURE_B);
    }
    session->num_held = 0;
    return error;
}

static int next_type(Session *session, unsigned flags) {
    const Config *config = &session->config;
    int ahead = config->rate_flags & LOOK_AHEAD;
    unsigned period = *soft_field(&session->config, session->is_hevc, IDR_PERIOD);
    if (!period) period = config->gop_length;
    int at = session->in_gop;
    if (!session->num_pictures || flags & FORCE_IDR || (unsigned)at >= period) return PICTURE_IDR;
    if (flags & FORCE_INTRA || !config->interval_p) return PICTURE_I;
    /* Looking ahead finds a change of scene at the fifth picture, and too much motion for B-frames in each second group. */
    if (ahead && !(config->rate_flags & NO_ADAPTIVE_I) && session->num_pictures == 5) return PICTURE_IDR;
    int adapts = ahead && !(config->rate_flags & NO_ADAPTIVE_B) && at / config->interval_p % 2;
    return at % config->interval_p && !adapts ? PICTURE_B : PICTURE_P;
}

static int encode_picture(Session *session, const PictureParams *params) {
    IN_SESSION("nvEncEncodePicture", session);
    VERSION(session, params, 7, 1);
    if (params->flags & END_OF_STREAM) {
        if (!session->coder) return SUCCESS;
        int error = encode_held(session, 1);
        if (!error && !soft_code(session->coder, NULL, 0, 0)) return SUCCESS; /* it has ended before */
        return error ? error : take_packets(session);
    }
    const Surface *surface = params->input;
    Output *output = params->output;
    if (!surface || !output || params->structure != 1) return failed(session, NV_INVALID_PARAM, "no input, or no output");
    if (surface->is_locked || (surface->is_registered && !surface->mapped)) return NV_NOT_MAPPED;
    if (surface->format != params->format) return failed(session, NV_INVALID_PARAM, "not the format of the input");
    if (output->is_waiting || output->bytes || session->num_waiting == MOST) {
        soft_complain("a buffer for packets is given again before its packet was taken");
        return NV_INVALID_PARAM;
    }
    Picture picture = {surface, params->timestamp, params->duration, session->num_pictures, next_type(session, params->flags)};
    if (picture.number < RECORDED) session->forced[picture.number] = params->flags & FORCE_IDR ? 'K' : '.';
    output->is_waiting = 1;
    session->waiting[session->num_waiting++] = output;
    session->num_pictures++;
    if (picture.type == PICTURE_IDR) session->in_gop = 0;
    session->in_gop++;
    if (picture.type == PICTURE_B) {
        session->held[session->num_held++] = picture;
        return NV_NEED_MORE_INPUT;
    }
    if (!has_coder(session)) return NV_GENERIC;
    int error = encode_held(session, picture.type != PICTURE_P);
    if (!error) error = encode_one(session, &picture, picture.type);
    int looks = session->config.rate_flags & LOOK_AHEAD ? session->config.look_ahead : 0;
    return error ? error : session->num_pictures <= looks ? NV_NEED_MORE_INPUT : SUCCESS;
}

static int create_output(Session *session, OutputParams *params) {
    IN_SESSION("nvEncCreateBitstreamBuffer", session);
    VERSION(session, params, 1, 0);
    params->made = calloc(1, sizeof(Output));
    soft_count("encoder buffers", 1);
    return SUCCESS;
}
static int destroy_output(Session *session, Output *output) {
    IN_SESSION("nvEncDestroyBitstreamBuffer", session);
    if (!output) return NV_INVALID_PTR;
    free(output->bytes);
    free(output);
    soft_count("encoder buffers", -1);
    return SUCCESS;
}
static int lock_output(Session *session, LockParams *params) {
    IN_SESSION("nvEncLockBitstream", session);
    VERSION(session, params, 2, 1);
    Output *output = params->output;
    if (!output || !output->bytes) {
        soft_complain("a packet is asked for before there is one; the encoder in software needs some pictures more");
        return NV_LOCK_BUSY;
    }
    params->size = (unsigned)output->size;
    params->bytes = output->bytes;
    params->timestamp = output->timestamp;
    params->duration = output->duration;
    params->type = (unsigned)output->type;
    params->structure = 1;
    params->quality = 26;
    return SUCCESS;
}
static int unlock_output(Session *session, Output *output) {
    IN_SESSION("nvEncUnlockBitstream", session);
    free(output->bytes);
    output->bytes = NULL;
    return SUCCESS;
}

static int get_headers(Session *session, HeadersParams *params) {
    CALLED("nvEncGetSequenceParams");
    if (!session->head.is_open) return NV_NOT_INITIALIZED;
    VERSION(session, params, 1, 0);
    if (!has_coder(session)) return NV_GENERIC;
    size_t size;
    const unsigned char *headers = soft_headers(session->coder, &size);
    if (size > params->size) return NV_NOT_ENOUGH_BUFFER;
    memcpy(params->bytes, headers, size);
    *params->written = (unsigned)size;
    return SUCCESS;
}

/* The function list: a version, a reserved word, and the functions. */

static int set_streams(Session *session, void *input, void *output) {
    (void)input, (void)output;
    IN_SESSION("nvEncSetIOCudaStreams", session);
    return SUCCESS;
}
static int not_here(void) { return NV_UNIMPLEMENTED; }

int NvEncodeAPICreateInstance(void **list) {
    CALLED("NvEncodeAPICreateInstance");
    unsigned version = *(unsigned *)list;
    if ((version & 0xf0ff0000u) != (7u << 28 | 2u << 16)) return NV_INVALID_VERSION;
    static void *const functions[] = {
        [2] = count_codecs, [5] = list_codecs, [8] = get_cap, [12] = initialize, [13] = soft_create_input,
        [14] = soft_destroy_input, [15] = create_output, [16] = destroy_output, [17] = encode_picture,
        [18] = lock_output, [19] = unlock_output, [20] = soft_lock_input, [21] = soft_unlock_input, [23] = get_headers,
        [26] = soft_map, [27] = soft_unmap, [28] = destroy, [30] = open_session, [31] = soft_register,
        [32] = soft_unregister, [38] = last_error, [39] = set_streams, [40] = get_preset, [43] = NULL,
    };
    for (size_t each = 1; each < sizeof functions / sizeof *functions; each++)
        list[each] = functions[each] ? functions[each] : (void *)not_here;
    return SUCCESS;
}
