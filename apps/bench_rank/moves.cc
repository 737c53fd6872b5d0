// One collective that only moves data at a time, of one size after the other, through synchronous calls.
#include <fmt/format.h>

#include <algorithm>

#include "apps/bench_rank/benches.h"
#include "gyre/base/error.h"

namespace gyre::bench_rank {

namespace {

using engine::OperationKind;
using engine::Runtime;

constexpr int kRoot = 0;
constexpr std::size_t kWarmUp = 3;

std::byte mark(int rank) { return static_cast<std::byte>(rank + 1); }

OperationKind kind_of(const std::string& operation) {
  for (const OperationKind kind : {OperationKind::kAllgather, OperationKind::kAllToAll, OperationKind::kBroadcast}) {
    if (operation == engine::operation_name(kind)) return kind;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not an operation; there are: allgather, alltoall, broadcast", operation));
}

/// One operation of one size on rotating buffers. A broadcast is in place.
class Move {
 public:
  Move(Runtime& runtime, OperationKind kind, std::size_t size_bytes, const Effort& effort)
      : runtime_(runtime), kind_(kind) {
    const std::size_t ranks = kind == OperationKind::kAllgather ? static_cast<std::size_t>(runtime.size()) : 1;
    const std::size_t count = buffers_for(size_bytes * (1 + ranks), effort);
    for (std::size_t i = 0; i < count; ++i) {
      sources_.emplace_back(size_bytes, mark(runtime.rank()));
      if (kind != OperationKind::kBroadcast) targets_.emplace_back(size_bytes * ranks, std::byte{0});
    }
    request_.name = "bench";
    request_.signature = {.kind = kind, .shape = {static_cast<std::int64_t>(size_bytes)}, .root = kRoot};
  }

  /// Microseconds.
  double run(std::size_t round) {
    request_.input = sources_[round % sources_.size()].bytes();
    request_.output = result(round % sources_.size());
    const auto start = SteadyClock::now();
    static_cast<void>(runtime_.engine().run(request_));
    return microseconds_since(start);
  }

  bool is_right(std::size_t index) const {
    const std::span<const std::byte> all = result(index);
    const auto all_are = [](std::span<const std::byte> bytes, std::byte value) {
      return std::ranges::all_of(bytes, [value](std::byte one) { return one == value; });
    };
    if (kind_ == OperationKind::kBroadcast) return all_are(all, mark(kRoot));
    const std::size_t part_bytes = all.size() / static_cast<std::size_t>(runtime_.size());
    for (int rank = 0; rank < runtime_.size(); ++rank) {
      if (!all_are(all.subspan(static_cast<std::size_t>(rank) * part_bytes, part_bytes), mark(rank))) return false;
    }
    return true;
  }

  std::size_t buffer_count() const { return sources_.size(); }

 private:
  std::span<std::byte> result(std::size_t index) const {
    return (kind_ == OperationKind::kBroadcast ? sources_ : targets_)[index].bytes();
  }

  Runtime& runtime_;
  const OperationKind kind_;
  std::vector<Buffer> sources_;
  std::vector<Buffer> targets_;
  engine::Request request_;
};

double measure_size(Runtime& runtime, OperationKind kind, std::size_t size_bytes, const Effort& effort) {
  Move move(runtime, kind, size_bytes, effort);
  for (std::size_t round = 0; round < kWarmUp; ++round) static_cast<void>(move.run(round));
  const int rounds = agreed_rounds(runtime, move.run(kWarmUp), effort);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(move.run(static_cast<std::size_t>(round)));
  const std::size_t used = std::min(move.buffer_count(), static_cast<std::size_t>(rounds));
  for (std::size_t i = 0; i < used; ++i) {
    if (move.is_right(i)) continue;
    throw Error(ErrorCode::kInternal,
                fmt::format("a wrong answer: {} of {} bytes", engine::operation_name(kind), size_bytes));
  }
  return median(std::move(times));
}

}  // namespace

nlohmann::json measure_moves(Runtime& runtime, const std::vector<std::string>& operations,
                             const std::vector<std::size_t>& sizes_bytes, const Effort& effort) {
  nlohmann::json result = nlohmann::json::object();
  for (const std::string& operation : operations) {
    for (const std::size_t size_bytes : sizes_bytes) {
      meet(runtime);
      result[operation][std::to_string(size_bytes)] = measure_size(runtime, kind_of(operation), size_bytes, effort);
    }
  }
  meet(runtime);
  return result;
}

}  // namespace gyre::bench_rank
