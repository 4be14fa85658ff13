/* Parameter sets of H.264 and HEVC from what FFmpeg hands NVDEC with each picture. NVDEC is given no parameter sets, and
 * the decoder behind this driver needs some: they hold what FFmpeg said, so a field that FFmpeg fills in wrongly is seen
 * in the picture. Syntax: ITU-T H.264 7.3.2 and H.265 7.3.2. */
#include "soft_nvcuvid.h"

#include <string.h>

typedef struct { unsigned char bytes[1024]; unsigned bits; } Writer;

static void put(Writer *to, unsigned count, unsigned value) {
    while (count--) {
        if (value >> count & 1) to->bytes[to->bits / 8] |= (unsigned char)(0x80 >> to->bits % 8);
        to->bits++;
    }
}
static void put_ue(Writer *to, unsigned value) {
    unsigned length = 0;
    while ((value + 1) >> (length + 1)) length++;
    put(to, length, 0);
    put(to, length + 1, value + 1);
}
static void put_se(Writer *to, int value) { put_ue(to, value > 0 ? (unsigned)(2 * value - 1) : (unsigned)(-2 * value)); }

/* Append a NAL unit: start code, header, and the payload with emulation prevention. */
static size_t unit(unsigned char *out, const unsigned char *header, size_t header_bytes, Writer *payload) {
    put(payload, 1, 1);
    size_t size = 0, zeros = 0;
    memcpy(out, "\0\0\0\1", 4);
    memcpy(out + 4, header, header_bytes);
    size = 4 + header_bytes;
    for (unsigned each = 0; each < (payload->bits + 7) / 8; each++) {
        if (zeros == 2 && payload->bytes[each] <= 3) {
            out[size++] = 3;
            zeros = 0;
        }
        out[size++] = payload->bytes[each];
        zeros = payload->bytes[each] ? 0 : zeros + 1;
    }
    return size;
}

typedef struct { const unsigned char *bytes, *end; unsigned bits; } Reader;

static unsigned get(Reader *from) {
    const unsigned char *at = from->bytes + from->bits / 8;
    unsigned bit = at < from->end ? *at >> (7 - from->bits % 8) & 1 : 0;
    from->bits++;
    return bit;
}
static unsigned get_ue(Reader *from) {
    unsigned zeros = 0, value = 1;
    while (!get(from) && zeros < 24) zeros++;
    for (unsigned each = 0; each < zeros; each++) value = 2 * value + get(from);
    return value - 1;
}

static size_t h264_sets(const Picture *picture, Reader slice, unsigned char *out) {
    const H264Picture *p = &picture->codec.h264;
    slice.bits = 8;
    get_ue(&slice); /* first_mb_in_slice */
    get_ue(&slice); /* slice_type */
    unsigned pps = get_ue(&slice);
    unsigned char flat[sizeof p->scale4x4 + sizeof p->scale8x8];
    memset(flat, 16, sizeof flat);
    int scaled = memcmp(p->scale4x4, flat, sizeof p->scale4x4) || memcmp(p->scale8x8, flat, sizeof p->scale8x8);
    if (p->poc_type == 1 || picture->field || scaled || p->residual_transform) return 0;
    Writer to = {.bits = 0};
    put(&to, 8, p->luma_bits_minus8 ? 110 : 100);
    put(&to, 8, 0);
    put(&to, 8, 52);
    put_ue(&to, 0);
    put_ue(&to, 1); /* 4:2:0 */
    put_ue(&to, p->luma_bits_minus8);
    put_ue(&to, p->chroma_bits_minus8);
    put(&to, 1, p->transform_bypass);
    put(&to, 1, 0);
    put_ue(&to, (unsigned)p->log2_max_frame_num_minus4);
    put_ue(&to, (unsigned)p->poc_type);
    if (!p->poc_type) put_ue(&to, (unsigned)p->log2_max_poc_lsb_minus4);
    put_ue(&to, (unsigned)p->num_ref_frames);
    put(&to, 1, 0);
    put_ue(&to, (unsigned)picture->width_in_mbs - 1);
    put_ue(&to, (unsigned)(picture->height_in_mbs / (2 - p->frame_mbs_only)) - 1);
    put(&to, 1, (unsigned)p->frame_mbs_only);
    if (!p->frame_mbs_only) put(&to, 1, (unsigned)p->mbaff);
    put(&to, 1, (unsigned)p->direct_8x8_inference);
    put(&to, 2, 0); /* no cropping, no VUI */
    size_t size = unit(out, (const unsigned char[]){0x67}, 1, &to);
    to = (Writer){.bits = 0};
    put_ue(&to, pps);
    put_ue(&to, 0);
    put(&to, 1, (unsigned)p->cabac);
    put(&to, 1, (unsigned)p->pic_order_present);
    put_ue(&to, 0); /* one slice group */
    put_ue(&to, (unsigned)p->num_l0_minus1);
    put_ue(&to, (unsigned)p->num_l1_minus1);
    put(&to, 1, (unsigned)p->weighted_pred);
    put(&to, 2, (unsigned)p->weighted_bipred);
    put_se(&to, p->init_qp_minus26);
    put_se(&to, 0);
    put_se(&to, p->chroma_offset);
    put(&to, 1, (unsigned)p->deblocking_control);
    put(&to, 1, (unsigned)p->constrained_intra);
    put(&to, 1, (unsigned)p->redundant_pic_cnt);
    put(&to, 1, (unsigned)p->transform_8x8);
    put(&to, 1, 0);
    put_se(&to, p->second_chroma_offset);
    return size + unit(out + size, (const unsigned char[]){0x68}, 1, &to);
}

static void put_profile(Writer *to, unsigned bits_minus8) {
    put(to, 3, 0);
    put(to, 5, bits_minus8 ? 2 : 1);
    put(to, 32, bits_minus8 ? 0x20000000 : 0x60000000);
    put(to, 4, 0x9); /* progressive, frames only */
    put(to, 32, 0);
    put(to, 12, 0);
    put(to, 8, 186); /* level 6.2 */
}

static void put_sps(Writer *to, const HevcPicture *p) {
    put(to, 4, 0);
    put(to, 3, 0);
    put(to, 1, 1);
    put_profile(to, p->luma_bits_minus8);
    put_ue(to, 0);
    put_ue(to, 1); /* 4:2:0 */
    put_ue(to, (unsigned)p->width);
    put_ue(to, (unsigned)p->height);
    put(to, 1, 0);
    put_ue(to, p->luma_bits_minus8);
    put_ue(to, p->chroma_bits_minus8);
    put_ue(to, p->log2_max_poc_lsb_minus4);
    put(to, 1, 1);
    put_ue(to, 15);
    put_ue(to, 0);
    put_ue(to, 0);
    put_ue(to, p->log2_min_cb_minus3);
    put_ue(to, p->log2_diff_cb);
    put_ue(to, p->log2_min_tb_minus2);
    put_ue(to, p->log2_diff_tb);
    put_ue(to, p->depth_inter);
    put_ue(to, p->depth_intra);
    put(to, 1, 0);
    put(to, 1, p->amp);
    put(to, 1, p->sao);
    put(to, 1, p->pcm);
    if (p->pcm) {
        put(to, 4, p->pcm_luma_bits_minus1);
        put(to, 4, p->pcm_chroma_bits_minus1);
        put_ue(to, p->log2_min_pcm_minus3);
        put_ue(to, p->log2_diff_pcm);
        put(to, 1, p->pcm_loop_filter_disabled);
    }
    put_ue(to, 0); /* reference picture sets: each slice has its own */
    put(to, 1, p->long_term_present);
    if (p->long_term_present) put_ue(to, 0);
    put(to, 1, p->temporal_mvp);
    put(to, 1, p->strong_intra_smoothing);
    put(to, 2, 0);
}

static void put_pps(Writer *to, const HevcPicture *p, unsigned number) {
    put_ue(to, number);
    put_ue(to, 0);
    put(to, 1, p->dependent_slices);
    put(to, 1, p->output_flag_present);
    put(to, 3, p->num_extra_header_bits);
    put(to, 1, p->sign_hiding);
    put(to, 1, p->cabac_init_present);
    put_ue(to, p->num_l0_minus1);
    put_ue(to, p->num_l1_minus1);
    put_se(to, p->init_qp_minus26);
    put(to, 1, p->constrained_intra);
    put(to, 1, p->transform_skip);
    put(to, 1, p->cu_qp_delta);
    if (p->cu_qp_delta) put_ue(to, p->diff_cu_qp_delta_depth);
    put_se(to, p->cb_offset);
    put_se(to, p->cr_offset);
    put(to, 1, p->slice_chroma_offsets);
    put(to, 1, p->weighted_pred);
    put(to, 1, p->weighted_bipred);
    put(to, 1, p->bypass);
    put(to, 1, 0);
    put(to, 1, p->entropy_sync);
    put(to, 1, p->loop_filter_slices);
    unsigned control = p->deblocking_override || p->deblocking_disabled || p->beta_offset_div2 || p->tc_offset_div2;
    put(to, 1, control);
    if (control) {
        put(to, 1, p->deblocking_override);
        put(to, 1, p->deblocking_disabled);
        if (!p->deblocking_disabled) {
            put_se(to, p->beta_offset_div2);
            put_se(to, p->tc_offset_div2);
        }
    }
    put(to, 1, 0);
    put(to, 1, p->lists_modification);
    put_ue(to, p->log2_parallel_merge_minus2);
    put(to, 1, p->header_extension);
    put(to, 1, 0);
}

static size_t hevc_sets(const Picture *picture, Reader slice, unsigned char *out) {
    const HevcPicture *p = &picture->codec.hevc;
    unsigned type = slice.bytes[0] >> 1 & 63;
    slice.bits = 16;
    get(&slice); /* first_slice_segment_in_pic_flag */
    if (type >= 16 && type <= 23) get(&slice);
    unsigned pps = get_ue(&slice);
    if (p->scaling_list || p->tiles || p->num_short_term_sets || p->num_long_term || p->separate_planes) return 0;
    if (p->sps_range_extension || p->pps_range_extension) return 0;
    Writer to = {.bits = 0};
    put(&to, 4, 0);
    put(&to, 2, 3);
    put(&to, 6, 0);
    put(&to, 3, 0);
    put(&to, 1, 1);
    put(&to, 16, 0xFFFF);
    put_profile(&to, p->luma_bits_minus8);
    put(&to, 1, 1);
    put_ue(&to, 15);
    put_ue(&to, 0);
    put_ue(&to, 0);
    put(&to, 6, 0);
    put_ue(&to, 0);
    put(&to, 2, 0);
    size_t size = unit(out, (const unsigned char[]){0x40, 1}, 2, &to);
    to = (Writer){.bits = 0};
    put_sps(&to, p);
    size += unit(out + size, (const unsigned char[]){0x42, 1}, 2, &to);
    to = (Writer){.bits = 0};
    put_pps(&to, p, pps);
    return size + unit(out + size, (const unsigned char[]){0x44, 1}, 2, &to);
}

size_t soft_sets(int codec, const Picture *picture, unsigned char *out) {
    if (!picture->num_slices || picture->slice_starts[0] + 5 > picture->num_bytes) return 0;
    /* After the start code of three bytes. */
    Reader slice = {picture->bytes + picture->slice_starts[0] + 3, picture->bytes + picture->num_bytes, 0};
    return codec == H264 ? h264_sets(picture, slice, out) : hevc_sets(picture, slice, out);
}
