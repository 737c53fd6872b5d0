#include "gyre/base/allocator.h"

#include <cstddef>
#include <cstdlib>

namespace gyre {

void keep_freed_memory() {
  // The block and what malloc adds to it must not exceed the largest from which glibc learns. None of it is touched, so
  // it costs no memory. Volatile, or the compiler sees that nobody uses it.
  constexpr std::size_t kLargestLearntFrom = (std::size_t{32} << 20) - (std::size_t{8} << 10);
  void* volatile block = std::malloc(kLargestLearntFrom);
  std::free(block);
}

}  // namespace gyre
