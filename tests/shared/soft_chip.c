/* What the chip of libnvidia-encode in software can do, and what it refuses.
 *
 * Caps, sizes and the sentences of refusals are those that others measured on GPUs of NVIDIA; presets are not: they hold
 * what a client that relies on them would not want. */
#include "soft_nvenc.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_B = 0, RATE_CONTROLS = 1, MAX_WIDTH = 16, MAX_HEIGHT = 17, MIN_WIDTH = 45, MIN_HEIGHT = 46 };
enum { CABAC = 7, BITRATE_CHANGES = 20, LOOKS_AHEAD = 37, TEMPORAL_AQ = 38, TEN_BITS = 39, WEIGHTED = 41 };
enum { B_REFERENCE_MODES = 43, MANY_REFERENCES = 47, ENGINES = 49 };
enum { CONSTANT_QP = 0, LEAST_GOP = 1 };

/* H.264, then HEVC. */
static const Chip chips[] = {
    {"L4", 1, {4, 5}, {3, 3}},
    {"GTX 1650", 1, {4, 0}, {2, 0}},
    {"H100", 0, {0, 0}, {0, 0}},
};

const Chip *soft_chip(void) {
    const char *wanted = getenv("SOFT_NVENC_CHIP");
    for (size_t each = 0; wanted && each < sizeof chips / sizeof *chips; each++)
        if (!strcmp(chips[each].name, wanted)) return &chips[each];
    return chips;
}

int soft_cap(const Chip *chip, int is_hevc, unsigned cap) {
    switch (cap) {
    case MOST_B: return chip->most_b[is_hevc];
    case RATE_CONTROLS: return 7;
    case MAX_WIDTH: case MAX_HEIGHT: return is_hevc ? 8192 : 4096;
    case MIN_WIDTH: return is_hevc ? 129 : 145;
    case MIN_HEIGHT: return is_hevc ? 33 : 49;
    case CABAC: return !is_hevc;
    case TEN_BITS: return is_hevc;
    case B_REFERENCE_MODES: return chip->b_references[is_hevc];
    case BITRATE_CHANGES: case LOOKS_AHEAD: case TEMPORAL_AQ: case WEIGHTED: case MANY_REFERENCES: return 1;
    case ENGINES: return 2;
    default: return 0;
    }
}

int soft_preset_number(const Guid *preset) {
    /* The first four bytes tell them apart. */
    static const uint32_t first[] = {0xfc0a8d3e, 0xf581cfb8, 0x36850110, 0x90a7b826, 0x21c6e6b4, 0x8e75c279, 0x84848c12};
    for (int each = 0; each < 7; each++)
        if (!memcmp(preset, &first[each], 4)) return each + 1;
    return 0;
}

unsigned *soft_field(Config *config, int is_hevc, Field field) {
    static const int h264[] = {[FLAGS] = 0, [LEVEL] = 1, [IDR_PERIOD] = 2, [COLOURS] = 18, [B_REFERENCES] = 50, [BITS] = 53};
    static const int hevc[] = {[FLAGS] = 4, [LEVEL] = 0, [IDR_PERIOD] = 5, [COLOURS] = 16, [B_REFERENCES] = 45, [BITS] = 50};
    return &config->codec[is_hevc ? hevc[field] : h264[field]];
}

int soft_preset(int is_hevc, const Guid *preset, Config *out) {
    int number = soft_preset_number(preset);
    if (!number) return 0;
    unsigned version = out->version;
    memset(out, 0, sizeof *out);
    out->version = version;
    out->gop_length = 250;
    out->interval_p = 4;
    out->fields = 1;
    out->rate_control = 1;
    out->average_rate = 2000000;
    *soft_field(out, is_hevc, IDR_PERIOD) = 250;
    *soft_field(out, is_hevc, B_REFERENCES) = 2;
    *soft_field(out, is_hevc, BITS) = 8;
    soft_field(out, is_hevc, COLOURS)[3] = 5; /* the format of the video: unspecified */
    if (number < 6) return 1;
    out->rate_flags |= LOOK_AHEAD;
    out->look_ahead = 12;
    return 1;
}

const char *soft_refusal(const Chip *chip, int is_hevc, const InitParams *params) {
    Config *config = params->config;
    int width = (int)params->width, height = (int)params->height;
    if (width < soft_cap(chip, is_hevc, MIN_WIDTH) || height < soft_cap(chip, is_hevc, MIN_HEIGHT))
        return is_hevc ? "Frame dimensions are less than the minimum supported value."
                       : "Frame Dimension less than the minimum supported value.";
    if (width > soft_cap(chip, is_hevc, MAX_WIDTH) || height > soft_cap(chip, is_hevc, MAX_HEIGHT))
        return is_hevc ? "Width greater than supported value." : "Frame Dimension greater than the maximum supported value.";
    if (!soft_preset_number(&params->preset)) return "this preset is not known";
    if (!params->tuning)
        return "Presets P1-P7 are only supported with valid NV_ENC_INITIALIZE_PARAMS::tuningInfo";
    if (params->is_async) return "Async mode not supported.";
    if (!params->decides_types) return "the driver in software decides the types of pictures";
    if (config->interval_p < 0 || config->interval_p - 1 > chip->most_b[is_hevc]) return "too many B-frames";
    /* Cards refuse less than the interval, and their sentence speaks of more than that. The sentence counts here. */
    if (config->gop_length && config->interval_p > LEAST_GOP && (unsigned)config->interval_p >= config->gop_length)
        return "Gop Length should be greater than number of B frames + 1";
    if (config->interval_p == LEAST_GOP && config->gop_length == LEAST_GOP)
        return "Gop Length should be greater than number of B frames + 1";
    if (config->interval_p > 1 && *soft_field(config, is_hevc, B_REFERENCES) && !chip->b_references[is_hevc])
        return "B-frames as references are not supported";
    if (config->rate_control > 2) return "this rate control is not supported";
    if (config->rate_control != CONSTANT_QP && config->quality > 51) return "a quality above 51";
    if (*soft_field(config, is_hevc, BITS) == 10 && !soft_cap(chip, is_hevc, TEN_BITS)) return "10 bits are not supported";
    return NULL;
}
