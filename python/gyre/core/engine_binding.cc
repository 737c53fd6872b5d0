#include "python/gyre/core/engine_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/engine/runtime.h"
#include "python/gyre/core/completion_binding.h"
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/location.h"
#include "python/gyre/core/memory_binding.h"
#include "python/gyre/core/process_bound.h"
#include "python/gyre/core/statistics_binding.h"
#include "python/gyre/core/tensorflow_binding.h"

namespace gyre::python {

engine::DataType to_data_type(int number) {
  const auto type = collectives::data_type_from_number(static_cast<std::uint8_t>(number));
  if (!type || number != static_cast<int>(*type)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no data type number {}", number));
  }
  return *type;
}

namespace {

namespace nb = nanobind;
using namespace nb::literals;

/// A plan and what must outlive it.
struct BoundPlan {
  RuntimeOwner runtime;
  ProcessBound<engine::Plan> plan;
};

engine::ReduceOperation to_operation(int number) {
  const auto operation = collectives::reduce_operation_from_number(static_cast<std::uint8_t>(number));
  if (!operation || number != static_cast<int>(*operation)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no reduce operation number {}", number));
  }
  return *operation;
}

engine::OperationKind to_kind(int number) {
  constexpr int kFirst = static_cast<int>(engine::OperationKind::kAllreduce);
  constexpr int kLast = static_cast<int>(engine::OperationKind::kBarrier);
  if (number < kFirst || number > kLast) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no operation number {}", number));
  }
  return static_cast<engine::OperationKind>(number);
}

/// Serial, descriptor, serials that are alive: collectives::PeerMappedBuffer.
using PeerMappedTuple = std::tuple<std::uint32_t, int, std::vector<std::uint32_t>>;

engine::Request make_request(int kind, std::string name, int type, engine::Shape shape, AddressRange input,
                             AddressRange output, int operation, double prescale, double postscale, int root,
                             std::vector<std::int64_t> splits, std::vector<std::int64_t> expected_splits,
                             bool transient, PeerMappedTuple peer_mapped, bool elsewhere) {
  engine::Request request;
  request.name = std::move(name);
  request.signature.kind = to_kind(kind);
  request.signature.type = to_data_type(type);
  request.signature.shape = std::move(shape);
  request.signature.operation = to_operation(operation);
  request.signature.prescale = prescale;
  request.signature.postscale = postscale;
  request.signature.root = root;
  request.signature.splits = std::move(splits);
  request.signature.expected_splits = std::move(expected_splits);
  request.input = to_span(input);
  request.output = to_span(output);
  request.transient = transient;
  request.signature.elsewhere = elsewhere;
  auto& [serial, descriptor, alive] = peer_mapped;
  request.peer_mapped = {serial, descriptor, std::move(alive)};
  return request;
}

/// An operation that reads and writes memory of the same shape. Every argument has a fixed position: naming them, or a
/// Request of Python's own, would take longer than a small operation.
engine::Request request_in_memory(int kind, std::string name, bool transient, int type, engine::Shape shape,
                                  Address input, Address output, std::size_t size_bytes, int operation, double prescale,
                                  double postscale, int root) {
  engine::Request request;
  request.name = std::move(name);
  request.signature.kind = to_kind(kind);
  request.signature.type = to_data_type(type);
  request.signature.shape = std::move(shape);
  request.signature.operation = to_operation(operation);
  request.signature.prescale = prescale;
  request.signature.postscale = postscale;
  request.signature.root = root;
  request.input = to_span({input, size_bytes});
  request.output = to_span({output, size_bytes});
  request.transient = transient;
  return request;
}

engine::Handle submit_in_memory(const RuntimeOwner& self, int kind, std::string name, bool transient, int type,
                                engine::Shape shape, Address input, Address output, std::size_t size_bytes,
                                int operation, double prescale, double postscale, int root) {
  auto request = request_in_memory(kind, std::move(name), transient, type, std::move(shape), input, output, size_bytes,
                                   operation, prescale, postscale, root);
  engine::Engine& engine = self.get().engine();
  const nb::gil_scoped_release released;
  return engine.submit(std::move(request));
}

/// run_or_submit() likewise. None when it is done.
nb::object run_in_memory(const RuntimeOwner& self, int kind, std::string name, bool transient, int type,
                         engine::Shape shape, Address input, Address output, std::size_t size_bytes, int operation,
                         double prescale, double postscale, int root) {
  auto request = request_in_memory(kind, std::move(name), transient, type, std::move(shape), input, output, size_bytes,
                                   operation, prescale, postscale, root);
  engine::Engine& engine = self.get().engine();
  const auto submitted = [&] {
    const nb::gil_scoped_release released;
    return engine.run_or_submit(std::move(request));
  }();
  if (!submitted.done()) return nb::cast(submitted);
  submitted.wait();  // Throws what made it fail.
  return nb::none();
}

/// (bytes, shape, received splits)
nb::tuple take_result(const engine::Handle& handle) {
  auto result = std::make_shared<engine::Result>(handle.take_result());
  Memory memory{std::span<std::byte>(result->bytes), result};
  return nb::make_tuple(nb::cast(std::move(memory)), nb::cast(result->shape), nb::cast(result->received_splits));
}

nb::tuple take_agreement(const engine::Handle& handle) {
  engine::Agreement agreement = handle.take_result().agreement;
  return nb::make_tuple(agreement.number, agreement.some_have_joined, std::move(agreement.rows));
}

/// Sleeps without the GIL, on a thread that no signal reaches. -1 once a rank has left in good order.
std::int64_t wait_for_agreements(const RuntimeOwner& self, std::uint64_t count) {
  constexpr std::chrono::hours kPatience{1};
  engine::Engine& engine = self.get().engine();
  const nb::gil_scoped_release released;
  const auto agreed = engine.wait_for_agreements(count, kPatience);
  return agreed ? static_cast<std::int64_t>(*agreed) : -1;
}

void check(const RuntimeOwner& self) {
  constexpr std::uint64_t kMoreThanThereAre = std::numeric_limits<std::uint64_t>::max();
  self.get().engine().wait_for_agreements(kMoreThanThereAre, std::chrono::milliseconds{0});
}

bool timeline_runs(const RuntimeOwner& self) { return self.is_here() && self.get().engine().timeline_runs(); }

/// A phase that is over, where the timeline runs.
void add_to_timeline(const RuntimeOwner& self, const std::string& row, const std::string& phase,
                     const std::string& detail, std::int64_t began_ns, std::int64_t ended_ns) {
  if (!self.is_here()) return;
  // Python's time.perf_counter_ns() reads the same clock.
  const SteadyClock::time_point began{std::chrono::nanoseconds(began_ns)};
  self.get().engine().add_to_timeline(
      row, {.name = phase, .began = began, .lasted = std::chrono::nanoseconds(ended_ns - began_ns), .detail = detail});
}

int cross_size(const engine::Runtime& runtime, const group::Topology& topology) {
  return static_cast<int>(std::ranges::count_if(topology.hosts(), [&](const std::vector<int>& ranks) {
    return static_cast<int>(ranks.size()) > runtime.local_rank();
  }));
}

int cross_rank(const engine::Runtime& runtime, const group::Topology& topology) {
  const auto own_host = topology.hosts().begin() + topology.host_index();
  return static_cast<int>(std::count_if(topology.hosts().begin(), own_host, [&](const std::vector<int>& ranks) {
    return static_cast<int>(ranks.size()) > runtime.local_rank();
  }));
}

/// By rank, the number of its host: hosts are numbered by their lowest ranks.
std::vector<int> host_of_rank(const group::Topology& topology) {
  std::vector<int> numbers(static_cast<std::size_t>(topology.size()));
  for (std::size_t host = 0; host < topology.hosts().size(); ++host) {
    for (const int rank : topology.hosts()[host]) numbers[static_cast<std::size_t>(rank)] = static_cast<int>(host);
  }
  return numbers;
}

/// Host index, position of the rank among the hosts that have as many ranks, …: what init() wants to know at once.
nb::dict describe_place(const RuntimeOwner& self) {
  engine::Runtime& runtime = self.get();
  const group::Topology& topology = runtime.group().topology();
  const std::size_t own_count = topology.local_ranks().size();
  nb::dict place;
  place["rank"] = runtime.rank();
  place["size"] = runtime.size();
  place["local_rank"] = runtime.local_rank();
  place["local_size"] = runtime.local_size();
  place["cross_rank"] = cross_rank(runtime, topology);
  place["cross_size"] = cross_size(runtime, topology);
  place["host_of_rank"] = host_of_rank(topology);
  place["is_homogeneous"] =
      std::ranges::all_of(topology.hosts(), [&](const std::vector<int>& ranks) { return ranks.size() == own_count; });
  return place;
}

/// Name, type, shape, group (-1: none).
using TensorList = std::vector<std::tuple<std::string, int, engine::Shape, int>>;

std::vector<engine::PlanTensor> to_plan_tensors(const TensorList& tensors) {
  std::vector<engine::PlanTensor> plan_tensors;
  plan_tensors.reserve(tensors.size());
  for (const auto& [tensor_name, type, shape, group] : tensors) {
    plan_tensors.push_back({tensor_name, to_data_type(type), shape, group});
  }
  return plan_tensors;
}

engine::PlanOptions make_plan_options(std::string name, int operation, double prescale, double postscale,
                                      const std::string& wire, bool error_feedback) {
  engine::PlanOptions options;
  options.name = std::move(name);
  options.operation = to_operation(operation);
  options.prescale = prescale;
  options.postscale = postscale;
  options.wire = collectives::parse_wire_format(wire);
  options.error_feedback = error_feedback;
  return options;
}

void check_plan(const RuntimeOwner& self, const TensorList& tensors, const engine::PlanOptions& options) {
  self.get();  // Not in a fork.
  const auto caller = ThreadIdentity::current();
  run_interruptibly([runtime = self.shared(), plan_tensors = to_plan_tensors(tensors), options, caller] {
    const auto acting = runtime->engine().act_for(caller);
    runtime->engine().check_plan(plan_tensors, options);
    return true;
  });
}

BoundPlan make_plan(const RuntimeOwner& self, const TensorList& tensors, engine::PlanOptions options,
                    std::vector<std::size_t> ready_order) {
  self.get();  // Not in a fork.
  options.ready_order = std::move(ready_order);
  const auto caller = ThreadIdentity::current();
  auto plan = run_interruptibly([runtime = self.shared(), plan_tensors = to_plan_tensors(tensors), options, caller] {
    const auto acting = runtime->engine().act_for(caller);
    return runtime->engine().make_plan(plan_tensors, options);
  });
  return {self, ProcessBound<engine::Plan>(std::move(plan))};
}

RuntimeOwner make_subset(const RuntimeOwner& self, const std::vector<int>& ranks, std::uint64_t id,
                         const std::string& name) {
  self.get();  // Not in a fork.
  return RuntimeOwner(
      run_interruptibly([runtime = self.shared(), ranks, id, name] { return runtime->subset(ranks, id, name); }));
}

Memory plan_memory(const BoundPlan& self, std::size_t index) {
  // The runtime first: members are destroyed in reverse order, and the plan must go before it.
  struct Owners {
    std::shared_ptr<engine::Runtime> runtime;
    std::shared_ptr<engine::Plan> plan;
  };
  engine::Plan& plan = self.plan.get();
  if (index >= plan.tensor_count()) throw nb::index_error("the plan has no such tensor");
  auto window = net::Window::over(plan.tensor(index));
  return {window->bytes(), std::make_shared<Owners>(Owners{self.runtime.shared(), self.plan.shared()}), window};
}

void bind_request_and_handle(nb::module_& module) {
  nb::class_<engine::Request>(module, "Request", "One named operation of this rank; memory is (address, bytes).")
      .def(nb::new_(&make_request), nb::kw_only(), "kind"_a, "name"_a, "data_type"_a, "shape"_a,
           "input"_a = AddressRange{}, "output"_a = AddressRange{},
           "operation"_a = static_cast<int>(engine::ReduceOperation::kSum), "prescale"_a = 1.0, "postscale"_a = 1.0,
           "root"_a = 0, "splits"_a = std::vector<std::int64_t>{}, "expected_splits"_a = std::vector<std::int64_t>{},
           "transient"_a = false, "peer_mapped"_a = PeerMappedTuple{0, -1, {}}, "elsewhere"_a = false)
      .def_prop_ro("name", [](const engine::Request& self) { return self.name; });

  bind_completion<engine::Handle>(module, "Handle", "The outcome of one operation. Thread-safe.")
      .def("take_result", &take_result, "Once, after wait(): (memory, shape, received splits).")
      .def("take_agreement", &take_agreement,
           "Once, after wait(), of an operation that something else carries out: (its number, whether ranks have\n"
           "joined, rows of each rank). See engine::Agreement.");
}

void bind_plan(nb::module_& module) {
  nb::class_<engine::PlanOptions>(module, "PlanOptions", "See gyre/engine/plan.h.")
      .def(nb::new_(&make_plan_options), nb::kw_only(), "name"_a, "operation"_a, "prescale"_a = 1.0,
           "postscale"_a = 1.0, "wire"_a = "native", "error_feedback"_a = false);
  nb::class_<BoundPlan>(module, "Plan", "See gyre/engine/plan.h.")
      .def_prop_ro("tensor_count", [](const BoundPlan& self) { return self.plan.get().tensor_count(); })
      .def_prop_ro("bucket_count", [](const BoundPlan& self) { return self.plan.get().bucket_count(); })
      .def_prop_ro("step", [](const BoundPlan& self) { return self.plan.get().step(); })
      .def("memory", &plan_memory, "index"_a,
           "This rank's place of a tensor in the arena, at addresses of its own; views keep the plan alive.")
      .def(
          "mark_ready", [](const BoundPlan& self, std::size_t index) { self.plan.get().mark_ready(index); }, "index"_a)
      .def(
          "contribute",
          [](const BoundPlan& self, std::size_t index, std::uintptr_t address, std::size_t size_bytes) {
            // Other threads may run meanwhile where that is worth handing the interpreter over.
            constexpr std::size_t kLongCopyBytes = std::size_t{64} * 1024;
            engine::Plan& plan = self.plan.get();
            std::optional<nb::gil_scoped_release> released;
            if (size_bytes >= kLongCopyBytes) released.emplace();
            plan.contribute(index, {reinterpret_cast<const std::byte*>(address), size_bytes});
          },
          "index"_a, "address"_a, "size_bytes"_a, "Copies a contribution into the tensor's place and marks it ready.")
      .def(
          "is_ready", [](const BoundPlan& self, std::size_t index) { return self.plan.get().is_ready(index); },
          "index"_a)
      .def("statistics", [](const BoundPlan& self) { return to_python(self.plan.get().statistics()); })
      .def(
          "finish_step",
          [](const BoundPlan& self) {
            engine::Plan& plan = self.plan.get();
            wait_with_signals([&](std::chrono::milliseconds patience) { return plan.finish_step_for(patience); });
          },
          "Ends the step without the GIL: what was not marked contributes zeros. Ctrl-C ends the wait.")
      .def(
          "lend",
          [](const BoundPlan& self, std::vector<engine::Shape> shapes) {
            self.plan.get();  // Not in a fork.
            return lend_plan(self.runtime.shared(), self.plan.shared(), std::move(shapes));
          },
          "shapes"_a,
          "Its number for TensorFlow's ops, until take_back_plan(number). This thread waits for its steps.");
}

/// A join and what must outlive it.
struct BoundJoin {
  RuntimeOwner runtime;
  ProcessBound<engine::Join> join;
};

BoundJoin begin_join(const RuntimeOwner& self, bool every_operation, bool divide_by_contributors) {
  engine::Runtime& runtime = self.get();
  const nb::gil_scoped_release released;
  return {self, ProcessBound<engine::Join>(runtime.engine().begin_join({every_operation, divide_by_contributors}))};
}

int wait_for_join(const BoundJoin& self) {
  engine::Join& join = self.join.get();
  wait_with_signals([&](std::chrono::milliseconds patience) { return join.wait_for(patience); });
  return join.last_rank();
}

void bind_join(nb::module_& module) {
  nb::class_<BoundJoin>(module, "Join", "See gyre/engine/join.h.")
      .def("wait", &wait_for_join,
           "The last rank to join, when all have. Without the GIL; takes part in the others' steps meanwhile.");
}

constexpr const char* kSubsetHelp = R"(
Some ranks of this runtime as a Runtime of their own (a process set): numbered in the
order given, with an engine of its own over the same links and shared memory, so that everything that works here works
there, plans included, and nothing waits for ranks outside of it. Only the members call it, all with the same arguments;
it returns when all have. `id`: 1 to 2**32 - 1, equal on the members; sets that share a rank need different ones, and
none may be used again. `name`: what its rows in the timeline bear. shutdown() leaves only the subset; a rank's death or abort() fails the whole job. Keep it no
longer than its parent.)";

RuntimeOwner start() {
  auto runtime =
      run_interruptibly([] { return engine::Runtime::start_from_environment(find_location, process_waits()); });
  runtime->engine().note_this_thread();
  return RuntimeOwner(std::move(runtime));
}

void bind_runtime(nb::module_& module) {
  nb::class_<RuntimeOwner>(module, "Runtime", "This process as one rank of a job. Thread-safe.")
      .def_prop_ro("place", &describe_place)
      .def(
          "submit",
          [](const RuntimeOwner& self, const engine::Request& request) {
            engine::Runtime& runtime = self.get();
            const nb::gil_scoped_release released;
            return runtime.engine().submit(request);
          },
          "request"_a)
      .def(
          "run_or_submit",
          [](const RuntimeOwner& self, const engine::Request& request) {
            engine::Runtime& runtime = self.get();
            const nb::gil_scoped_release released;
            return runtime.engine().run_or_submit(request);
          },
          "request"_a, "submit() for a caller who will wait: done already where the ranks met at once.")
      .def("run_in_memory", &run_in_memory,
           "(kind, name, transient, data_type, shape, input address, output address, bytes, operation, prescale,\n"
           "postscale, root): run_or_submit() without a Request. None when it is done, else the handle to wait for.")
      .def("submit_in_memory", &submit_in_memory, "run_in_memory() that does not try to run it at once: a handle.")
      .def(
          "submit_group",
          [](const RuntimeOwner& self, const std::vector<engine::Request>& requests) {
            engine::Runtime& runtime = self.get();
            const nb::gil_scoped_release released;
            return runtime.engine().submit_group(requests);
          },
          "requests"_a)
      .def("wait_for_agreements", &wait_for_agreements, "count"_a,
           "Sleeps until more than so many operations that something else carries out have been agreed on, or for an\n"
           "hour: how many have been, or -1 once a rank has left in good order. Raises what has made the engine fail.")
      .def("check", &check, "Raises what has made the engine fail, if something has.")
      .def("begin_join", &begin_join, nb::kw_only(), "every_operation"_a = false, "divide_by_contributors"_a = false,
           "This rank has run out of data: the others go on without contributions from it until all have joined.")
      .def("subset", &make_subset, "ranks"_a, "id"_a, "name"_a, kSubsetHelp)
      .def("check_plan", &check_plan, "tensors"_a, "options"_a, "Whether every rank would make the same plan.")
      .def("make_plan", &make_plan, "tensors"_a, "options"_a, "ready_order"_a = std::vector<std::size_t>{},
           "tensors: (name, data type number, shape) of each. Every rank makes the same plan.")
      .def("statistics", [](const RuntimeOwner& self) { return to_python(self.get().engine().statistics()); })
      .def(
          "abort",
          [](const RuntimeOwner& self, const std::string& reason) {
            engine::Runtime& runtime = self.get();
            const nb::gil_scoped_release released;
            runtime.group().abort(Error(ErrorCode::kAborted, reason));
          },
          "reason"_a, "Fails what every rank waits for, now and later, with this reason.")
      .def(
          "shutdown",
          [](const RuntimeOwner& self) {
            engine::Runtime& runtime = self.get();
            const nb::gil_scoped_release released;
            runtime.shutdown();
          },
          "Leaves the job in good order. Idempotent.")
      .def(
          "start_timeline",
          [](const RuntimeOwner& self, const std::string& path, bool mark_cycles) {
            self.get().engine().start_timeline(path, mark_cycles);
          },
          "path"_a, "mark_cycles"_a = false)
      .def("stop_timeline", [](const RuntimeOwner& self) { self.get().engine().stop_timeline(); })
      .def("timeline_runs", &timeline_runs)
      .def("add_to_timeline", &add_to_timeline, "row"_a, "phase"_a, "detail"_a, "began_ns"_a, "ended_ns"_a);
  module.def("start", &start,
             "Joins the job that the environment describes; a process that no launcher started is a job of one.");
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_request_and_handle(module);
  bind_plan(module);
  bind_join(module);
  bind_runtime(module);
}

}  // namespace gyre::python
