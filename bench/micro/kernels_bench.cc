// What one core does with memory: the reduction of the shared-memory allreduce beside memcpy. Bytes per second are
// those of one rank's buffer (every one of the n buffers is read and written once). Small sizes stay in a cache, large
// ones rotate through more memory than the last-level cache holds.
#include "gyre/collectives/kernels.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace gyre::collectives {
namespace {

constexpr std::size_t kPageBytes = 4096;

// n buffers in one block, staggered: an odd number of pages and five cache lines apart from a power of two.
class StaggeredBuffers {
 public:
  StaggeredBuffers(std::size_t buffers, std::size_t size_bytes)
      : stride_bytes_((size_bytes / kPageBytes | 1) * kPageBytes + 2 * kPageBytes + 5 * 64),
        block_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded(buffers * stride_bytes_))), &std::free) {
    std::memset(block_.get(), 0, buffers * stride_bytes_);
    for (std::size_t i = 0; i < buffers; ++i) pointers_.push_back(block_.get() + i * stride_bytes_);
  }

  std::vector<std::byte*> pointers() const { return pointers_; }
  std::vector<const std::byte*> const_pointers() const { return {pointers_.begin(), pointers_.end()}; }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

  std::size_t stride_bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> block_;
  std::vector<std::byte*> pointers_;
};

void report(benchmark::State& state, std::size_t size_bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(size_bytes));
}

// In place, as ranks of one host do it: argument 0 is the size in bytes, argument 1 the number of ranks.
template <DataType kType>
void reduce_into_all(benchmark::State& state) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const StaggeredBuffers buffers(static_cast<std::size_t>(state.range(1)), size_bytes);
  const auto destinations = buffers.pointers();
  const auto sources = buffers.const_pointers();
  for (auto _ : state) {
    reduce_to_many(destinations, sources, size_bytes / size_of(kType), kType, ReduceOperation::kSum, {.factor = 0.5});
    benchmark::ClobberMemory();
  }
  report(state, size_bytes);
}

// A third buffer takes the sum of two: the hop of a ring into a fresh buffer.
void reduce_two_into_third(benchmark::State& state) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const StaggeredBuffers buffers(3, size_bytes);
  const auto all = buffers.const_pointers();
  const std::vector<const std::byte*> sources{all[0], all[1]};
  for (auto _ : state) {
    reduce(buffers.pointers()[2], sources, size_bytes / 4, DataType::kFloat32, ReduceOperation::kSum, {.factor = 0.5});
    benchmark::ClobberMemory();
  }
  report(state, size_bytes);
}

void copy_with_memcpy(benchmark::State& state) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const StaggeredBuffers buffers(2, size_bytes);
  for (auto _ : state) {
    std::memcpy(buffers.pointers()[0], buffers.pointers()[1], size_bytes);
    benchmark::ClobberMemory();
  }
  report(state, size_bytes);
}

void copy_streaming_to(benchmark::State& state) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const StaggeredBuffers buffers(2, size_bytes);
  for (auto _ : state) {
    copy_streaming(buffers.pointers()[0], buffers.pointers()[1], size_bytes);
    benchmark::ClobberMemory();
  }
  report(state, size_bytes);
}

const std::vector<std::int64_t> kSizes{64 << 10, 1 << 20, 16 << 20, 256 << 20};

BENCHMARK(reduce_into_all<DataType::kFloat32>)->ArgsProduct({kSizes, {2, 4}});
BENCHMARK(reduce_into_all<DataType::kBfloat16>)->ArgsProduct({kSizes, {2, 4}});
BENCHMARK(reduce_into_all<DataType::kFloat16>)->ArgsProduct({kSizes, {2, 4}});
BENCHMARK(reduce_two_into_third)->ArgsProduct({kSizes});
BENCHMARK(copy_with_memcpy)->ArgsProduct({kSizes});
BENCHMARK(copy_streaming_to)->ArgsProduct({kSizes});

}  // namespace
}  // namespace gyre::collectives

BENCHMARK_MAIN();
