#include "python/gyre/core/params_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
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
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/process_bound.h"
#include "python/gyre/core/shared_timeline.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using Addresses = std::vector<Address>;

/// This process as a worker of a job with parameter servers. Calls are interruptible: they work on memory of this
/// object, which they own together with it, and copy from and to the tensors before and afterwards.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  explicit Worker(const group::Job& job) : layout_{.workers = job.size - job.servers, .servers = job.servers} {
    const engine::RuntimeOptions options = engine::runtime_options_from_environment();
    const Logger logger = make_logger(fmt::format("rank {}", layout_.worker_of(job.rank)), options.log_level);
    group_ = group::join_group(job, options.group, logger);
    if (rank() == 0) timeline_ = start_timeline(options.engine.timeline, logger);
  }

  int rank() const { return layout_.worker_of(group_->rank()); }
  int size() const { return layout_.workers; }
  int servers() const { return layout_.servers; }
  std::optional<SharedTimeline> timeline() const {
    return timeline_ ? std::optional(SharedTimeline{timeline_}) : std::nullopt;
  }

  void attach(std::vector<std::uint64_t> counts, const std::vector<std::string>& names,
              params::ConsistencyOptions consistency, bool average) {
    if (client_) throw Error(ErrorCode::kInvalidArgument, "a process can have one ParameterServerOptimizer");
    params::TrainingSetup setup{
        .tensor_values = std::move(counts), .shards = {.servers = layout_.servers}, .update = {}, .consistency = {}};
    const auto total = std::accumulate(setup.tensor_values.begin(), setup.tensor_values.end(), std::uint64_t{0});
    setup.shards.values_per_block =
        collectives::server_block_bytes(total * sizeof(float), layout_.servers) / sizeof(float);
    if (average) setup.update.rule = params::Rule::kAverage;
    setup.consistency = consistency;
    client_ = std::make_unique<params::Client>(*group_, layout_, std::move(setup));
    const params::Client::Values memory = client_->memory();
    values_.assign(memory.begin(), memory.end());
    if (timeline_) client_->trace(timeline_, names);
  }

  void take(const Addresses& tensors) {
    check(tensors);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::memcpy(values_[i].data(), reinterpret_cast<const void*>(tensors[i]), values_[i].size_bytes());
    }
  }
  void give(const Addresses& tensors) const {
    check(tensors);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::memcpy(reinterpret_cast<void*>(tensors[i]), values_[i].data(), values_[i].size_bytes());
    }
  }

  std::span<const std::span<float>> values() const { return values_; }
  params::Client& client() {
    if (!client_) throw Error(ErrorCode::kInvalidArgument, "make the ParameterServerOptimizer first");
    return *client_;
  }
  params::Client::Outcome step(double rate) {
    const std::vector<std::span<const float>> gradients(values_.begin(), values_.end());
    return client().step(gradients, values_, rate);
  }
  /// Idempotent. A worker without an optimizer leaves the group alone.
  void leave() {
    values_.clear();
    if (client_) {
      client_.reset();
    } else {
      params::leave_without_training(*group_, layout_);
    }
    if (timeline_) timeline_->stop();
  }
  void abort(const std::string& reason) { group_->abort(Error(ErrorCode::kAborted, reason)); }

 private:
  void check(const Addresses& tensors) const {
    if (tensors.size() != values_.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} tensors were given, not {}", tensors.size(), values_.size()));
    }
  }

  const params::Layout layout_;
  std::unique_ptr<group::Group> group_;
  std::shared_ptr<Timeline> timeline_;  // Of worker 0, where one was asked for.
  std::unique_ptr<params::Client> client_;
  std::vector<std::span<float>> values_;  // Its memory, by tensor: for the servers, or what they have answered.
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

/// Runs `work(worker)`, after the tensors' values have been taken and before they get the answer.
template <typename Work>
auto exchange(const Handle& handle, const Addresses& input, const Addresses& output, Work work) {
  const std::shared_ptr<Worker>& worker = handle.get();
  if (!input.empty()) worker->take(input);
  auto result = run_interruptibly([worker, work] { return work(*worker); });
  worker->give(output);
  return result;
}

struct Parsed {
  params::ConsistencyChoice choice;
  bool servers_update() const {
    return choice.servers.kind != params::Consistency::kSync || choice.servers.backup_workers > 0;
  }
};

}  // namespace

void bind_params(nb::module_& module) {
  nb::class_<Parsed>(module, "Consistency")
      .def_prop_ro("needs_servers", [](const Parsed& self) { return self.choice.needs_servers(); })
      .def_prop_ro("servers_update", &Parsed::servers_update)
      .def_prop_ro("local_steps", [](const Parsed& self) { return self.choice.local_steps; })
      .def("outer_optimizer", [](const Parsed& self, int workers) {
        const params::UpdateOptions rule = params::outer_rule(self.choice.outer, workers);
        return std::make_tuple(params::outer_rate(self.choice.outer), rule.momentum, rule.nesterov);
      });
  module.def("parse_consistency", [](const std::string& text, const std::string& what) {
    try {
      return Parsed{params::parse_consistency(text)};
    } catch (const Error& error) {
      throw Error(error).add_context(what);
    }
  });

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
             run_interruptibly([worker = self.get(), counts, names, consistency] {
               worker->attach(counts, names, consistency.choice.servers, !consistency.servers_update());
             });
           })
      .def("initialise",
           [](const Handle& self, const Addresses& tensors) {
             exchange(self, tensors, tensors,
                      [](Worker& worker) { return worker.client().initialise(worker.values()), 0; });
           })
      .def("pull",
           [](const Handle& self, const Addresses& tensors) {
             exchange(self, {}, tensors, [](Worker& worker) { return worker.client().pull(worker.values()), 0; });
           })
      .def("step",
           [](const Handle& self, const Addresses& input, const Addresses& output, double rate) {
             params::Client::Outcome outcome =
                 exchange(self, input, output, [rate](Worker& worker) { return worker.step(rate); });
             return std::make_pair(outcome.accepted, std::move(outcome.contributors));
           })
      .def("sum",
           [](const Handle& self, const std::vector<double>& values) {
             return run_interruptibly([worker = self.get(), sums = std::vector<double>(values)]() mutable {
               worker->client().sum(sums);
               return std::move(sums);
             });
           })
      .def("broadcast",
           [](const Handle& self, AddressRange memory) {
             const std::span<std::byte> bytes = to_span(memory);
             const std::vector<std::byte> result = run_interruptibly(
                 [worker = self.get(), values = std::vector<std::byte>(bytes.begin(), bytes.end())]() mutable {
                   worker->client().broadcast(values);
                   return std::move(values);
                 });
             if (!bytes.empty()) std::memcpy(bytes.data(), result.data(), result.size());
           })
      .def("leave", [](const Handle& self) { run_interruptibly([worker = self.get()] { worker->leave(); }); })
      .def("abort", [](const Handle& self, const std::string& reason) { self.get()->abort(reason); });
  module.def("join_parameter_servers", &join);
}

}  // namespace gyre::python
