#include "python/gyre/core/params_binding.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

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
#include "gyre/params/local_rounds.h"
#include "gyre/params/replica.h"
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/process_bound.h"
#include "python/gyre/core/shared_timeline.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using Arrays = std::vector<nb::ndarray<>>;
using Floats = std::vector<std::span<float>>;

bool is_contiguous(const nb::ndarray<>& array) {
  std::int64_t stride = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) == 0) return true;
    if (array.shape(i) != 1 && array.stride(i) != stride) return false;
    stride *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

std::string type_of(const nb::ndarray<>& array) {
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
std::span<float> floats_of(const nb::ndarray<>& array, const std::string& name) {
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

Floats floats_of(const Arrays& arrays, const std::vector<std::string>& names) {
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
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  explicit Worker(const group::Job& job) : layout_{.workers = job.size - job.servers, .servers = job.servers} {
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
    if (client_) throw Error(ErrorCode::kInvalidArgument, "a process can have one ParameterServerOptimizer");
    params::TrainingSetup setup{
        .tensor_values = std::move(counts), .shards = {.servers = layout_.servers}, .update = {}, .consistency = {}};
    const auto total = std::accumulate(setup.tensor_values.begin(), setup.tensor_values.end(), std::uint64_t{0});
    setup.shards.values_per_block =
        collectives::server_block_bytes(total * sizeof(float), layout_.servers) / sizeof(float);
    names_ = names;
    setup.names = params::checksum_of_names(names);
    if (average) {
      setup.update.rule = params::Rule::kAverage;
      setup.tensor_values = params::AveragedTensors::sizes(std::move(setup.tensor_values));
      names.emplace_back("which gradients there are");
    }
    setup.consistency = consistency;
    params::check(setup);  // While there is a connection to leave through.
    client_ = std::make_unique<params::Client>(std::move(connection_), std::move(setup));
    if (average) {
      averaged_.emplace(*client_);
    } else {
      held_.emplace(*client_, consistency);
    }
    if (timeline_) client_->trace(timeline_, names);
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
  /// Where they do not.
  params::AveragedTensors& averaged() {
    refuse_after_interruption();
    if (!averaged_) throw Error(ErrorCode::kInvalidArgument, "the servers of this job average no gradients");
    return *averaged_;
  }
  std::uint64_t dropped_steps() const { return held_ ? held_->dropped_steps() : dropped_steps_; }
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
  std::uint64_t dropped_steps_ = 0;    // When it left.
  std::atomic<bool> running_ = false;  // A call.
  std::atomic<bool> interrupted_ = false;
};

/// A process that forked from a worker has its memory and not its threads.
class Handle {
 public:
  explicit Handle(std::shared_ptr<Worker> worker) : process_(own_process()), worker_(std::move(worker)) {}
  ~Handle() {
    if (is_here()) return;
    static std::vector<std::shared_ptr<Worker>> of_the_parent;
    of_the_parent.push_back(std::move(worker_));
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  bool is_here() const { return own_process() == process_; }
  const std::shared_ptr<Worker>& get() const {
    if (!is_here()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("process {} is a fork of process {}, which is the worker", own_process(), process_));
    }
    return worker_;
  }

 private:
  pid_t process_;
  std::shared_ptr<Worker> worker_;
};

std::unique_ptr<Handle> join() {
  return std::make_unique<Handle>(run_interruptibly([] {
    const auto timeout = engine::runtime_options_from_environment().group.join_timeout;
    const group::Job job = group::job_from_environment(Deadline::after(timeout));
    if (job.servers == 0) throw Error(ErrorCode::kInvalidArgument, "this job has no parameter servers");
    return std::make_shared<Worker>(job);
  }));
}

/// Averages tensors in place. `present`: those that this worker has; the result says which any worker has.
std::vector<bool> average(const Handle& handle, const Arrays& tensors, const std::vector<bool>& present) {
  const std::shared_ptr<Worker>& worker = handle.get();
  params::AveragedTensors& averaged = worker->averaged();
  const Floats values = floats_of(tensors, worker->names());
  const params::Client::Values memory = averaged.memory();
  params::check_sizes(values, memory);
  if (present.size() != values.size()) throw Error(ErrorCode::kInvalidArgument, "not every tensor is said to be there");
  for (std::size_t i = 0; i < values.size(); ++i) {
    averaged.set_present(i, present[i]);
    if (present[i]) std::ranges::copy(values[i], memory[i].begin());
  }
  worker->interruptible()([&averaged] { averaged.average(); });
  std::vector<bool> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    result.push_back(averaged.is_present(i));
    if (result.back()) std::ranges::copy(memory[i], values[i].begin());
  }
  return result;
}

void broadcast(const Handle& handle, const nb::ndarray<>& array) {
  if (array.device_type() != nb::device::cpu::value || !is_contiguous(array)) {
    throw Error(ErrorCode::kUnsupported, "what is broadcast must be a contiguous tensor on the CPU");
  }
  const std::span<std::byte> bytes{static_cast<std::byte*>(array.data()), array.nbytes()};
  const std::shared_ptr<Worker>& worker = handle.get();
  const std::vector<std::byte> result =
      worker->run([&client = worker->client(), values = std::vector<std::byte>(bytes.begin(), bytes.end())]() mutable {
        client.broadcast(values);
        return std::move(values);
      });
  std::ranges::copy(result, bytes.begin());
}

struct Rounds {
  params::LocalRounds rounds;
  std::vector<std::string> names;

  Floats values(const Arrays& arrays) const { return floats_of(arrays, names); }
};

void bind_rounds(nb::module_& module) {
  nb::class_<Rounds>(module, "LocalRounds")
      .def_prop_ro("notes", [](const Rounds& self) { return self.rounds.notes(); })
      .def("begin", [](Rounds& self, const Arrays& parameters) { self.rounds.begin(self.values(parameters)); })
      .def("check", [](Rounds& self, const Arrays& parameters) { self.rounds.check(self.values(parameters)); })
      .def("end_step", [](Rounds& self, const std::vector<bool>& stepped) { return self.rounds.end_step(stepped); })
      .def("give",
           [](Rounds& self, const Arrays& parameters, const Arrays& differences, const nb::ndarray<>& notes,
              bool settles) {
             self.rounds.give(self.values(parameters), self.values(differences), floats_of(notes, "the notes"),
                              settles);
           })
      .def("take",
           [](Rounds& self, const Arrays& differences, const nb::ndarray<>& notes, const Arrays& parameters) {
             return self.rounds.take(self.values(differences), floats_of(notes, "the notes"), self.values(parameters));
           })
      .def_prop_ro("slots", [](const Rounds& self) { return self.rounds.slots(); })
      .def_prop_rw(
          "outer_steps", [](Rounds& self) { return self.rounds.outer_steps(); },
          [](Rounds& self, std::uint64_t steps) { self.rounds.outer_steps() = steps; })
      .def("save_slot",
           [](Rounds& self, std::size_t slot, const Arrays& into) {
             const Floats values = self.values(into);
             const Floats own = self.rounds.slot(slot);
             params::check_sizes(values, own);
             for (std::size_t i = 0; i < own.size(); ++i) std::ranges::copy(own[i], values[i].begin());
           })
      .def("restore_slot", [](Rounds& self, std::size_t slot, const Arrays& from) {
        const Floats values = self.values(from);
        const Floats own = self.rounds.slot(slot);
        params::check_sizes(values, own);
        for (std::size_t i = 0; i < own.size(); ++i) std::ranges::copy(values[i], own[i].begin());
      });
}

struct Parsed {
  params::ConsistencyChoice choice;
  bool servers_update() const {
    return choice.servers.kind != params::Consistency::kSync || choice.servers.backup_workers > 0;
  }
};

void bind_consistency(nb::module_& module) {
  nb::class_<Parsed>(module, "Consistency")
      .def_prop_ro("needs_servers", [](const Parsed& self) { return self.choice.needs_servers(); })
      .def_prop_ro("servers_update", &Parsed::servers_update)
      .def_prop_ro("local_steps", [](const Parsed& self) { return self.choice.local_steps; })
      .def("local_rounds",
           [](const Parsed& self, int workers, std::vector<std::uint64_t> counts, std::vector<std::string> names) {
             return Rounds{{self.choice.local_steps, self.choice.outer, workers, std::move(counts)}, std::move(names)};
           });
  module.def("parse_consistency", [](const std::string& text, const std::string& what) {
    try {
      return Parsed{params::parse_consistency(text)};
    } catch (const Error& error) {
      throw Error(error).add_context(what);
    }
  });
}

}  // namespace

void bind_params(nb::module_& module) {
  bind_rounds(module);
  bind_consistency(module);
  const nb::class_<SharedTimeline> timeline(module, "Timeline");
  nb::class_<Handle>(module, "ParameterWorker")
      .def_prop_ro("rank", [](const Handle& self) { return self.get()->rank(); })
      .def_prop_ro("size", [](const Handle& self) { return self.get()->size(); })
      .def_prop_ro("servers", [](const Handle& self) { return self.get()->servers(); })
      .def_prop_ro("timeline",
                   [](const Handle& self) -> std::optional<SharedTimeline> {
                     if (!self.is_here()) return std::nullopt;
                     return self.get()->timeline();
                   })
      .def("attach",
           [](const Handle& self, const std::vector<std::uint64_t>& counts, const std::vector<std::string>& names,
              const Parsed& consistency) {
             self.get()->run([worker = self.get().get(), counts, names, consistency] {
               worker->attach(counts, names, consistency.choice.servers, !consistency.servers_update());
             });
           })
      .def("begin",
           [](const Handle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().begin(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("begin_again", [](const Handle& self) { self.get()->held().begin_again(); })
      .def("begin_step",
           [](const Handle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             return worker->held().begin_step(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("finish_step",
           [](const Handle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().finish_step(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("settle",
           [](const Handle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().settle(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("meet", [](const Handle& self) { self.get()->run([&client = self.get()->client()] { client.settle({}); }); })
      .def_prop_ro("dropped_steps", [](const Handle& self) { return self.get()->dropped_steps(); })
      .def("average", &average)
      .def("sum",
           [](const Handle& self, const std::vector<double>& values) {
             return self.get()->run([&client = self.get()->client(), sums = std::vector<double>(values)]() mutable {
               client.sum(sums);
               return std::move(sums);
             });
           })
      .def("broadcast", &broadcast)
      .def("leave", [](const Handle& self) { run_interruptibly([worker = self.get()] { worker->leave(); }); })
      .def("abort", [](const Handle& self, const std::string& reason) { self.get()->abort(reason); });
  module.def("join_parameter_servers", &join);
}

}  // namespace gyre::python
