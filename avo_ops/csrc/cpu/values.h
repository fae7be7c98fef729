// Values that have no literal, by the type of the math.
#pragma once

namespace AVO_ISA_NAMESPACE {
namespace {

template <class C> constexpr C lowest() { return C(-__builtin_inf()); }
template <class C> constexpr C highest() { return C(__builtin_inf()); }
template <class C> constexpr C quiet_nan() { return C(__builtin_nan("")); }

} // namespace
} // namespace AVO_ISA_NAMESPACE
