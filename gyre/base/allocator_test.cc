#include "gyre/base/allocator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace gyre {
namespace {

constexpr std::size_t kGradientBytes = std::size_t{9} << 20;

/// Of the whole process, so far.
long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// More than glibc would keep after having freed blocks of this size alone.
void make_and_free_gradients() {
  std::vector<void*> gradients(4);
  for (void*& gradient : gradients) {
    gradient = std::malloc(kGradientBytes);
    ASSERT_NE(gradient, nullptr);
    std::memset(gradient, 1, kGradientBytes);
    asm volatile("" : : "r"(gradient) : "memory");  // Or the compiler leaves all of it out.
  }
  for (void* gradient : gradients) std::free(gradient);
}

TEST(allocator, memory_that_was_freed_is_used_again_without_page_faults) {
#ifdef __has_feature  // Of clang, which makes the builds with sanitizers.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
#endif
  keep_freed_memory();
  make_and_free_gradients();  // The first touch.
  const long before = page_faults();
  for (int step = 0; step < 10; ++step) make_and_free_gradients();
  constexpr long kPagesOfOneGradient = kGradientBytes / 4096;
  EXPECT_LT(page_faults() - before, kPagesOfOneGradient);
}

}  // namespace
}  // namespace gyre
