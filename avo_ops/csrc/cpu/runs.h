// Rows whose columns fall into runs that share the values of column operands and sums: AvoCpuArgs::run.
#pragma once

#include "rows.h"

namespace AVO_ISA_NAMESPACE {
namespace {

// The columns of a row in blocks that do not reach beyond a run, and are summed by themselves.
struct RunBlocks {
  const AvoCpuArgs *a;
  int64_t run, begin, end, stop;

  AVO_INLINE RunBlocks(const AvoCpuArgs *args)
      : a(args), run(0), begin(0), end(block_end(0, args->run)), stop(args->run) {}
  AVO_INLINE void advance() {
    begin = end;
    if (begin == stop) {
      ++run;
      stop += a->run;
    }
    end = block_end(begin, stop);
  }
};

// A wide row that must be converted is so a piece at a time and in each pass anew, if its columns lie together: its 16
// bits an element stay in a cache that would not hold it as floats.
constexpr int64_t kPiece = 2048;
template <class C> AVO_INLINE bool by_pieces(const AvoCpuArgs *a, const AvoOperand &operand) {
  return a->N > 16 * kPiece && operand.data && !lies_ready<C>(operand, a->N) && operand.run == 0 && !operand.panelled;
}

// A row of an input. A pass takes its blocks in ascending order.
template <class C> struct RowIn {
  const AvoCpuArgs *a;
  int operand;
  int64_t row;
  C *buffer;
  const C *whole;
  int64_t begin = 0, end = 0; // of the piece that is there

  AVO_INLINE RowIn(const AvoCpuArgs *args, int k, int64_t r, const RowPanel &panel, C *room)
      : a(args), operand(k), row(r), buffer(room),
        whole(by_pieces<C>(a, a->operands[k]) ? nullptr : load_row<C>(a, k, r, panel, room)) {}
  // The row, of which the columns [first, last) are there.
  AVO_INLINE const C *block(int64_t first, int64_t last) {
    if (whole) return whole;
    if (first < begin || last > end) {
      begin = first;
      end = a->N - first < kPiece ? a->N : first + kPiece;
      load_row<C>(a, operand, row, begin, end - begin, buffer);
    }
    return buffer - begin;
  }
};

// A row of an output, written once in ascending order.
template <class C> struct RowOut {
  const AvoCpuArgs *a;
  int operand;
  int64_t row;
  C *buffer, *whole;
  int64_t begin = 0;

  AVO_INLINE RowOut(const AvoCpuArgs *args, int k, int64_t r, const RowPanel &panel, C *room)
      : a(args), operand(k), row(r), buffer(room),
        whole(by_pieces<C>(a, a->operands[k]) ? nullptr : open_row<C>(a, k, r, panel, room)) {}
  AVO_INLINE C *block() const { return whole ? whole : buffer - begin; }
  AVO_INLINE void close_block(int64_t last) {
    if (whole || (last - begin <= kPiece - kSumBlock && last < a->N)) return;
    close_row<C>(a, operand, row, begin, last - begin, buffer);
    begin = last;
  }
  AVO_INLINE void close(const RowPanel &panel) const {
    if (whole) close_row<C>(a, operand, row, panel, whole);
  }
};

} // namespace
} // namespace AVO_ISA_NAMESPACE
