#include "python/gyre/core/distributed_binding.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/secret_key.h"
#include "gyre/engine/options.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/job.h"
#include "gyre/group/launched_place.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/group/topology.h"
#include "python/gyre/core/completion_binding.h"
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/location.h"
#include "python/gyre/core/process_bound.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

/// The environment's settings, with what the caller has decided in their place.
engine::RuntimeOptions options_for(double join_timeout_seconds, double operation_timeout_seconds, bool timeline) {
  engine::RuntimeOptions options = engine::runtime_options_from_environment();
  options.group.join_timeout = to_milliseconds(join_timeout_seconds);
  if (options.engine.stall_failure.count() == 0)
    options.engine.stall_failure = to_milliseconds(operation_timeout_seconds);
  if (!timeline) {
    options.engine.timeline.clear();
    options.engine.job_timeline.reset();
  }
  options.engine.location = find_location;
  options.engine.waits = process_waits();
  return options;
}

/// The job around a group of torch's: what it calls the group's ranks (empty: as the group does), and the descriptor of
/// the launcher's pipe.
using JobAround = std::pair<std::vector<int>, std::optional<int>>;

void place_in_job(group::Job& job, const JobAround& around) {
  job.ranks_in_job = around.first;
  if (around.second) job.launcher_pipe = group::LauncherPipe::inherited(*around.second);
}

void announce_end(int descriptor, int rank) {
  if (const auto pipe = group::LauncherPipe::inherited(descriptor)) pipe->ends(rank);
}

RuntimeOwner start(group::Job job, const engine::RuntimeOptions& options) {
  const Logger logger = make_logger(fmt::format("rank {}", job.rank), options.log_level);
  return RuntimeOwner(std::make_unique<engine::Runtime>(group::join_group(job, options.group, logger), options));
}

/// The thread that made it on another one's behalf will use it.
RuntimeOwner used_here(RuntimeOwner runtime) {
  runtime.get().engine().note_this_thread();
  return runtime;
}

RuntimeOwner join_at(int rank, int size, const std::string& rendezvous, const SecretKey& key,
                     std::optional<int> listener, double join_timeout_seconds, double operation_timeout_seconds,
                     bool timeline, const JobAround& around) {
  group::Job job;
  job.rank = rank;
  job.size = size;
  job.rendezvous = net::parse_endpoint(rendezvous);
  job.key = key;
  if (listener) {
    UniqueFd copy(::fcntl(*listener, F_DUPFD_CLOEXEC, 0));
    if (!copy) throw system_error("the listening socket", errno);
    job.listener = std::make_shared<UniqueFd>(std::move(copy));
  }
  place_in_job(job, around);
  if (job.rendezvous.kind == net::Endpoint::Kind::kTcp) group::take_link_settings(job);
  const auto options = options_for(join_timeout_seconds, operation_timeout_seconds, timeline);
  return used_here(run_interruptibly([=] { return start(job, options); }));
}

/// Messages and the runtime whose links they use, which must outlive them.
struct BoundMessages {
  RuntimeOwner runtime;
  ProcessBound<group::PointToPoint> messages;
};

/// For programs that need only this process's rank: see gyre/group/launched_place.h.
void bind_launched_place(nb::module_& module) {
  nb::class_<group::LaunchedPlace>(module, "LaunchedPlace", "What the launcher says of this process.")
      .def_ro("launcher", &group::LaunchedPlace::launcher)
      .def_ro("rank", &group::LaunchedPlace::rank)
      .def_ro("size", &group::LaunchedPlace::size)
      .def_ro("local_size", &group::LaunchedPlace::local_size, "0: unknown.");
  module.def("launched_place", &group::launched_place_from_environment,
             "InvalidArgumentError names a variable that is wrong, or missing where another one is there.");
  module.def("is_started_by_gyre_run", &group::is_started_by_gyre_run);
  nb::class_<group::StorePlace>(module, "StorePlace", "Where the ranks find torch's store.")
      .def_ro("host", &group::StorePlace::host)
      .def_ro("port", &group::StorePlace::port)
      .def_ro("meeting_name", &group::StorePlace::meeting_name);
  module.def("store_place", &group::store_place_from_environment);
  module.def(
      "hand_out_port",
      [](const std::string& name, int size, std::uint16_t port, double seconds) {
        const Deadline deadline = Deadline::after(to_milliseconds(seconds));
        run_interruptibly([=] { group::hand_out_port(name, size, port, deadline); });
      },
      "meeting_name"_a, "size"_a, "port"_a, "seconds"_a);
  module.def(
      "fetch_port",
      [](const std::string& name, int rank, double seconds) {
        const Deadline deadline = Deadline::after(to_milliseconds(seconds));
        return run_interruptibly([=] { return group::fetch_port(name, rank, deadline); });
      },
      "meeting_name"_a, "rank"_a, "seconds"_a);
}

double stall_warning_seconds() {
  return std::chrono::duration<double>(engine::engine_options_from_environment().stall_warning).count();
}

double longest_stall_seconds() {
  const engine::EngineOptions options = engine::engine_options_from_environment();
  const auto longest = options.stall_failure.count() > 0 ? options.stall_failure : options.collective_timeout;
  return std::chrono::duration<double>(longest).count();
}

std::uint8_t to_message_type(int data_type) { return static_cast<std::uint8_t>(to_data_type(data_type)); }

BoundMessages make_messages(const RuntimeOwner& runtime) {
  runtime.get();  // Not in a fork.
  auto messages = run_interruptibly([owner = runtime.shared()] { return owner->open_messages(); });
  return {runtime, ProcessBound<group::PointToPoint>(std::move(messages))};
}

}  // namespace

void bind_distributed(nb::module_& module) {
  bind_launched_place(module);
  module.def("announce_end", &announce_end, "descriptor"_a, "rank"_a,
             "Tells `gyre run`, over GYRE_FAILURE_FD, that this process is about to end. Never fails.");
  module.def("host_id", &group::this_host_id, "Equal for two processes exactly when they can share memory.");
  module.def(
      "is_unknown_host", [](const std::string& host_id) { return group::is_unknown_host(host_id); }, "host_id"_a,
      "Whether the process with this host_id() could not find out which host it is on.");
  module.def("stall_warning_seconds", &stall_warning_seconds,
             "How long a rank waits for another one before a warning says so; 0: no warning.");
  module.def("longest_stall_seconds", &longest_stall_seconds,
             "How long a rank may wait for another one, or for a device, before the job fails; 0: no limit.");
  module.def("join_at", &join_at, nb::kw_only(), "rank"_a, "size"_a, "rendezvous"_a, "key"_a,
             "listener"_a = std::optional<int>(), "join_timeout_seconds"_a, "operation_timeout_seconds"_a, "timeline"_a,
             "around"_a = JobAround(),
             "Joins a job of which everything is known; `listener`: rank 0's socket that listens at `rendezvous`.");
  bind_completion<group::MessageHandle>(module, "MessageHandle", "The outcome of one send or receive. Thread-safe.")
      .def(
          "take_source", [](const group::MessageHandle& self) { return self.take_result().source; },
          "After wait(): the rank that sent it; -1 of a send.");
  nb::class_<BoundMessages>(module, "PointToPoint", "See gyre/group/messages/point_to_point.h. Every rank makes one.")
      .def(nb::new_(&make_messages), "runtime"_a)
      .def(
          "send",
          [](const BoundMessages& self, int peer, std::int64_t tag, int data_type, AddressRange memory) {
            const nb::gil_scoped_release release;  // The first message to a peer opens the link.
            return self.messages.get().send(peer, tag, to_message_type(data_type), to_span(memory));
          },
          "peer"_a, "tag"_a, "data_type"_a, "memory"_a)
      .def(
          "receive",
          [](const BoundMessages& self, std::optional<int> peer, std::int64_t tag, int data_type, AddressRange memory) {
            return self.messages.get().receive(peer, tag, to_message_type(data_type), to_span(memory));
          },
          "peer"_a.none(), "tag"_a, "data_type"_a, "memory"_a)
      .def("shutdown", [](const BoundMessages& self) {
        group::PointToPoint& messages = self.messages.get();
        const nb::gil_scoped_release released;
        messages.shutdown();
      });
}

}  // namespace gyre::python
