#include "python/gyre/core/served_binding.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/params/served_parameters.h"
#include "gyre/params/update_rule.h"

namespace gyre::python {
namespace {

using Tables = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>>;  // Rows, columns, group.
using Options = std::vector<params::UpdateOptions>;
/// By tensor and then by table: how many steps, and the slots.
using States = std::vector<std::pair<std::uint64_t, Arrays>>;

params::Rule rule_named(const std::string& name) {
  for (std::uint8_t rule = 0; rule < params::kRules; ++rule) {
    if (params::rule_name(static_cast<params::Rule>(rule)) == name) return static_cast<params::Rule>(rule);
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("servers have no optimizer '{}'", name));
}

void attach(const WorkerHandle& handle, const std::vector<std::uint64_t>& counts, const Tables& tables,
            const std::vector<std::string>& names, const Options& groups, const std::vector<std::uint32_t>& group_of,
            const ParsedConsistency& consistency) {
  params::TrainingSetup setup{.tensor_values = counts,
                              .groups = groups,
                              .group_of_tensor = group_of,
                              .consistency = consistency.choice.servers};
  for (const auto& [rows, columns, group] : tables) {
    setup.tables.push_back({.rows = rows, .columns = columns, .group = group});
  }
  for (params::UpdateOptions& group : setup.groups) group.rate = 1;  // Each step says its own, so they need not agree.
  handle.get()->run(
      [worker = handle.get().get(), setup = std::move(setup), names] { worker->attach_served(setup, names); });
}

/// The first arrays are tensors, those after them tables.
struct Places {
  Floats tensors;
  Floats tables;
};

Places places_of(const Arrays& parameters, const Arrays& tables, const std::vector<std::string>& names) {
  if (parameters.size() + tables.size() != names.size()) {
    throw Error(ErrorCode::kInvalidArgument, "not as many tensors were given as at first");
  }
  Places places;
  for (std::size_t i = 0; i < parameters.size(); ++i) places.tensors.push_back(floats_of(parameters[i], names[i]));
  for (std::size_t i = 0; i < tables.size(); ++i) {
    places.tables.push_back(floats_of(tables[i], names[parameters.size() + i]));
  }
  return places;
}

/// Of a table of this many rows.
params::Rows rows_of(const nb::ndarray<>& numbers, const nb::ndarray<>& values, std::size_t of,
                     const std::string& name) {
  if (numbers.dtype() != nb::dtype<std::int64_t>() || !is_contiguous(numbers) ||
      numbers.device_type() != nb::device::cpu::value) {
    throw Error(ErrorCode::kUnsupported, fmt::format("the rows of {}'s gradient are not int64 on the CPU", name));
  }
  params::Rows rows;
  const std::span<const std::int64_t> from(static_cast<const std::int64_t*>(numbers.data()), numbers.size());
  for (const std::int64_t row : from) {
    if (row < 0 || static_cast<std::uint64_t>(row) >= of) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the gradient of {} is for row {}, but there are {} rows", name, row, of));
    }
    rows.numbers.push_back(static_cast<std::uint64_t>(row));
  }
  const std::span<float> floats = floats_of(values, fmt::format("the gradient of {}", name));
  rows.values.assign(floats.begin(), floats.end());
  return rows;
}

/// Of those tensors and tables that are present: `gradients`, and `numbers` and `rows` of tables.
bool step(const WorkerHandle& handle, const std::vector<bool>& present, const Arrays& gradients, const Arrays& numbers,
          const Arrays& rows, const Options& options, const Arrays& parameters, const Arrays& tables) {
  const std::shared_ptr<ParameterWorker>& worker = handle.get();
  const std::vector<std::string>& names = worker->names();
  const Places places = places_of(parameters, tables, names);
  if (present.size() != names.size()) throw Error(ErrorCode::kInvalidArgument, "not every tensor is said to be there");
  params::ServedParameters::Gradients given{.tensors = std::vector<std::span<const float>>(parameters.size()),
                                            .rows = std::vector<params::Rows>(tables.size()),
                                            .present = present};
  std::size_t next = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (present[i]) given.tensors[i] = floats_of(gradients.at(next++), fmt::format("the gradient of {}", names[i]));
  }
  next = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (!present[parameters.size() + i]) continue;
    given.rows[i] = rows_of(numbers.at(next), rows.at(next), tables[i].shape(0), names[parameters.size() + i]);
    ++next;
  }
  return worker->served().step(std::move(given), options, places.tensors, places.tables, worker->interruptible());
}

/// The slots are copied into the arrays that are given.
std::vector<std::uint64_t> save_state(const WorkerHandle& handle, const std::vector<Arrays>& into) {
  const std::shared_ptr<ParameterWorker>& worker = handle.get();
  const std::vector<params::TensorState> states = worker->served().state(worker->interruptible());
  std::vector<std::uint64_t> steps;
  if (states.empty()) return steps;
  if (into.size() != states.size())
    throw Error(ErrorCode::kInvalidArgument, "not every tensor has places for its state");
  for (std::size_t i = 0; i < states.size(); ++i) {
    steps.push_back(states[i].steps);
    for (std::size_t slot = 0; slot < states[i].slots.size(); ++slot) {
      const std::span<float> place = floats_of(into[i].at(slot), worker->names().at(i));
      if (place.size() != states[i].slots[slot].size()) {
        throw Error(ErrorCode::kInvalidArgument, "a place for an optimizer's state is not of its size");
      }
      std::ranges::copy(states[i].slots[slot], place.begin());
    }
  }
  return steps;
}

void load_state(const WorkerHandle& handle, const States& from) {
  const std::shared_ptr<ParameterWorker>& worker = handle.get();
  std::vector<params::TensorState> states;
  for (std::size_t i = 0; i < from.size(); ++i) {
    params::TensorState& state = states.emplace_back();
    state.steps = from[i].first;
    for (const nb::ndarray<>& slot : from[i].second) {
      const std::span<float> values = floats_of(slot, fmt::format("the state of {}", worker->names().at(i)));
      state.slots.emplace_back(values.begin(), values.end());
    }
  }
  worker->served().load_state(std::move(states));
}

}  // namespace

void bind_served(nb::module_& module, nb::class_<WorkerHandle>& class_) {
  nb::class_<params::UpdateOptions>(module, "UpdateOptions")
      .def("__init__", [](params::UpdateOptions* self,
                          const std::string& rule) { new (self) params::UpdateOptions{.rule = rule_named(rule)}; })
      .def_rw("rate", &params::UpdateOptions::rate)
      .def_rw("momentum", &params::UpdateOptions::momentum)
      .def_rw("dampening", &params::UpdateOptions::dampening)
      .def_rw("nesterov", &params::UpdateOptions::nesterov)
      .def_rw("weight_decay", &params::UpdateOptions::weight_decay)
      .def_rw("alpha", &params::UpdateOptions::alpha)
      .def_rw("centered", &params::UpdateOptions::centered)
      .def_rw("beta1", &params::UpdateOptions::beta1)
      .def_rw("beta2", &params::UpdateOptions::beta2)
      .def_rw("amsgrad", &params::UpdateOptions::amsgrad)
      .def_rw("epsilon", &params::UpdateOptions::epsilon)
      .def_rw("lr_decay", &params::UpdateOptions::lr_decay)
      .def_rw("initial_accumulator", &params::UpdateOptions::initial_accumulator);
  class_.def("attach_served", &attach)
      .def("served_begin",
           [](const WorkerHandle& self, const Arrays& parameters, const Arrays& tables) {
             const auto& worker = self.get();
             const Places places = places_of(parameters, tables, worker->names());
             worker->served().begin(places.tensors, places.tables, worker->interruptible());
           })
      .def("served_step", &step)
      .def("served_settle",
           [](const WorkerHandle& self, const Arrays& parameters, const Arrays& tables) {
             const auto& worker = self.get();
             const Places places = places_of(parameters, tables, worker->names());
             worker->served().settle(places.tensors, places.tables, worker->interruptible());
           })
      .def("save_state", &save_state)
      .def("load_state", &load_state);
}

}  // namespace gyre::python
