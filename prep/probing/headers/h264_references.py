"""Reads to which earlier pictures those of an H.264 stream may refer: ISO/IEC 14496-10, 7.3.2.2 and 7.3.3."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from .h264_sps import Bits, Sps, parse_sps
from .nal_units import length_bytes_of, split_units, stored_h264_sets

_SLICE, _IDR, _SPS, _PPS = 1, 5, 7, 8
_P, _B, _I, _SP, _SI = 0, 1, 2, 3, 4
# Headers of slices that name many references are no longer.
_LOOKED_AT_BYTES = 256
_MOST_REFERENCES = 32
_ADD, _LONG_TERM, _END = 1, 2, 3
# memory_management_control_operation.
_END_OF_MARKS, _FORGET = 0, 1


@dataclass(frozen=True, slots=True)
class ReferenceList:
    """A list of the references of a slice: how many it has, and the frame_num of those that the slice puts first, in
    their order. None stands for one that is not known by its frame_num."""

    count: int
    first: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class CodedFrame:
    """A frame of one packet: its frame_num, whether later frames may refer to it, and the reference lists of each of
    its slices: none of slices that refer to no other frame, one of P slices, two of B slices. `forgotten`: the
    frame_num of those to which no frame behind it refers, as it says."""

    frame_num: int
    is_reference: bool
    slices: tuple[tuple[ReferenceList, ...], ...]
    forgotten: tuple[int, ...] = ()

    @property
    def is_intra(self) -> bool:
        """Whether it refers to no other frame."""
        return not any(self.slices)


@dataclass(frozen=True)
class _Pps:
    sps: Sps
    has_order_delta: bool
    counts: tuple[int, int]
    has_redundant_pictures: bool
    has_weights: tuple[int, ...]


class ReferenceReader:
    """Reads the packets of a stream in decode order."""

    def __init__(self, extradata: bytes | None) -> None:
        self._length_bytes = length_bytes_of("h264", extradata or b"")
        self._sps: dict[int, Sps] = {}
        self._pps: dict[int, _Pps] = {}
        for nal in stored_h264_sets(extradata or b""):
            with suppress(IndexError, KeyError):
                self._keep(nal)

    def read(self, data: bytes) -> CodedFrame | None:
        """The frame of a packet; None where there is none, for fields, where its headers cannot be read, and where it
        changes in another way than by `forgotten` what later frames may refer to, such as by long-term references."""
        found: list[tuple[ReferenceList, ...]] = []
        frame_num, is_reference, forgotten = 0, False, tuple[int, ...]()
        try:
            for nal in split_units(data, self._length_bytes):
                self._keep(nal)
                if nal[0] & 31 in (_SLICE, _IDR):
                    frame_num, lists, forgotten = self._slice(nal)
                    is_reference = bool(nal[0] & 96)
                    found.append(lists)
        except (IndexError, KeyError):
            return None
        return CodedFrame(frame_num, is_reference, tuple(found), forgotten) if found else None

    def _keep(self, nal: bytes) -> None:
        """Keep a parameter set. IndexError or KeyError for one that cannot be read."""
        if nal[0] & 31 == _SPS:
            sps = parse_sps(nal)
            self._sps[sps.number] = sps
        elif nal[0] & 31 == _PPS:
            self._keep_pps(nal)

    def _keep_pps(self, nal: bytes) -> None:
        bits = Bits(nal[1:])
        number = bits.exp_golomb()
        self._pps.pop(number, None)
        sps = self._sps[bits.exp_golomb()]
        bits.take(1)  # entropy_coding_mode_flag
        has_order_delta = bool(bits.take(1))
        if bits.exp_golomb():  # num_slice_groups_minus1
            return
        counts = (bits.exp_golomb() + 1, bits.exp_golomb() + 1)
        has_weights = bits.take(1), bits.take(2)  # weighted_pred_flag, weighted_bipred_idc
        for _ in range(3):  # pic_init_qp_minus26, pic_init_qs_minus26, chroma_qp_index_offset
            bits.exp_golomb()
        bits.take(2)  # deblocking_filter_control_present_flag, constrained_intra_pred_flag
        kinds = [kind for kind, how in ((_P, has_weights[0]), (_SP, has_weights[0]), (_B, has_weights[1])) if how == 1]
        self._pps[number] = _Pps(sps, has_order_delta, counts, bool(bits.take(1)), tuple(kinds))

    def _slice(self, nal: bytes) -> tuple[int, tuple[ReferenceList, ...], tuple[int, ...]]:
        """The frame_num, the reference lists and the forgotten frames of a slice. IndexError for one of a field, and
        for one that marks references in another way."""
        bits = Bits(nal[1:_LOOKED_AT_BYTES])
        bits.exp_golomb()  # first_mb_in_slice
        kind = bits.exp_golomb() % 5
        pps = self._pps[bits.exp_golomb()]
        sps = pps.sps
        if sps.separate_planes:
            bits.take(2)
        frame_num = bits.take(sps.frame_num_bits)
        if sps.allows_fields and bits.take(1):
            raise IndexError("it is a field")
        # No frame behind an IDR picture refers to one before it.
        if nal[0] & 31 == _IDR:
            return frame_num, (), ()
        if sps.order_bits:
            bits.take(sps.order_bits)
        for _ in range((bool(sps.order_bits) or sps.has_order_deltas) * pps.has_order_delta + sps.has_order_deltas):
            bits.exp_golomb()
        if pps.has_redundant_pictures:
            bits.exp_golomb()
        frames = 1 << sps.frame_num_bits
        lists = () if kind in (_I, _SI) else _lists(bits, pps, frame_num, frames, is_b=kind == _B)
        if not nal[0] & 96:  # nal_ref_idc
            return frame_num, lists, ()
        if kind in pps.has_weights:
            _skip_weights(bits, lists, has_chroma=sps.has_chroma)
        return frame_num, lists, _forgotten(bits, frame_num, frames)


def _lists(bits: Bits, pps: _Pps, frame_num: int, frames: int, *, is_b: bool) -> tuple[ReferenceList, ...]:
    if is_b:
        bits.take(1)  # direct_spatial_mv_pred_flag
    counts = list(pps.counts[: 1 + is_b])
    if bits.take(1):  # num_ref_idx_active_override_flag
        counts = [bits.exp_golomb() + 1 for _ in counts]
    if max(counts) > _MOST_REFERENCES:
        raise IndexError("no slice has so many references")
    return tuple(ReferenceList(count, _first(bits, frame_num, frames)) for count in counts)


def _skip_weights(bits: Bits, lists: tuple[ReferenceList, ...], *, has_chroma: bool) -> None:
    """pred_weight_table()."""
    for _ in range(1 + has_chroma):
        bits.exp_golomb()
    for _ in range(sum(each.count for each in lists)):
        for count in (2, 4)[: 1 + has_chroma]:
            if bits.take(1):
                for _ in range(count):
                    bits.exp_golomb()


def _forgotten(bits: Bits, frame_num: int, frames: int) -> tuple[int, ...]:
    """The frame_num of the frames that dec_ref_pic_marking() marks as no references, modulo `frames`. IndexError where
    it does anything else."""
    found: list[int] = []
    if not bits.take(1):  # adaptive_ref_pic_marking_mode_flag
        return ()
    while (how := bits.exp_golomb()) != _END_OF_MARKS:
        if how != _FORGET:
            raise IndexError("it has long-term references, or forgets all")
        found.append((frame_num - bits.exp_golomb() - 1) % frames)
    return tuple(found)


def _first(bits: Bits, frame_num: int, frames: int) -> tuple[int | None, ...]:
    """The frame_num of the references that ref_pic_list_modification() puts first, modulo `frames`."""
    found: list[int | None] = []
    if not bits.take(1):
        return ()
    named = frame_num
    while (how := bits.exp_golomb()) != _END:
        if len(found) > _MOST_REFERENCES or how > _END:
            raise IndexError("no slice names so many references")
        number = bits.exp_golomb()
        if how == _LONG_TERM:
            found.append(None)
            continue
        named = (named + (number + 1 if how == _ADD else -number - 1)) % frames
        found.append(named)
    return tuple(found)
