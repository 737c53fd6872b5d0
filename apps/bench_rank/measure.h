#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/runtime.h"

namespace gyre::bench_rank {

/// How long and on how much memory one figure is measured.
struct Effort {
  double seconds = 0.6;        ///< About so long per figure; 0: one round.
  int fewest_rounds = 5;       ///< But at least this many rounds, unless it is 0.
  std::size_t rotation_bytes;  ///< Buffers rotate over at least so much memory, so that none is found in the cache.
};

/// As tensors' memory is.
class Buffer {
 public:
  Buffer(std::size_t size_bytes, std::byte value)
      : memory_(static_cast<std::byte*>(::operator new[](size_bytes, kAlignment))), size_bytes_(size_bytes) {
    std::ranges::fill(bytes(), value);
  }
  std::span<std::byte> bytes() const { return {memory_.get(), size_bytes_}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Delete> memory_;
  std::size_t size_bytes_;
};

double microseconds_since(SteadyClock::time_point start);

/// Not empty.
double median(std::vector<double> values);

/// How many buffers of `size_bytes` to rotate over: at least two.
std::size_t buffers_for(std::size_t size_bytes, const Effort& effort);

/// An allreduce of `values` in place, as a sum.
engine::Request sum_of(const std::string& name, std::span<float> values);

/// How often to repeat what takes `once_us`.
int rounds_for(double once_us, const Effort& effort);

/// Collective. How often to repeat what takes `once_us`; rank 0's opinion counts.
int agreed_rounds(engine::Runtime& runtime, double once_us, const Effort& effort);

/// Collective: all ranks leave at nearly the same time.
void meet(engine::Runtime& runtime);

/// Error(kInternal) naming `what` unless all of `values` are what ranks 1, 2, … n add up to.
void require_sum(const engine::Runtime& runtime, std::span<const float> values, const std::string& what);

/// What this rank has sent over its links so far, in all lanes, frame headers included.
std::uint64_t bytes_sent(engine::Runtime& runtime);

/// Collective: what each host's ranks have sent in all, in the order of hosts.
std::vector<double> add_up_by_host(engine::Runtime& runtime, double bytes);

/// The bound of an allreduce on one host, in bytes of one rank's buffer per second: `rank_count` buffers of
/// `buffer_bytes` outside the cache are summed in place by `thread_count` threads, each of which reads its share of all
/// buffers and writes the sum into all of them. The accesses are those of the arena's algorithm, without what makes
/// several ranks of them: nobody waits for anybody.
double measure_sums(int rank_count, int thread_count, std::size_t buffer_bytes);

}  // namespace gyre::bench_rank
