#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench_rank/measure.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/messages/point_to_point.h"

namespace gyre::bench_rank {

/// Which ways into the engine are measured.
struct Paths {
  bool tensor = true;  ///< Ordinary memory.
  bool arena = true;   ///< Tensors of a plan, which live in memory shared with the other ranks of the host.
};

/// Microseconds of one allreduce, by size: {"tensor": {"4": 1.5, …}, "arena": {…}}, and what it sends from each host:
/// {"sent_bytes": {"tensor": {"4": [96, 96]}, "arena": {…}}}. Collective; the answers are checked.
nlohmann::json measure_allreduce(engine::Runtime& runtime, const std::vector<std::size_t>& sizes_bytes, Paths paths,
                                 const Effort& effort);

/// Microseconds that one message takes from one rank to another, by size: {"tensor": {"4": 0.9, …}}: half of there and
/// back. Rank r exchanges messages with rank r + n/2, all pairs at the same time. Collective; the answers are checked.
nlohmann::json measure_messages(engine::Runtime& runtime, group::PointToPoint& messages,
                                const std::vector<std::size_t>& sizes_bytes, const Effort& effort);

/// Microseconds of one operation that only moves data, by operation and size: {"allgather": {"4": 1.5, …}, …}. A size
/// is what each rank contributes (allgather), sends in all (alltoall) or receives (broadcast). Collective; the answers
/// are checked. Error(kInvalidArgument) for an unknown operation, or a size that is not a multiple of the number of
/// ranks.
nlohmann::json measure_moves(engine::Runtime& runtime, const std::vector<std::string>& operations,
                             const std::vector<std::size_t>& sizes_bytes, const Effort& effort);

/// The bound of messages and moves on one host, in bytes per second: `thread_count` threads copy `buffer_bytes` each,
/// outside the cache.
double measure_copies(int thread_count, std::size_t buffer_bytes);

/// The tensors of a model, in the order in which its backward pass produces their gradients.
std::vector<engine::PlanTensor> read_tensor_list(const std::filesystem::path& path);

/// Microseconds from "all gradients are there" to "all are averaged": {"tensor": 8100.5, "arena": …}. Collective; the
/// answers are checked.
nlohmann::json measure_exchange(engine::Runtime& runtime, const std::vector<engine::PlanTensor>& tensors, Paths paths,
                                const Effort& effort);

/// What a job of many ranks costs each of them.
struct ScaleBench {
  int ranks_per_host = 0;         ///< Plays so many on each host, whatever the machine; 0: as it is.
  int rounds = 20;                ///< Of the steady allreduce.
  std::int64_t started_ns = 0;    ///< When the first rank was started, by CLOCK_MONOTONIC.
  std::size_t bytes = 0;          ///< Also an allreduce of so many, a multiple of 4.
  bool subset = false;            ///< Also makes a process set of all ranks,
  bool messages = false;          ///< and opens messages between two ranks.
  std::vector<int> reporters{0};  ///< Ranks whose figures are used.
};

/// Joins the job of the environment, sums 4 bytes several times and leaves. What it saw on the way: times, and of this
/// process memory, descriptors and the traffic of its TCP connections. The answers are checked.
nlohmann::json measure_scale(const ScaleBench& bench);

}  // namespace gyre::bench_rank
