// The rows and panels of rows.h that do not lie ready: converted from and to any dtype and strides. Eight loops over
// operands for each compute type, which take longer to compile than most kernels do: include it once in a library.
#pragma once

#include "rows.h"

namespace AVO_ISA_NAMESPACE {
namespace {

// f(data of its dtype).
template <class F> AVO_INLINE void by_dtype(const AvoOperand &operand, const F &f) {
  switch (operand.dtype) {
  case AVO_F32: return f((float *)operand.data);
  case AVO_F16: return f((F16 *)operand.data);
  case AVO_BF16: return f((Bf16 *)operand.data);
  case AVO_F8: return f((E4m3 *)operand.data);
  case AVO_I8: return f((Int8 *)operand.data);
  default: return f((double *)operand.data);
  }
}

// ---- runs of elements ---------------------------------------------------------------------------

template <class R, int... I> AVO_INLINE R even_lanes(R a, R b, Indices<I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...);
}
// Lanes 0, 2, ... of a, then of b.
template <class C> AVO_INLINE Vec<C> even_lanes(Vec<C> a, Vec<C> b) {
  constexpr int per = Vec<C>::kPerReg, regs = Vec<C>::kRegs;
  typename Vec<C>::Reg both[2 * regs];
  __builtin_memcpy(both, a.r, sizeof(a.r));
  __builtin_memcpy(both + regs, b.r, sizeof(b.r));
  Vec<C> out;
  repeat<regs>([&](auto i) AVO_LAMBDA {
    out.r[i] = even_lanes(both[2 * i], both[2 * i + 1], Indices<__integer_pack(per)...>{});
  });
  return out;
}

// to[i] = from[i * stride], converted; see stage_in.
template <class T, class C> AVO_NOINLINE void convert_in(const T *from, int64_t stride, C *to, int64_t n) {
  int64_t c = 0;
  if (stride == 1) {
    for (; c + kLanes <= n; c += kLanes) load_as(from + c, C()).store(to + c);
  } else if (stride == 2) { // interleaved pairs; the vector after this one starts in the operand, so that its end is
    for (; c + kLanes < n; c += kLanes)
      even_lanes(load_as(from + 2 * c, C()), load_as(from + 2 * c + kLanes, C())).store(to + c);
  } else {
    for (; c + kLanes <= n; c += kLanes) {
      T lanes[kLanes];
      repeat<kLanes>([&](auto i) AVO_LAMBDA { lanes[i] = from[(c + i) * stride]; });
      load_as(lanes, C()).store(to + c);
    }
  }
  for (; c < n; c += kLanes) {
    T lanes[kLanes] = {};
    const int count = n - c < kLanes ? int(n - c) : kLanes;
    for (int i = 0; i < count; ++i) lanes[i] = from[(c + i) * stride];
    load_as(lanes, C()).store(to + c);
  }
}

// to[i * stride] = from[i], converted.
template <class C, class T> AVO_NOINLINE void convert_out(const C *from, T *to, int64_t stride, int64_t n) {
  int64_t c = 0;
  T lanes[kLanes];
  if (stride == 1) {
    for (; c + kLanes <= n; c += kLanes) store_as(to + c, Vec<C>::load(from + c));
  } else {
    for (; c + kLanes <= n; c += kLanes) {
      store_as(lanes, Vec<C>::load(from + c));
      repeat<kLanes>([&](auto i) AVO_LAMBDA { to[(c + i) * stride] = lanes[i]; });
    }
  }
  if (c < n) {
    const int count = int(n - c);
    store_as(lanes, Tail{count}.load(from + c));
    for (int i = 0; i < count; ++i) to[(c + i) * stride] = lanes[i];
  }
}

// ---- panels -------------------------------------------------------------------------------------

// The first `rows` lanes of four columns to as many rows.
template <class C> AVO_INLINE void store_transposed(const Vec<C> (&v)[4], C *to, int64_t pitch, int64_t rows) {
  if constexpr (sizeof(C) == 4) {
    __m128 q[4][4];
    repeat<4>([&](auto j) AVO_LAMBDA { __builtin_memcpy(q[j], v[j].r, sizeof(q[j])); });
    repeat<4>([&](auto g) AVO_LAMBDA {
      _MM_TRANSPOSE4_PS(q[0][g], q[1][g], q[2][g], q[3][g]);
      repeat<4>([&](auto j) AVO_LAMBDA {
        if (4 * g + j < rows) _mm_storeu_ps((float *)to + (4 * g + j) * pitch, q[j][g]);
      });
    });
  } else {
    C tile[4][kLanes];
    repeat<4>([&](auto j) AVO_LAMBDA { v[j].store(tile[j]); });
    for (int64_t r = 0; r < rows; ++r) {
      repeat<4>([&](auto j) AVO_LAMBDA { to[r * pitch + j] = tile[j][r]; });
    }
  }
}
template <class C> AVO_INLINE void load_transposed(Vec<C> (&v)[4], const C *from, int64_t pitch, int64_t rows) {
  if constexpr (sizeof(C) == 4) {
    __m128 q[4][4] = {};
    repeat<4>([&](auto g) AVO_LAMBDA {
      repeat<4>([&](auto j) AVO_LAMBDA {
        if (4 * g + j < rows) q[j][g] = _mm_loadu_ps((const float *)from + (4 * g + j) * pitch);
      });
      _MM_TRANSPOSE4_PS(q[0][g], q[1][g], q[2][g], q[3][g]);
    });
    repeat<4>([&](auto j) AVO_LAMBDA { __builtin_memcpy(v[j].r, q[j], sizeof(q[j])); });
  } else {
    C tile[4][kLanes] = {};
    for (int64_t r = 0; r < rows; ++r) {
      repeat<4>([&](auto j) AVO_LAMBDA { tile[j][r] = from[r * pitch + j]; });
    }
    repeat<4>([&](auto j) AVO_LAMBDA { v[j] = Vec<C>::load(tile[j]); });
  }
}

// to[r * pitch + c] = from[r * row_stride + c * stride], converted, for up to 16 rows.
template <class T, class C>
AVO_NOINLINE void panel_in(const T *from, int64_t row_stride, int64_t stride, C *to, int64_t pitch, int64_t rows,
                           int64_t n) {
  const bool whole = rows == kLanes && row_stride == 1;
  for (int64_t c = 0; c < n; c += 4) {
    Vec<C> v[4];
    repeat<4>([&](auto j) AVO_LAMBDA {
      const T *column = from + (c + j < n ? c + j : n - 1) * stride;
      if (whole) {
        v[j] = load_as(column, C());
        __builtin_prefetch(column + kLanes, 0, 2); // the next panel's
      } else {
        T lanes[kLanes] = {};
        for (int64_t r = 0; r < rows; ++r) lanes[r] = column[r * row_stride];
        v[j] = load_as(lanes, C());
      }
    });
    store_transposed(v, to + c, pitch, rows);
  }
}
// to[r * row_stride + c * stride] = from[r * pitch + c], converted.
template <class C, class T>
AVO_NOINLINE void panel_out(const C *from, int64_t pitch, T *to, int64_t row_stride, int64_t stride, int64_t rows,
                            int64_t n) {
  const bool whole = rows == kLanes && row_stride == 1;
  for (int64_t c = 0; c < n; c += 4) {
    Vec<C> v[4];
    load_transposed(v, from + c, pitch, rows);
    repeat<4>([&](auto j) AVO_LAMBDA {
      if (c + j >= n) return;
      T *column = to + (c + j) * stride;
      if (whole) {
        store_as(column, v[j]);
      } else {
        T lanes[kLanes];
        store_as(lanes, v[j]);
        for (int64_t r = 0; r < rows; ++r) column[r * row_stride] = lanes[r];
      }
    });
  }
}

// ---- runs of columns that lie apart -------------------------------------------------------------

// Less than a vector of elements, as pieces that may overlap.
template <int kBytes> AVO_INLINE bool copy_by(char *to, const char *from, int64_t bytes) {
  if (bytes < kBytes) return false;
  for (int64_t i = 0; i + kBytes <= bytes; i += kBytes) __builtin_memcpy(to + i, from + i, kBytes);
  __builtin_memcpy(to + bytes - kBytes, from + bytes - kBytes, kBytes);
  return true;
}
template <class T> AVO_INLINE void copy_few(T *to, const T *from, int64_t count) {
  const int64_t bytes = count * int64_t(sizeof(T));
  char *const out = (char *)to;
  const char *const in = (const char *)from;
  if (!copy_by<16>(out, in, bytes) && !copy_by<8>(out, in, bytes) && !copy_by<4>(out, in, bytes))
    copy_by<2>(out, in, bytes);
}

// to[j * to_pitch + i] = from[i * from_pitch + j], four by four.
template <class T> AVO_INLINE void turn(const T *from, int64_t from_pitch, T *to, int64_t to_pitch) {
  if constexpr (sizeof(T) == 4) {
    __m128 v[4];
    repeat<4>([&](auto i) AVO_LAMBDA { v[i] = _mm_loadu_ps((const float *)(from + i * from_pitch)); });
    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
    repeat<4>([&](auto j) AVO_LAMBDA { _mm_storeu_ps((float *)(to + j * to_pitch), v[j]); });
  } else if constexpr (sizeof(T) == 2) {
    __m128i v[4];
    repeat<4>([&](auto i) AVO_LAMBDA { v[i] = _mm_loadl_epi64((const __m128i *)(from + i * from_pitch)); });
    const __m128i even = _mm_unpacklo_epi16(v[0], v[1]), odd = _mm_unpacklo_epi16(v[2], v[3]);
    const __m128i first = _mm_unpacklo_epi32(even, odd), second = _mm_unpackhi_epi32(even, odd);
    _mm_storel_epi64((__m128i *)to, first);
    _mm_storel_epi64((__m128i *)(to + to_pitch), _mm_unpackhi_epi64(first, first));
    _mm_storel_epi64((__m128i *)(to + 2 * to_pitch), second);
    _mm_storel_epi64((__m128i *)(to + 3 * to_pitch), _mm_unpackhi_epi64(second, second));
  } else {
    repeat<4>([&](auto i) AVO_LAMBDA {
      repeat<4>([&](auto j) AVO_LAMBDA { to[j * to_pitch + i] = from[i * from_pitch + j]; });
    });
  }
}

constexpr int64_t kAhead =
    6 * kLanes; // columns that are fetched ahead; of a third as many, a call took an eighth longer

// Channels_last: neighbouring columns lie farther from each other than neighbouring runs, which touch. Such operands
// are turned by tiles of 16 columns, so that a run gets a line at a time: many are as far apart as the ways of a cache.
AVO_INLINE bool by_tiles(const AvoOperand &operand) { return operand.run_stride == 1 && operand.col_stride > 1; }

// The runs of up to 16 rows in a buffer. More than one row are neighbours whose runs touch too.
template <class C> struct RunsOfRows {
  C *data;
  int64_t pitch, run, of_row, count;

  AVO_INLINE RunsOfRows(const AvoOperand &operand, C *buffer, int64_t row_pitch, int64_t rows, int64_t n)
      : data(buffer), pitch(row_pitch), run(operand.run), of_row(n / operand.run), count(rows * of_row) {}
  AVO_INLINE C *operator()(int64_t r) const { return data + r / of_row * pitch + r % of_row * run; }
};

// f(runs, from, column) of every tile of kRuns runs: where they are in the buffer, the first of them and the first
// column. The last runs may come twice. `data`: of the operand; a line of it is read or written as a whole where it can
// be: it is seldom in a cache when it is asked for again.
template <int kRuns, class T, class C, class F>
AVO_INLINE void each_tile(const AvoOperand &operand, const T *data, const RunsOfRows<C> &place, const F &f) {
  constexpr int64_t per_line = 64 / int64_t(sizeof(T)), step = per_line > kRuns ? per_line : kRuns;
  for (int64_t begin = 0; begin < place.count; begin += step) {
    const int64_t end = begin + step < place.count ? begin + step : place.count;
    C *runs[step];
    int64_t first[step / kRuns] = {};
    const int tiles = int((end - begin + kRuns - 1) / kRuns);
    for (int i = 0; i < tiles; ++i) {
      first[i] = begin + (i + 1) * kRuns <= place.count ? begin + i * kRuns : place.count - kRuns;
      for (int j = 0; j < kRuns; ++j) runs[i * kRuns + j] = place(first[i] + j);
    }
    for (int64_t c = 0; c + kLanes <= operand.run; c += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        const T *ahead = data + (c + j + kAhead) * operand.col_stride;
        __builtin_prefetch(ahead + begin, 0, 2);
        __builtin_prefetch(ahead + end - 1, 0, 2); // runs that begin within a line end in one more
      }
      for (int i = 0; i < tiles; ++i) f(runs + i * kRuns, first[i], c);
    }
  }
}

// The lower or the upper halves of two registers, their lanes in turn.
template <bool kUpper, class R, int... I> AVO_INLINE R interleaved(R a, R b, Indices<I...>) {
  constexpr int lanes = sizeof...(I);
  return __builtin_shufflevector(a, b, ((kUpper ? lanes / 2 : 0) + I / 2 + (I % 2 ? lanes : 0))...);
}

// Lane j of vector i to lane i of vector j.
template <class C> AVO_INLINE void transpose(Vec<C> (&v)[kLanes]) {
  if constexpr (Vec<C>::kRegs == 1) { // a vector is put between two others four times
    using All = Indices<__integer_pack(kLanes)...>;
    repeat<4>([&](auto) AVO_LAMBDA {
      Vec<C> next[kLanes];
      repeat<kLanes / 2>([&](auto i) AVO_LAMBDA {
        next[2 * i].r[0] = interleaved<false>(v[i].r[0], v[i + kLanes / 2].r[0], All{});
        next[2 * i + 1].r[0] = interleaved<true>(v[i].r[0], v[i + kLanes / 2].r[0], All{});
      });
      repeat<kLanes>([&](auto i) AVO_LAMBDA { v[i] = next[i]; });
    });
  } else {
    C tile[kLanes][kLanes], turned[kLanes][kLanes];
    repeat<kLanes>([&](auto i) AVO_LAMBDA { v[i].store(tile[i]); });
    repeat<4>([&](auto i) AVO_LAMBDA {
      repeat<4>([&](auto j) AVO_LAMBDA { turn(&tile[4 * i][4 * j], kLanes, &turned[4 * j][4 * i], kLanes); });
    });
    repeat<kLanes>([&](auto i) AVO_LAMBDA { v[i] = Vec<C>::load(turned[i]); });
  }
}

// Whether tiles of 16 runs are turned; in more registers that takes longer than tiles of four.
template <class C> constexpr bool kTurnsWhole = Vec<C>::kRegs <= 2;

template <class T, class C>
AVO_NOINLINE void runs_in(const AvoOperand &operand, const T *from, C *to, int64_t pitch, int64_t rows, int64_t n) {
  const RunsOfRows<C> place(operand, to, pitch, rows, n);
  const int64_t run = operand.run, stride = operand.col_stride;
  const bool tiles = by_tiles(operand) && place.count >= 4;
  if (tiles && kTurnsWhole<C> && place.count >= kLanes) {
    each_tile<kLanes>(operand, from, place, [&](C *const *runs, int64_t r, int64_t c) AVO_LAMBDA {
      Vec<C> v[kLanes];
      repeat<kLanes>([&](auto j) AVO_LAMBDA { v[j] = load_as(from + r + (c + j) * stride, C()); });
      transpose(v);
      repeat<kLanes>([&](auto j) AVO_LAMBDA { v[j].store(runs[j] + c); });
    });
  } else if (tiles) {
    each_tile<4>(operand, from, place, [&](C *const *runs, int64_t r, int64_t c) AVO_LAMBDA {
      T tile[4][kLanes];
      repeat<kLanes / 4>([&](auto q)
                             AVO_LAMBDA { turn(from + r + (c + 4 * q) * stride, stride, tile[0] + 4 * q, kLanes); });
      repeat<4>([&](auto j) AVO_LAMBDA { load_as(tile[j], C()).store(runs[j] + c); });
    });
  }
  const int64_t begin = tiles ? run / kLanes * kLanes : 0;
  for (int64_t r = 0; begin < run && r < place.count; ++r) {
    C rest[kLanes];
    C *const out = place(r) + begin;
    if (begin == 0) {
      convert_in(from + r * operand.run_stride, stride, out, run);
    } else { // which writes whole vectors: not into the next run, that is there
      convert_in(from + r * operand.run_stride + begin * stride, stride, rest, run - begin);
      copy_few(out, rest, run - begin);
    }
  }
}

template <class C, class T>
AVO_NOINLINE void runs_out(const AvoOperand &operand, const C *from, int64_t pitch, T *to, int64_t rows, int64_t n) {
  const RunsOfRows<const C> place(operand, from, pitch, rows, n);
  const int64_t run = operand.run, stride = operand.col_stride;
  const bool tiles = by_tiles(operand) && place.count >= 4;
  if (tiles && kTurnsWhole<C> && place.count >= kLanes) {
    each_tile<kLanes>(operand, to, place, [&](const C *const *runs, int64_t r, int64_t c) AVO_LAMBDA {
      Vec<C> v[kLanes];
      repeat<kLanes>([&](auto j) AVO_LAMBDA { v[j] = Vec<C>::load(runs[j] + c); });
      transpose(v);
      repeat<kLanes>([&](auto j) AVO_LAMBDA { store_as(to + r + (c + j) * stride, v[j]); });
    });
  } else if (tiles) {
    each_tile<4>(operand, to, place, [&](const C *const *runs, int64_t r, int64_t c) AVO_LAMBDA {
      T tile[4][kLanes];
      repeat<4>([&](auto j) AVO_LAMBDA { store_as(tile[j], Vec<C>::load(runs[j] + c)); });
      repeat<kLanes / 4>([&](auto q)
                             AVO_LAMBDA { turn(tile[0] + 4 * q, kLanes, to + r + (c + 4 * q) * stride, stride); });
    });
  }
  const int64_t begin = tiles ? run / kLanes * kLanes : 0;
  for (int64_t r = 0; begin < run && r < place.count; ++r)
    convert_out(place(r) + begin, to + r * operand.run_stride + begin * stride, stride, run - begin);
}

} // namespace

// ---- what rows.h declares -----------------------------------------------------------------------

#define AVO_STAGING(C)                                                                                                 \
  void stage_in(const AvoOperand &operand, int64_t offset, C *to, int64_t n) {                                         \
    by_dtype(operand, [&](auto *data) AVO_LAMBDA {                                                                     \
      if (operand.run) runs_in(operand, data + offset, to, 0, 1, n);                                                   \
      else convert_in(data + offset, operand.col_stride, to, n);                                                       \
    });                                                                                                                \
  }                                                                                                                    \
  void stage_out(const AvoOperand &operand, int64_t offset, const C *from, int64_t n) {                                \
    by_dtype(operand, [&](auto *data) AVO_LAMBDA {                                                                     \
      if (operand.run) runs_out(operand, from, 0, data + offset, 1, n);                                                \
      else convert_out(from, data + offset, operand.col_stride, n);                                                    \
    });                                                                                                                \
  }                                                                                                                    \
  void panel_in(const AvoOperand &operand, int64_t offset, int64_t row_stride, C *to, int64_t pitch, int64_t rows,     \
                int64_t n) {                                                                                           \
    by_dtype(operand, [&](auto *data) AVO_LAMBDA {                                                                     \
      if (operand.run) runs_in(operand, data + offset, to, pitch, rows, n);                                            \
      else panel_in(data + offset, row_stride, operand.col_stride, to, pitch, rows, n);                                \
    });                                                                                                                \
  }                                                                                                                    \
  void panel_out(const AvoOperand &operand, int64_t offset, int64_t row_stride, const C *from, int64_t pitch,          \
                 int64_t rows, int64_t n) {                                                                            \
    by_dtype(operand, [&](auto *data) AVO_LAMBDA {                                                                     \
      if (operand.run) runs_out(operand, from, pitch, data + offset, rows, n);                                         \
      else panel_out(from, pitch, data + offset, row_stride, operand.col_stride, rows, n);                             \
    });                                                                                                                \
  }
AVO_STAGING(float)
AVO_STAGING(double)
#undef AVO_STAGING

int64_t folded_row_offset(const AvoCpuArgs *a, const AvoOperand &operand, int64_t row) {
  int64_t offset = 0;
  for (int d = a->row_dims - 1; d >= 0 && row > 0; --d) {
    const int64_t size = a->row_sizes[d];
    offset += row % size * operand.row_strides[d];
    row /= size;
  }
  return offset;
}

} // namespace AVO_ISA_NAMESPACE
