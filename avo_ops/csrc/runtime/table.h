// The operator table: what the generator says about an operator, as plain records. Parsed once, then only
// counters and cached kernel pointers in it change.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtype.h"

namespace avo {

inline constexpr int kMaxOperands = 48;      // arguments, returns and their parts of one op together
inline constexpr int kAbsent = kMaxOperands; // index of an operand that this op never has
inline constexpr int kMaxReturns = 16;
inline constexpr int kMaxSteps = 8;
inline constexpr int kMaxParams = 64;
inline constexpr int kMaxScalars = 16;
inline constexpr int kMaxArchs = 4; // different compute capabilities in one machine

enum class ArgKind : uint8_t { Tensor, Ints, Int, Float, Str, Mask };
enum class Span : uint8_t { MN, N, M, One }; // One: a tensor of one number
enum class Rule : uint8_t { Flat, Last, Trailing, Dim, Groups };

struct ArgSpec {
  std::string name;
  ArgKind kind = ArgKind::Tensor;
  Span span = Span::MN;
  bool integer = false;             // of a tensor: of whole numbers
  std::vector<Dtype> narrow;        // of a tensor of 8 bits: the dtypes that it may have
  bool optional = false;            // Tensor?, or float? with the two values below for None
  double none[2] = {0, 0};          // by compute dtype: float32, float64
  std::vector<std::string> choices; // of a str
  int length = 0;                   // of a mask
  int parts = 0;                    // of a packed tensor, which kernels see as that many operands
};

struct ReturnSpec {
  std::string name;
  Span span = Span::MN;
  bool optional = false;     // Tensor? in the schema
  std::vector<int> dtype_of; // it has what these arguments promote to; the compute dtype if one is absent, or for none
  int chosen_by = -1;        // or that which this string names,
  std::vector<Dtype> dtypes; // one of these; or the only one, always
  int parts = 0;
};

// An operand that is a part of a packed argument or return: every part has the columns of the call.
struct PartSpec {
  std::string name;
  int whole = 0; // operand
  int index = 0;
};

// ---- kernels ----

enum class FamilyClass : uint8_t { Flat, Row, Loop, Column, Runs, Finish };

// What a variant takes: rows of one width (that number), rows of whole 16-byte chunks that start at one, rows that are
// no whole number of them, or any rows; or rows of whole chunks of which there are few. As templates are told it
// (csrc/device/vector.cuh).
constexpr int64_t kWholeChunks = -1, kOddRows = -2, kFewRows = -3, kAnyWidth = 0;

struct VariantFacts {
  std::string symbol;
  std::string unit; // the cubin that has it
  int64_t min_n = 0, max_n = 0, exact = kAnyWidth;
  bool holds(int64_t n) const { return min_n <= n && n <= max_n; }
  int block = 0, rows = 1, vec = 1, cluster = 1, smem = 0;
  int64_t cols = 0;
  double persist = 0;
  bool strided = false; // for operands whose rows have several strides
  bool added = false;   // for one width, made while the process runs
};

struct Variant : VariantFacts {
  // Set once by cuda_kernels.cpp; read without a lock.
  mutable std::atomic<void *> kernel[kMaxArchs] = {};
  mutable std::atomic<bool> waits[kMaxArchs] = {};     // for the kernel before it, so that it may be launched early
  mutable std::atomic<const void *> emulated{nullptr}; // set once by launch_emulator.cpp
  mutable std::atomic<uint64_t> prepared_devices{0};   // devices on which the function attributes are set
};

struct Family {
  std::string name;
  FamilyClass kind = FamilyClass::Flat;
  int sums = 0;
  // By the dtype of MN operands and that of N operands; the last column: families without an N operand.
  std::vector<std::unique_ptr<Variant>> variants[kDtypes][kDtypes + 1];
};

enum class ParamKind : uint8_t { Pointer, Stride, Step, M, N, Aligned, Scalar, Partials, Groups, Run, Runs, Channels };

struct Param {
  ParamKind kind = ParamKind::M;
  int index = -1; // operand (Pointer, Stride) or argument (Scalar)
};

// A variant as one step of one op uses it, with its counter.
struct StridedUse;
struct ExactUse;
struct Use {
  const Variant *variant = nullptr;
  mutable std::atomic<uint64_t> calls{0};
  mutable std::atomic<const StridedUse *> strided{nullptr}; // see strided_use
  mutable std::atomic<const ExactUse *> exact{nullptr};     // see exact_use; the newest first
  // The width of the last call, and how many calls in a row had it: see hot_widths.h.
  mutable std::atomic<int64_t> width{0};
  mutable std::atomic<int> times{0};
  ~Use();
};

// The same kernel made for operands whose rows have several strides.
struct StridedUse {
  Variant variant;
  Use use;
};

// It is made when a call first needs it: most variants are never called so.
const Use &strided_use(const Use &use);

// The same kernel made for one width on one architecture (0: the emulator), with the same bits. It is ready to run.
struct ExactUse {
  Variant variant;
  Use use;
  int arch = 0;
  const ExactUse *next = nullptr;
};

// Null if there is none.
const Use *exact_use(const Use &use, int64_t n, int arch);

struct Step {
  Family *family = nullptr;
  std::vector<Param> params;
  std::vector<std::unique_ptr<Use>> uses[kDtypes][kDtypes]; // by X and W
};

// Calls that an alternative takes: of operands in one dense layout, of rows, or of rows of whole chunks.
enum class When { Flat, Rows, Chunks };

struct Alternative {
  When when = When::Rows;
  bool flat = false;
  bool limited = false;
  int64_t limit[kDtypes] = {-1, -1, -1, -1}; // largest N; -1: not for this dtype
  int min_arch = 0;
  std::vector<Step> steps;
};

struct CpuKernel {
  AvoCpuKernel f32 = nullptr, f64 = nullptr;
  AvoCpuFinish finish = nullptr;
  std::string path; // "cpu/v3/name"
};

struct CpuCase {
  bool present = false;
  std::string symbol;
  bool pointwise = false;
  std::vector<int> operands;
  std::vector<int> scalars; // arguments
  std::vector<int> sums;    // operands: returns of span N
  int buffers = 0;
  mutable std::atomic<const CpuKernel *> kernel{nullptr};
  mutable std::atomic<uint64_t> calls{0};
};

struct Case {
  uint64_t key = 0;
  uint64_t returns = 0; // bit i: return i exists
  CpuCase cpu;
  std::vector<Alternative> cuda;
};

struct Op {
  std::string space, name; // "avo", "layer_norm"
  std::string qualified;   // "avo::layer_norm"
  std::string subject;     // who speaks in the messages of this op: its forward op has those of the public one
  Rule rule = Rule::Flat;
  int rule_arg = -1;
  int primary = 0;
  int mask = -1;         // the mask argument
  bool integers = false; // some tensor is of whole numbers
  std::vector<ArgSpec> args;
  std::vector<ReturnSpec> returns;
  std::vector<PartSpec> parts;              // operands behind the returns
  int packing = 1;                          // parts of each packed tensor
  bool interleaved = false;                 // they alternate along the columns; else they lie one after the other
  std::vector<std::unique_ptr<Case>> cases; // ascending keys

  mutable std::atomic<uint64_t> definitions{0}, empties{0}, copies{0}, casts{0};

  int operand_of_return(int i) const { return static_cast<int>(args.size()) + i; }
  int first_part() const { return static_cast<int>(args.size() + returns.size()); }
  int operand_count() const { return first_part() + static_cast<int>(parts.size()); }
  // The argument or return that an operand is, or is a part of.
  int whole_of(int operand) const { return operand < first_part() ? operand : parts[operand - first_part()].whole; }
  bool is_return(int operand) const { return whole_of(operand) >= static_cast<int>(args.size()); }
  const std::string &operand_name(int k) const {
    size_t i = static_cast<size_t>(k);
    if (i < args.size()) return args[i].name;
    return i - args.size() < returns.size() ? returns[i - args.size()].name : parts[i - first_part()].name;
  }
};

struct Tables {
  std::vector<std::unique_ptr<Family>> families;
  std::vector<std::unique_ptr<Op>> ops;
};

// Parses the text that registry/native.py writes (the grammar is in table_parse.cpp). Throws with the line
// number.
Tables parse_tables(const char *text);

} // namespace avo
