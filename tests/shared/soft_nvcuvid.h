/* What the files of libnvcuvid in software share: the structures that FFmpeg fills in for a picture. */
#include "soft_driver.h"

enum { H264 = 4, HEVC = 8, VP9 = 10 };

typedef struct {
    int index, frame_number, is_long_term, not_existing, used, order_counts[2];
} H264Reference;

typedef struct {
    int log2_max_frame_num_minus4, poc_type, log2_max_poc_lsb_minus4, delta_poc_always_zero, frame_mbs_only;
    int direct_8x8_inference, num_ref_frames;
    unsigned char residual_transform, luma_bits_minus8, chroma_bits_minus8, transform_bypass;
    int cabac, pic_order_present, num_l0_minus1, num_l1_minus1, weighted_pred, weighted_bipred, init_qp_minus26;
    int deblocking_control, redundant_pic_cnt, transform_8x8, mbaff, constrained_intra, chroma_offset;
    int second_chroma_offset, is_reference, frame_num, order_counts[2];
    H264Reference references[16];
    unsigned char scale4x4[6][16], scale8x8[2][64];
} H264Picture;

typedef struct {
    int width, height;
    unsigned char log2_min_cb_minus3, log2_diff_cb, log2_min_tb_minus2, log2_diff_tb, pcm, log2_min_pcm_minus3;
    unsigned char log2_diff_pcm, pcm_luma_bits_minus1, pcm_chroma_bits_minus1, pcm_loop_filter_disabled;
    unsigned char strong_intra_smoothing, depth_intra, depth_inter, amp, separate_planes, log2_max_poc_lsb_minus4;
    unsigned char num_short_term_sets, long_term_present, num_long_term, temporal_mvp, sao, scaling_list, irap, idr;
    unsigned char luma_bits_minus8, chroma_bits_minus8, transform_skip_size, sao_luma, sao_chroma, high_precision;
    unsigned char reserved1[10];
    unsigned char dependent_slices, header_extension, sign_hiding, cu_qp_delta, diff_cu_qp_delta_depth;
    signed char init_qp_minus26, cb_offset, cr_offset;
    unsigned char constrained_intra, weighted_pred, weighted_bipred, transform_skip, bypass, entropy_sync;
    unsigned char log2_parallel_merge_minus2, num_extra_header_bits, loop_filter_tiles, loop_filter_slices;
    unsigned char output_flag_present, num_l0_minus1, num_l1_minus1, lists_modification, cabac_init_present;
    unsigned char slice_chroma_offsets, deblocking_override, deblocking_disabled;
    signed char beta_offset_div2, tc_offset_div2;
    unsigned char tiles, uniform_spacing, num_columns_minus1, num_rows_minus1;
    unsigned short column_width_minus1[21], row_height_minus1[21];
    unsigned char sps_range_extension, range_flags[8], pps_range_extension, more_flags[4];
    signed char cb_offsets[6], cr_offsets[6];
    unsigned char reserved2[2];
    unsigned reserved3[8];
    int short_term_bits, delta_pocs, num_total, num_before, num_after, num_long, order_count;
    int reference_index[16], reference_order[16];
} HevcPicture;

typedef struct {
    int width_in_mbs, height_in_mbs, index, field, bottom_field, second_field;
    unsigned num_bytes; const unsigned char *bytes;
    unsigned num_slices; const unsigned *slice_starts;
    int is_reference, is_intra; unsigned reserved[30];
    union { H264Picture h264; HevcPicture hevc; unsigned reserved[1024]; } codec;
} Picture;

/* Parameter sets in Annex B that say what a picture's parameters say, for its first slice. How many bytes they take;
 * 0 where this driver does not write them. `out` has room for 4096 bytes. */
size_t soft_sets(int codec, const Picture *picture, unsigned char *out);

/* A picture whose bytes hold the parameter sets too, from this driver's own parser: what a parser hands its decoder is
 * between the two. It lies in the first of the reserved fields. */
enum { WITH_SETS = 0x50F7 };

typedef struct { int coded_width, coded_height, width, height, bits, full_range, primaries, transfer, matrix; } Look;

/* What libavcodec finds in an access unit that begins with parameter sets. Whether it finds a picture. */
int soft_look(int codec, const unsigned char *bytes, size_t size, Look *out);
