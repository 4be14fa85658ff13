/* What the files of libnvidia-encode in software share: the structures of NVENC, API 13.0 and 13.1, as far as they are
 * used, and the encoder behind them. Layouts are those of nv-codec-headers n13.0.19.0, written down again here. */
#include "soft_driver.h"

enum {
    NV_NO_ENGINE = 2, NV_INVALID_DEVICE = 4, NV_INVALID_PTR = 6, NV_INVALID_PARAM = 8, NV_OUT_OF_MEMORY = 10,
    NV_NOT_INITIALIZED = 11, NV_UNSUPPORTED_PARAM = 12, NV_LOCK_BUSY = 13, NV_NOT_ENOUGH_BUFFER = 14,
    NV_INVALID_VERSION = 15, NV_NEED_MORE_INPUT = 17, NV_GENERIC = 20, NV_UNIMPLEMENTED = 22, NV_NOT_REGISTERED = 23,
    NV_NOT_MAPPED = 25
};
enum { PICTURE_P = 0, PICTURE_B = 1, PICTURE_I = 2, PICTURE_IDR = 3 };
enum { NV12 = 1, YV12 = 0x10, P010 = 0x10000 };
enum { FORCE_INTRA = 1, FORCE_IDR = 2, END_OF_STREAM = 8 };
/* Bits of `rate_flags`. */
enum { LOOK_AHEAD = 1 << 5, NO_ADAPTIVE_I = 1 << 6, NO_ADAPTIVE_B = 1 << 7, STRICT_GOP = 1 << 11 };

typedef struct { unsigned char bytes[16]; } Guid;
typedef struct {
    unsigned version; Guid profile; unsigned gop_length; int interval_p; unsigned mono, fields, precision;
    unsigned rate_version, rate_control, const_qp[3], average_rate, most_rate, buffer, buffer_delay, rate_flags;
    unsigned min_qp[3], max_qp[3], first_qp[3], layers; unsigned char layer_qp[8], quality, quality_256ths;
    unsigned short look_ahead; unsigned char rate_rest[36];
    unsigned codec[448], reserved[406];
} Config;
typedef struct { unsigned version, reserved; Config config; unsigned reserved1[384]; } PresetConfig;
typedef struct {
    unsigned version; Guid codec, preset; unsigned width, height, aspect[2], rate[2], is_async, decides_types, flags;
    unsigned private_size, reserved; void *private; Config *config; unsigned most_width, most_height, hints[8];
    unsigned tuning, format, states, stats, reserved1[284]; void *reserved2[64];
} InitParams;
typedef struct { unsigned version, type; void *device, *reserved; unsigned api, reserved1[253]; } OpenParams;
typedef struct { unsigned version, cap, reserved[62]; } CapsParam;
typedef struct { unsigned version, width, height, heap, format, reserved; void *made; } InputParams;
typedef struct { unsigned version, size, heap, reserved; void *made; } OutputParams;
typedef struct { unsigned version, flags; void *input, *data; unsigned pitch; } LockInputParams;
typedef struct {
    unsigned version, type, width, height, pitch, index; void *memory, *made; unsigned format, usage; void *fence;
} RegisterParams;
typedef struct { unsigned version, index; void *input, *registered, *mapped; unsigned format; } MapParams;
typedef struct { unsigned version, size, ids[2]; void *bytes; unsigned *written; } HeadersParams;
typedef struct {
    unsigned version, width, height, pitch, flags, number; uint64_t timestamp, duration; void *input, *output, *event;
    unsigned format, structure, type;
} PictureParams;
typedef struct {
    unsigned version, flags; void *output; unsigned *slices, number, status, num_slices, size;
    uint64_t timestamp, duration; void *bytes; unsigned type, structure, quality;
} LockParams;

_Static_assert(sizeof(Config) == 3584 && offsetof(Config, quality) == 128 && offsetof(Config, codec) == 168, "");
_Static_assert(sizeof(PresetConfig) == 5128, "");
_Static_assert(sizeof(InitParams) == 1800 && offsetof(InitParams, config) == 88, "");
_Static_assert(offsetof(InitParams, decides_types) == 64 && offsetof(InitParams, tuning) == 136, "");
_Static_assert(offsetof(PictureParams, input) == 40 && offsetof(PictureParams, structure) == 68, "");
_Static_assert(offsetof(LockParams, size) == 36 && offsetof(LockParams, bytes) == 56, "");
_Static_assert(offsetof(RegisterParams, memory) == 24 && offsetof(RegisterParams, format) == 40, "");

/* Pictures for the encoder, in the memory of the device. Planes lie one behind the other, V in front of U. */
typedef struct {
    const unsigned char *memory; unsigned width, height, pitch, format; int is_registered, mapped, is_locked;
} Surface;

/* What an encoder is to make. `colours`: whether they are known, full range, primaries, transfer and matrix. */
typedef struct {
    int is_hevc, width, height, bits, b_frames, b_references, is_cavlc; float quality; int is_constant_qp;
    int aspect[2], colours[5];
} Wanted;
typedef struct Coder Coder;
typedef struct { int64_t number; int is_key; size_t size; unsigned char *bytes; } Coded;

/* libavcodec's encoder for the CPU, x264 or x265, which makes the types of pictures that it is told. NULL where it
 * does not open. */
Coder *soft_coder(const Wanted *wanted);
void soft_end_coder(Coder *coder);
/* Parameter sets in Annex B. */
const unsigned char *soft_headers(const Coder *coder, size_t *size);
/* Encode the next picture in the order of display; none, and that was the last. Whether that worked. */
int soft_code(Coder *coder, const Surface *surface, int64_t number, int type);
/* The next packet in the order of decoding, if there is one. Its bytes are the caller's. */
int soft_coded(Coder *coder, Coded *out);

/* What this NVENC is. Tests choose it by SOFT_NVENC_CHIP. */
typedef struct { const char *name; int has_engine, most_b[2], b_references[2]; } Chip;
const Chip *soft_chip(void);
/* A cap of a chip's encoder for a codec, by NVENC's number. */
int soft_cap(const Chip *chip, int is_hevc, unsigned cap);
/* Why the chip does not encode like this, NULL where it does. */
const char *soft_refusal(const Chip *chip, int is_hevc, const InitParams *params);
/* What presets stand for. Whether there is such a preset. */
int soft_preset(int is_hevc, const Guid *preset, Config *out);
/* 1 to 7, 0 for no preset. */
int soft_preset_number(const Guid *preset);
/* The fields of the configuration for a codec, which lie elsewhere in each. */
typedef enum { FLAGS, LEVEL, IDR_PERIOD, COLOURS, B_REFERENCES, BITS } Field;
unsigned *soft_field(Config *config, int is_hevc, Field field);

/* A session begins with the API of its client, and whether it was initialized. */
typedef struct { unsigned api; int is_open; } Head;
typedef struct Session Session;

/* Each structure's first word names the API of the client and the structure's revision. */
static inline int soft_version(unsigned word, unsigned api, unsigned revision, int is_marked) {
    return word == (api | revision << 16 | 7u << 28 | (unsigned)is_marked << 31);
}
#define CALLED(name) do { int error_ = soft_called(name); if (error_) return error_; } while (0)
#define IN_SESSION(name, session) do { \
    CALLED(name); \
    if (soft_context(name)) return NV_INVALID_DEVICE; \
    if (!((const Head *)(session))->is_open) return NV_NOT_INITIALIZED; } while (0)
#define VERSION(session, params, revision, is_marked) do { \
    if (!soft_version((params)->version, ((const Head *)(session))->api, revision, is_marked)) \
        return NV_INVALID_VERSION; } while (0)

int soft_create_input(Session *session, InputParams *params);
int soft_destroy_input(Session *session, Surface *surface);
int soft_lock_input(Session *session, LockInputParams *params);
int soft_unlock_input(Session *session, Surface *surface);
int soft_register(Session *session, RegisterParams *params);
int soft_unregister(Session *session, Surface *surface);
int soft_map(Session *session, MapParams *params);
int soft_unmap(Session *session, Surface *surface);
