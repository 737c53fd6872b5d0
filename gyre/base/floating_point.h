#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// How the processor computes with floats is a state of each thread: torch.set_flush_denormal(True), for instance,
// replaces denormal numbers by zeros on the thread that calls it, and on those that it starts later. Whether a
// collective runs on the caller's thread or on one of ours depends on timing, so our arithmetic brings its own state.

namespace gyre {

/// While it exists, this thread computes by the defaults of IEEE 754: rounding to nearest even, with denormal numbers,
/// without traps. Then the thread has its former state again. Costs a few cycles where that is the default. Arithmetic
/// in the same function may be moved past it by the compiler: keep it in a function that is not inlined.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() : former_(control()) {
    if ((former_ & kControlBits) != kDefault) set_control((former_ & ~kControlBits) | kDefault);
  }
  ~DefaultFloatingPoint() {
    if ((former_ & kControlBits) != kDefault) set_control(former_);
  }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__x86_64__)
  using Control = std::uint32_t;  // MXCSR; its lowest six bits are the exceptions seen so far.
  static constexpr Control kControlBits = 0xFFC0;
  static constexpr Control kDefault = 0x1F80;
  static Control control() { return _mm_getcsr(); }
  static void set_control(Control control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;  // FPCR: alternative halves, default NaNs, flushing, rounding, traps.
  static constexpr Control kControlBits = 0x07F8'9F00;
  static constexpr Control kDefault = 0;
  static Control control() {
    Control value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(Control control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
#else
  using Control = int;  // Not known: left alone.
  static constexpr Control kControlBits = 0;
  static constexpr Control kDefault = 0;
  static Control control() { return 0; }
  static void set_control(Control /*control*/) {}
#endif

  Control former_;
};

}  // namespace gyre
