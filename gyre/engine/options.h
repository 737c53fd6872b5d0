#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::engine {

namespace internal {
class ProcessWaits;
}

/// 64 MB, the field's historical default.
constexpr std::size_t kDefaultFusionBytes = std::size_t{64} << 20;

/// On one host a larger bucket would only fall out of the cache between its copies: an exchange in shared memory costs
/// microseconds to start, and what is exchanged early is hidden behind the rest of backward.
constexpr std::size_t kOneHostBucketBytes = std::size_t{2} << 20;

/// The largest bucket, of fused operations as of plans, where `fusion_bytes` are allowed.
constexpr std::size_t largest_bucket_bytes(std::size_t fusion_bytes, bool one_host) {
  return one_host ? std::min(fusion_bytes, kOneHostBucketBytes) : fusion_bytes;
}

/// A thread of the program, as its interpreter knows it.
struct ProgramThread {
  pid_t number = 0;             ///< As gettid(2); 0: not known.
  std::string description;      ///< "'saver' at train.py:9 in save()".
  bool serves_library = false;  ///< It only ever runs the loop of a library, which calls no collective operation.
};

/// Where each rank writes a timeline, whose file has "{rank}" in its name, and how many bytes the ranks of a host may
/// write together.
struct JobTimeline {
  std::filesystem::path path;
  std::uint64_t most_bytes = 0;
};

struct EngineOptions {
  /// Largest bucket, but see largest_bucket_bytes; 0: every tensor travels alone.
  std::size_t fusion_bytes = kDefaultFusionBytes;
  std::filesystem::path timeline;  ///< Rank 0 writes a Chrome trace there (engine.h); empty: none.
  /// Of a job of the job server, unless `timeline` names a file.
  std::optional<JobTimeline> job_timeline;
  bool timeline_mark_cycles = false;  ///< Adds CYCLE_START instants: one whenever the ranks have agreed on what to do.
  /// An operation, or the end of a plan's step, that some ranks wait for this long is reported by rank 0, with where
  /// each rank is; 0: never.
  std::chrono::milliseconds stall_warning{60'000};
  std::chrono::milliseconds stall_failure{0};  ///< … and after this long it aborts the group; 0: never.
  /// When an operation or the end of a plan's step has waited this long, rank 0 looks whether it can come at all, and
  /// aborts the group when it cannot: the ranks wait for each other in a circle. 0: never.
  std::chrono::milliseconds deadlock_check{5'000};
  /// Longest wait for another rank inside a collective that has begun; longer than any stall that ends well. 0: never.
  /// It bounds how long ranks may be apart in a plan's step; named operations begin when all have come.
  std::chrono::milliseconds collective_timeout{30 * 60'000};
  std::chrono::milliseconds shutdown_timeout{10'000};  ///< Longest wait at shutdown for steps that have begun.
  /// Named operations of more than twice so many ranks are negotiated in a tree in which each rank has about so many
  /// children (see NegotiationPlace); of fewer directly with rank 0. Equal on all ranks.
  int negotiation_arity = 16;
  /// Where this process's program is now, in a line for people ("train.py:41 in main(): …"), for the report of a stall.
  /// Called while one is looked into, on a thread that nothing waits for, and may outlive the engine. Empty: unknown.
  std::function<std::string()> location{};
  /// What the threads of this process wait for in engines, shared by those engines that a cycle of waits may lead
  /// through (torch's process groups, say); process sets share their job's by themselves. Null: one of its own.
  std::shared_ptr<internal::ProcessWaits> waits{};
  /// A thread that has never used these engines may still do so, so that ranks are not in a deadlock while one runs.
  /// True: it will not. For processes that hold several ranks, whose threads do not act for each other.
  bool only_known_threads = false;
};

/// `program_threads` is called while a stall is looked into, and may take as long as EngineOptions::location. Threads
/// that it leaves out are known by what the kernel says of them.
std::shared_ptr<internal::ProcessWaits> make_process_waits(
    std::function<std::vector<ProgramThread>()> program_threads = {});

/// GYRE_FUSION_BYTES, GYRE_TIMELINE, GYRE_JOB_TIMELINE, GYRE_STALL_WARNING_SECONDS, GYRE_STALL_FAILURE_SECONDS,
/// GYRE_DEADLOCK_SECONDS, GYRE_COLLECTIVE_TIMEOUT_SECONDS, and Horovod's
/// HOROVOD_FUSION_THRESHOLD, HOROVOD_TIMELINE, HOROVOD_TIMELINE_MARK_CYCLES, HOROVOD_STALL_CHECK_TIME_SECONDS,
/// HOROVOD_STALL_CHECK_DISABLE, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS where ours is not set. Error(kInvalidArgument)
/// names the variable.
EngineOptions engine_options_from_environment();

}  // namespace gyre::engine
