// This process as a worker of parameter servers, for the files that bind it.
#pragma once

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/log.h"
#include "gyre/base/timeline.h"
#include "gyre/collectives/exchange_cost.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/params/client.h"
#include "gyre/params/consistency.h"
#include "gyre/params/replica.h"
#include "gyre/params/served_parameters.h"
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/process_bound.h"
#include "python/gyre/core/shared_timeline.h"

namespace gyre::python {

namespace nb = nanobind;
using namespace nb::literals;
using Arrays = std::vector<nb::ndarray<>>;
using Floats = std::vector<std::span<float>>;

inline bool is_contiguous(const nb::ndarray<>& array) {
  std::int64_t stride = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) == 0) return true;
    if (array.shape(i) != 1 && array.stride(i) != stride) return false;
    stride *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

inline std::string type_of(const nb::ndarray<>& array) {
  const nb::dlpack::dtype type = array.dtype();
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Float: return fmt::format("float{}", type.bits);
    case nb::dlpack::dtype_code::Bfloat: return fmt::format("bfloat{}", type.bits);
    case nb::dlpack::dtype_code::Int: return fmt::format("int{}", type.bits);
    case nb::dlpack::dtype_code::UInt: return fmt::format("uint{}", type.bits);
    case nb::dlpack::dtype_code::Complex: return fmt::format("complex{}", type.bits);
    default: return fmt::format("a type of {} bits", type.bits);
  }
}

/// The memory of a contiguous float32 tensor on the CPU. Error(kUnsupported) for another one: a program may convert its
/// model at any time.
inline std::span<float> floats_of(const nb::ndarray<>& array, const std::string& name) {
  if (array.device_type() != nb::device::cpu::value || array.dtype() != nb::dtype<float>() || !is_contiguous(array)) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{} is {}of type {}{}; parameter servers and local steps take contiguous float32 tensors on "
                    "the CPU, which stay so",
                    name, is_contiguous(array) ? "" : "not contiguous, ", type_of(array),
                    array.device_type() == nb::device::cpu::value ? "" : " and on a device"));
  }
  return {static_cast<float*>(array.data()), array.size()};
}

inline Floats floats_of(const Arrays& arrays, const std::vector<std::string>& names) {
  if (arrays.size() != names.size()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} tensors were given, not {}", arrays.size(), names.size()));
  }
  Floats floats;
  for (std::size_t i = 0; i < arrays.size(); ++i) floats.push_back(floats_of(arrays[i], names[i]));
  return floats;
}

/// This process as a worker of a job with parameter servers. Calls are interruptible: what Ctrl-C leaves running works
/// on memory of this object, which it owns together with it; tensors are copied from and to before and afterwards.
/// After an interruption nobody knows what has been exchanged, so the worker can only leave, which fails the job.
class ParameterWorker : public std::enable_shared_from_this<ParameterWorker> {
 public:
  explicit ParameterWorker(const group::Job& job) : layout_{.workers = job.size - job.servers, .servers = job.servers} {
    const engine::RuntimeOptions options = engine::runtime_options_from_environment();
    const Logger logger = make_logger(fmt::format("rank {}", layout_.worker_of(job.rank)), options.log_level);
    group_ = group::join_group(job, options.group, logger);
    connection_ = std::make_unique<params::Connection>(*group_, layout_);
    if (rank() == 0) timeline_ = start_timeline(options.engine.timeline, logger);
  }

  int rank() const { return layout_.worker_of(group_->rank()); }
  int size() const { return layout_.workers; }
  int servers() const { return layout_.servers; }
  std::optional<SharedTimeline> timeline() const {
    return timeline_ ? std::optional(SharedTimeline{timeline_}) : std::nullopt;
  }

  void attach(std::vector<std::uint64_t> counts, std::vector<std::string> names,
              const params::ConsistencyOptions& consistency, bool average) {
    params::TrainingSetup setup{.tensor_values = std::move(counts), .consistency = consistency};
    const std::size_t tensors = names.size();
    if (average) {
      setup.groups.front().rule = params::Rule::kAverage;
      setup.tensor_values = params::AveragedTensors::sizes(std::move(setup.tensor_values));
      names.emplace_back("which gradients there are");
    }
    connect(setup, names);
    names_.resize(tensors);
    if (average) {
      averaged_.emplace(*client_);
    } else {
      held_.emplace(*client_, consistency);
    }
  }
  /// The servers' optimizer steps. `names`: of the setup's tensors, and then of its tables.
  void attach_served(params::TrainingSetup setup, const std::vector<std::string>& names) {
    connect(setup, names);
    served_.emplace(*client_, setup);
  }

  const std::vector<std::string>& names() const { return names_; }
  params::Client& client() {
    refuse_after_interruption();
    if (!client_) throw Error(ErrorCode::kInvalidArgument, "make the ParameterServerOptimizer first");
    return *client_;
  }
  /// Where the servers hold the parameters.
  params::HeldParameters& held() {
    refuse_after_interruption();
    if (!held_) throw Error(ErrorCode::kInvalidArgument, "the servers of this job hold no parameters");
    return *held_;
  }
  /// Where the servers' optimizer steps.
  params::ServedParameters& served() {
    refuse_after_interruption();
    if (!served_) throw Error(ErrorCode::kInvalidArgument, "the servers of this job have no optimizer");
    return *served_;
  }
  void begin_again() {
    if (served_) return served_->begin_again();
    held().begin_again();
  }
  /// Where they do not.
  params::AveragedTensors& averaged() {
    refuse_after_interruption();
    if (!averaged_) throw Error(ErrorCode::kInvalidArgument, "the servers of this job average no gradients");
    return *averaged_;
  }
  std::uint64_t dropped_steps() const {
    if (served_) return served_->dropped_steps();
    return held_ ? held_->dropped_steps() : dropped_steps_;
  }
  /// As run_interruptibly(), which keeps this object alive.
  template <typename Work>
  auto run(Work work) {
    refuse_after_interruption();
    try {
      return run_interruptibly(
          [self = shared_from_this(), running = std::make_unique<Running>(running_), work = std::move(work)]() mutable {
            const std::unique_ptr<Running> until_the_end = std::move(running);
            return work();
          });
    } catch (const nb::python_error&) {
      interrupted_ = true;
      throw;
    }
  }
  params::Wait interruptible() {
    return [this](const std::function<void()>& work) { run(work); };
  }
  /// Idempotent. A worker without an optimizer leaves the group alone.
  void leave() {
    if (interrupted_) {
      abort(fmt::format("worker {} was interrupted while it talked to the parameter servers", rank()));
      running_.wait(true);  // The failure of the group ends what it waits for.
    }
    if (client_) {
      dropped_steps_ = dropped_steps();
      held_.reset();
      averaged_.reset();
      served_.reset();
      client_.reset();
    } else if (connection_) {
      connection_->leave_without_training();
      connection_.reset();
    }
    if (timeline_) timeline_->stop();
  }
  void abort(const std::string& reason) { group_->abort(Error(ErrorCode::kAborted, reason)); }

 private:
  /// Sets a flag while it exists.
  class Running {
   public:
    explicit Running(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
    ~Running() {
      flag_ = false;
      flag_.notify_all();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    std::atomic<bool>& flag_;
  };

  void connect(params::TrainingSetup& setup, const std::vector<std::string>& names) {
    if (client_) throw Error(ErrorCode::kInvalidArgument, "a process can have one ParameterServerOptimizer");
    const auto total = std::accumulate(setup.tensor_values.begin(), setup.tensor_values.end(), std::uint64_t{0});
    setup.shards = {
        .servers = layout_.servers,
        .values_per_block = collectives::server_block_bytes(total * sizeof(float), layout_.servers) / sizeof(float)};
    setup.names = params::checksum_of_names(names);
    params::check(setup);  // While there is a connection to leave through.
    client_ = std::make_unique<params::Client>(std::move(connection_), setup);
    names_ = names;
    if (timeline_) client_->trace(timeline_, std::span(names).first(setup.tensor_values.size()));
  }
  void refuse_after_interruption() const {
    if (!interrupted_) return;
    throw Error(ErrorCode::kAborted,
                "an earlier call was interrupted in the middle of an exchange; this worker can only leave the job");
  }

  const params::Layout layout_;
  std::unique_ptr<group::Group> group_;
  std::shared_ptr<Timeline> timeline_;              // Of worker 0, where one was asked for.
  std::unique_ptr<params::Connection> connection_;  // Until attach().
  std::unique_ptr<params::Client> client_;
  std::vector<std::string> names_;  // Of the tensors.
  // One of them, from attach() on.
  std::optional<params::HeldParameters> held_;
  std::optional<params::AveragedTensors> averaged_;
  std::optional<params::ServedParameters> served_;
  std::uint64_t dropped_steps_ = 0;    // When it left.
  std::atomic<bool> running_ = false;  // A call.
  std::atomic<bool> interrupted_ = false;
};

struct ParsedConsistency {
  params::ConsistencyChoice choice;
  bool servers_update() const {
    return choice.servers.kind != params::Consistency::kSync || choice.servers.backup_workers > 0;
  }
};

/// A process that forked from a worker has its memory and not its threads.
class WorkerHandle {
 public:
  explicit WorkerHandle(std::shared_ptr<ParameterWorker> worker)
      : process_(own_process()), worker_(std::move(worker)) {}
  ~WorkerHandle() {
    if (is_here()) return;
    static std::vector<std::shared_ptr<ParameterWorker>> of_the_parent;
    of_the_parent.push_back(std::move(worker_));
  }
  WorkerHandle(const WorkerHandle&) = delete;
  WorkerHandle& operator=(const WorkerHandle&) = delete;

  bool is_here() const { return own_process() == process_; }
  const std::shared_ptr<ParameterWorker>& get() const {
    if (!is_here()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("process {} is a fork of process {}, which is the worker", own_process(), process_));
    }
    return worker_;
  }

 private:
  pid_t process_;
  std::shared_ptr<ParameterWorker> worker_;
};

}  // namespace gyre::python
