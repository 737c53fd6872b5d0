#include "python/gyre/core/params_binding.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/params/consistency.h"
#include "gyre/params/local_rounds.h"
#include "gyre/params/replica.h"
#include "python/gyre/core/parameter_worker.h"
#include "python/gyre/core/served_binding.h"

namespace gyre::python {
namespace {

std::unique_ptr<WorkerHandle> join() {
  return std::make_unique<WorkerHandle>(run_interruptibly([] {
    const auto timeout = engine::runtime_options_from_environment().group.join_timeout;
    const group::Job job = group::job_from_environment(Deadline::after(timeout));
    if (job.servers == 0) throw Error(ErrorCode::kInvalidArgument, "this job has no parameter servers");
    return std::make_shared<ParameterWorker>(job);
  }));
}

/// Averages tensors in place. `present`: those that this worker has; the result says which any worker has.
std::vector<bool> average(const WorkerHandle& handle, const Arrays& tensors, const std::vector<bool>& present) {
  const std::shared_ptr<ParameterWorker>& worker = handle.get();
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

void broadcast(const WorkerHandle& handle, const nb::ndarray<>& array) {
  if (array.device_type() != nb::device::cpu::value || !is_contiguous(array)) {
    throw Error(ErrorCode::kUnsupported, "what is broadcast must be a contiguous tensor on the CPU");
  }
  const std::span<std::byte> bytes{static_cast<std::byte*>(array.data()), array.nbytes()};
  const std::shared_ptr<ParameterWorker>& worker = handle.get();
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

void bind_consistency(nb::module_& module) {
  nb::class_<ParsedConsistency>(module, "Consistency")
      .def_prop_ro("needs_servers", [](const ParsedConsistency& self) { return self.choice.needs_servers(); })
      .def_prop_ro("servers_update", &ParsedConsistency::servers_update)
      .def_prop_ro("local_steps", [](const ParsedConsistency& self) { return self.choice.local_steps; })
      .def("local_rounds", [](const ParsedConsistency& self, int workers, std::vector<std::uint64_t> counts,
                              std::vector<std::string> names) {
        return Rounds{{self.choice.local_steps, self.choice.outer, workers, std::move(counts)}, std::move(names)};
      });
  module.def("parse_consistency", [](const std::string& text, const std::string& what) {
    try {
      return ParsedConsistency{params::parse_consistency(text)};
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
  nb::class_<WorkerHandle> class_(module, "ParameterWorker");
  class_.def_prop_ro("rank", [](const WorkerHandle& self) { return self.get()->rank(); })
      .def_prop_ro("size", [](const WorkerHandle& self) { return self.get()->size(); })
      .def_prop_ro("servers", [](const WorkerHandle& self) { return self.get()->servers(); })
      .def_prop_ro("timeline",
                   [](const WorkerHandle& self) -> std::optional<SharedTimeline> {
                     if (!self.is_here()) return std::nullopt;
                     return self.get()->timeline();
                   })
      .def("attach",
           [](const WorkerHandle& self, const std::vector<std::uint64_t>& counts, const std::vector<std::string>& names,
              const ParsedConsistency& consistency) {
             self.get()->run([worker = self.get().get(), counts, names, consistency] {
               worker->attach(counts, names, consistency.choice.servers, !consistency.servers_update());
             });
           })
      .def("begin",
           [](const WorkerHandle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().begin(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("begin_again", [](const WorkerHandle& self) { self.get()->begin_again(); })
      .def("begin_step",
           [](const WorkerHandle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             return worker->held().begin_step(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("finish_step",
           [](const WorkerHandle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().finish_step(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("settle",
           [](const WorkerHandle& self, const Arrays& parameters) {
             const auto& worker = self.get();
             worker->held().settle(floats_of(parameters, worker->names()), worker->interruptible());
           })
      .def("meet",
           [](const WorkerHandle& self) { self.get()->run([&client = self.get()->client()] { client.settle({}); }); })
      .def_prop_ro("dropped_steps", [](const WorkerHandle& self) { return self.get()->dropped_steps(); })
      .def("average", &average)
      .def("sum",
           [](const WorkerHandle& self, const std::vector<double>& values) {
             return self.get()->run([&client = self.get()->client(), sums = std::vector<double>(values)]() mutable {
               client.sum(sums);
               return std::move(sums);
             });
           })
      .def("broadcast", &broadcast)
      .def("leave", [](const WorkerHandle& self) { run_interruptibly([worker = self.get()] { worker->leave(); }); })
      .def("abort", [](const WorkerHandle& self, const std::string& reason) { self.get()->abort(reason); });
  bind_served(module, class_);
  module.def("join_parameter_servers", &join);
}

}  // namespace gyre::python
