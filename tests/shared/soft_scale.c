/* scale_cuda's kernels for libcuda in software: NV12 and planes of 8 bits, by name, as FFmpeg's vf_scale_cuda.cu has
 * them. Weights and offsets come from FFmpeg; sums are rounded, so that pixels are close to those of a GPU, and no more.
 */
#include "soft_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUDA_RESOURCE_DESC for lines of samples. */
typedef struct {
    int type;
    unsigned char *data; int format; unsigned channels; size_t width, height, pitch;
} Texture;
typedef struct {
    const Texture *from[4];
    unsigned char *to[4];
    int width, height, pitch, left, top, from_width, from_height;
    float param;
    int limited_range;
    const float *weights;
    const int *offsets;
    int num_taps;
} Params;
typedef enum { NEAREST, BICUBIC, ALONG_LINES, ALONG_COLUMNS } Way;
typedef struct Kernel {
    Way way;
    int from_interleaved, to_interleaved, is_chroma;
} Kernel;

enum { PITCH_2D = 3, BYTES = 1 };

static const struct { const char *name; Way way; } ways[] = {
    {"Subsample_Nearest_", NEAREST}, {"Subsample_Bicubic_", BICUBIC},
    {"Subsample_Generic_h_", ALONG_LINES}, {"Subsample_Generic_v_", ALONG_COLUMNS},
};

int cuModuleLoadData(void **module, const void *image) {
    int error = soft_called("cuModuleLoadData");
    *module = (void *)image;
    return error ? error : soft_context("cuModuleLoadData");
}
int cuModuleUnload(void *module) { (void)module; return soft_context("cuModuleUnload"); }

static int cut(const char **name, const char *start) {
    size_t length = strlen(start);
    if (strncmp(*name, start, length)) return 0;
    *name += length;
    return 1;
}

/* Kernels of one process are few, and live as long as it. */
int cuModuleGetFunction(Kernel **out, void *module, const char *name) {
    (void)module;
    Kernel *made = calloc(1, sizeof *made);
    size_t each = 0;
    while (each < sizeof ways / sizeof *ways && !cut(&name, ways[each].name)) each++;
    int known = each < sizeof ways / sizeof *ways;
    if (known) made->way = ways[each].way;
    if (known) known = (made->from_interleaved = cut(&name, "semiplanar8_")) || cut(&name, "planar8_");
    if (known) known = (made->to_interleaved = cut(&name, "semiplanar8")) || cut(&name, "planar8");
    if (known) known = (made->is_chroma = cut(&name, "_uv")) || !*name;
    if (known) *out = made;
    else free(made);
    return known ? SUCCESS : NOT_FOUND;
}

int cuTexObjectCreate(Texture **out, const Texture *from, const void *how, const void *view) {
    (void)how, (void)view;
    int error = soft_called("cuTexObjectCreate");
    if (error || (error = soft_context("cuTexObjectCreate"))) return error;
    if (from->type != PITCH_2D || from->format != BYTES) return NOT_SUPPORTED;
    size_t bytes = (from->height - 1) * from->pitch + from->width * from->channels;
    if (!soft_allocated(from->data, bytes)) soft_complain("a texture is no memory of the device");
    *out = malloc(sizeof **out);
    **out = *from;
    soft_count("textures", 1);
    return SUCCESS;
}
int cuTexObjectDestroy(Texture *texture) {
    free(texture);
    soft_count("textures", -1);
    return SUCCESS;
}

static float sample(const Texture *from, int x, int y, int channel) {
    x = x < 0 ? 0 : x >= (int)from->width ? (int)from->width - 1 : x;
    y = y < 0 ? 0 : y >= (int)from->height ? (int)from->height - 1 : y;
    return from->data[(size_t)y * from->pitch + (size_t)x * from->channels + (size_t)channel];
}

/* Four taps around `at`, which counts from the middle of the first sample: Catmull and Rom's with A = 0. */
static int taps(float at, float *weights) {
    int first = (int)(at + 1024) - 1024;
    float x = at - (float)first;
    weights[0] = 0;
    weights[1] = (2 * x - 3) * x * x + 1;
    weights[2] = 1 - weights[1];
    weights[3] = 0;
    return first - 1;
}

static float value(const Kernel *kernel, const Params *p, const Texture *from, int x, int y, int channel) {
    float sum = 0, along[4], down[4];
    if (kernel->way == ALONG_LINES || kernel->way == ALONG_COLUMNS) {
        int lines = kernel->way == ALONG_LINES, place = lines ? x : y;
        for (int tap = 0; tap < p->num_taps; tap++)
            sum += p->weights[place * p->num_taps + tap] * sample(
                from, p->left + (lines ? p->offsets[x] + tap : x), p->top + (lines ? y : p->offsets[y] + tap), channel);
        return sum;
    }
    float from_x = ((float)x + 0.5F) * (float)p->from_width / (float)p->width + (float)p->left;
    float from_y = ((float)y + 0.5F) * (float)p->from_height / (float)p->height + (float)p->top;
    if (kernel->way == NEAREST) return sample(from, (int)from_x, (int)from_y, channel);
    int first_x = taps(from_x - 0.5F, along), first_y = taps(from_y - 0.5F, down);
    for (int tap_y = 0; tap_y < 4; tap_y++)
        for (int tap_x = 0; tap_x < 4; tap_x++)
            sum += down[tap_y] * along[tap_x] * sample(from, first_x + tap_x, first_y + tap_y, channel);
    return sum;
}

int cuLaunchKernel(const Kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **params, void **extra) {
    (void)stream, (void)extra, (void)shared;
    int error = soft_called("cuLaunchKernel");
    if (error || (error = soft_context("cuLaunchKernel"))) return error;
    const Params *p = params[0];
    if ((int)(grid_x * block_x) < p->width || (int)(grid_y * block_y) < p->height || grid_z * block_z != 1)
        soft_complain("a grid that does not cover the picture");
    for (int channel = 0; channel <= kernel->is_chroma; channel++) {
        const Texture *from = p->from[kernel->is_chroma * (1 + (kernel->from_interleaved ? 0 : channel))];
        unsigned char *to = p->to[kernel->is_chroma * (1 + (kernel->to_interleaved ? 0 : channel))];
        int step = 1 + (kernel->is_chroma && kernel->to_interleaved);
        if (!soft_allocated(to, (size_t)(p->height - 1) * (size_t)p->pitch + (size_t)(p->width * step)))
            soft_complain("a kernel writes what is no memory of the device");
        for (int y = 0; y < p->height; y++)
            for (int x = 0; x < p->width; x++) {
                float level = value(kernel, p, from, x, y, kernel->from_interleaved ? channel : 0) + 0.5F;
                to[y * p->pitch + x * step + (step - 1) * channel] =
                    (unsigned char)(level < 0 ? 0 : level > 255 ? 255 : level);
            }
    }
    return SUCCESS;
}
