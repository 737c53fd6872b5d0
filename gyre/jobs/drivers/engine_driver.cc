#include "gyre/jobs/drivers/engine_driver.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/secret_key.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/drivers/internal/engine_queue.h"
#include "gyre/jobs/drivers/internal/home.h"
#include "gyre/jobs/drivers/internal/orders.h"
#include "gyre/jobs/drivers/internal/service_place.h"
#include "gyre/jobs/drivers/internal/strays.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/resources/job_end.h"

namespace gyre::jobs::drivers {

namespace {

namespace fs = std::filesystem;
using Clock = SteadyClock;

constexpr std::chrono::milliseconds kSlice{200};
constexpr std::chrono::seconds kStopPatience{30};  // Beyond the grace, with node programs that were told to stop.
constexpr std::chrono::seconds kLongestLeave{5};   // Of node programs, when the service ends.

/// As the end of a sentence.
std::string shown_words(const std::string& words) { return words.empty() ? "" : ": " + words; }

/// A node's loss, with what the engine has to say about it: which host it was, say.
Event with_words(Event event, const Sighting& sighting) {
  if (event.result->error) event.result->error->message += shown_words(sighting.last_words);
  return event;
}

}  // namespace

class EngineDriver::Work {
 public:
  Work(std::string kind, const EngineOptions& options, std::shared_ptr<NodeEngine> engine)
      : kind_(std::move(kind)),
        options_(options),
        engine_(std::move(engine)),
        home_(made_home(options_, kind_)),
        name_(name_of_service(home_)),
        shared_(own_shared_folder(options_, name_)),
        key_(key_in(home_.key())),
        hub_(make_hub(options_, key_, home_)),
        queue_(engine_, {options_.poll, options_.outage_pause}, options_.logger),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw system_error("cannot wait for events", errno);
    for (const int fd : {hub_->fd(), queue_.fd()}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        throw system_error("cannot wait for events", errno);
    }
    service_ = {.name = name_, .place = {net::Endpoint::Kind::kTcp, own_address(options_), hub_->endpoint().port}};
    write_text(home_.port(), fmt::format("{}\n", service_.place.port));
  }

  ~Work() {
    // What was acknowledged is about to leave.
    const Deadline deadline = Deadline::after(kLongestLeave);
    std::vector<Event> untold;
    while (!forgotten_.empty() && !deadline.passed()) {
      pollfd wait{.fd = queue_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms());
      for (const Sighting& sighting : queue_.take()) see(sighting, untold);
    }
    std::error_code failure;
    if (attempts_.empty() && !shared_.empty()) fs::remove(shared_, failure);  // If it is empty.
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  WorkOrder completed(WorkOrder order) const {
    order.shared_folder = shared_.empty() ? (node_root(options_, order.attempt) / "job_shared").string()
                                          : (shared_ / order.attempt / "shared").string();
    order.sends_logs = !options_.logs.folder.empty();
    order.key = key_of_attempt(key_, order.attempt);
    order.node = 0;
    for (std::size_t node = 0; node < order.nodes.size(); ++node) {
      order.nodes[node].registered_as = registered_name(order.attempt, static_cast<int>(node));
    }
    return order;
  }

  std::vector<Artifact> plan(const WorkOrder& order) const {
    const WorkOrder whole = completed(order);
    check_order(whole, node::NodeFolders(node_root(options_, whole.attempt)));
    return engine_->describe(request_for(whole));
  }

  void submit(const WorkOrder& order) {
    static_cast<void>(plan(order));
    make_log_folder(options_.logs.folder, completed(order), node::NodeFolders(node_root(options_, order.attempt)));
    take(order, false);
    hub_->admit();
  }

  void reattach(const std::vector<WorkOrder>& orders) {
    for (const WorkOrder& order : orders) take(order, true);
    hub_->admit();
    // What was acknowledged just before the service died may not have left yet.
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(home_.attempts(), ignored)) {
      const std::string attempt = entry.path().filename();
      if (attempts_.contains(attempt) || forgotten_.contains(attempt)) continue;
      WorkOrder order;
      order.attempt = attempt;
      queue_.submit({request_for(order), first_line_of(home_.holding(attempt)), true});
      forget(attempt);
    }
  }

  std::vector<Event> watch(Deadline deadline) {
    std::vector<Event> told;
    do {
      pollfd wait{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms(static_cast<int>(kSlice.count())));
      for (Event& event : hub_->take_events(Deadline::after(std::chrono::milliseconds(0))))
        hear(std::move(event), told);
      for (const Sighting& sighting : queue_.take()) see(sighting, told);
      look_at_clock();
    } while (told.empty() && !deadline.passed());
    return told;
  }

  int fd() const { return epoll_.get(); }

  std::shared_ptr<hub::NodeStream> open_stream(const orders::StreamRequest& request, std::size_t node) {
    return hub_->open_stream(request, node);
  }

  void cancel(const std::string& name, StopReason reason, std::chrono::seconds grace) {
    const auto found = attempts_.find(name);
    if (found == attempts_.end() || found->second.ended) return;
    Attempt& attempt = found->second;
    if (!attempt.stop) attempt.stop = reason;
    hub_->stop(name, reason, grace);
    // Where no node program can say how it goes, nothing has begun.
    if (!attempt.complete && !attempt.taken_over) return queue_.cancel(name);
    attempt.cancel_at = Clock::now() + grace + kStopPatience;
  }

  void acknowledge(const std::string& name) {
    const auto found = attempts_.find(name);
    if (found == attempts_.end()) return;
    hub_->acknowledge(name);
    for (const orders::NodePlace& node : found->second.order.nodes) hub_->dismiss(node.registered_name());
    attempts_.erase(found);
    forget(name);
  }

  AtNodes at_nodes(const std::vector<WorkOrder>& asked) const {
    AtNodes found;
    std::error_code ignored;
    for (const WorkOrder& order : asked) {
      if (fs::exists(home_.attempt(order.attempt), ignored)) found.known.insert(order.attempt);
    }
    return found;
  }

  std::string end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) const {
    return drivers::end_strays(*engine_, name_, jobs, in_hand);
  }

  const EngineOptions& options() const { return options_; }
  NodeEngine& engine() const { return *engine_; }

 private:
  struct Attempt {
    WorkOrder order;
    bool taken_over = false;     ///< From a service before us.
    std::set<std::string> came;  ///< Node programs.
    bool complete = false;       ///< All of them came at some time.
    bool ended = false;
    std::optional<StopReason> stop;
    std::optional<Clock::time_point> cancel_at;
    std::optional<Clock::time_point> runs_since;  ///< The engine's.
    std::string id;                               ///< The engine's.
    bool over = false;                            ///< For the engine.
    std::optional<Event> held;                    ///< An end that must not be told before then.
  };

  void take(const WorkOrder& incomplete, bool known) {
    if (attempts_.contains(incomplete.attempt)) return;
    const WorkOrder order = completed(incomplete);
    const std::string& name = order.attempt;
    Attempt& attempt = attempts_[name];
    attempt.order = order;
    attempt.taken_over = known;
    fs::create_directories(home_.records(name));
    fs::permissions(home_.records(name), fs::perms::owner_all);
    if (!shared_.empty()) {
      fs::create_directories(shared_ / name);
      fs::permissions(shared_ / name, fs::perms(0711));
    }
    hub_->submit(order);
    NodeRequest request = request_for(order);
    request.key = hub::key_of_nodes(key_, name);
    queue_.submit({std::move(request), first_line_of(home_.holding(name)), known});
  }

  /// Without its key.
  NodeRequest request_for(const WorkOrder& order) const {
    return {.name = request_name(order.attempt),
            .order = order,
            .service = service_,
            .key = {},
            .folder = home_.attempt(order.attempt)};
  }

  void forget(const std::string& attempt) {
    forgotten_.insert(attempt);
    queue_.forget(attempt);
  }

  Attempt* attempt_of_program(const std::string& program, std::string* node) {
    for (auto& [name, attempt] : attempts_) {
      for (const orders::NodePlace& place : attempt.order.nodes) {
        if (place.registered_name() != program) continue;
        *node = place.id;
        return &attempt;
      }
    }
    return nullptr;
  }

  void hear(Event event, std::vector<Event>& told) {
    using Kind = Event::Kind;
    if (event.kind == Kind::kNodeCame || event.kind == Kind::kNodeGone || event.kind == Kind::kNodeLost) {
      const std::string program = event.node;
      Attempt* attempt = attempt_of_program(program, &event.node);
      if (attempt == nullptr) return;
      if (event.kind == Kind::kNodeCame) attempt->came.insert(program);
      attempt->complete = attempt->complete || attempt->came.size() == attempt->order.nodes.size();
      // A node is a name here; what was lost is the engine's, and the attempt's end says so.
      if (event.kind == Kind::kNodeLost) return;
    }
    if (event.kind == Kind::kEnded) {
      const auto found = attempts_.find(event.attempt);
      if (found == attempts_.end()) return;
      found->second.ended = true;
      keep_records(event);
      // What could not say that it has ended may still run, until the engine has ended it.
      if (!event.result->lost.empty() && !found->second.over) {
        found->second.held = std::move(event);
        return queue_.cancel(found->first);
      }
    }
    told.push_back(std::move(event));
  }

  void see(const Sighting& sighting, std::vector<Event>& told) {
    using Kind = Sighting::Kind;
    if (sighting.kind == Kind::kGone) {
      forgotten_.erase(sighting.attempt);
      std::error_code ignored;
      fs::remove_all(home_.attempt(sighting.attempt), ignored);
      if (!shared_.empty()) fs::remove_all(shared_ / sighting.attempt, ignored);
      return;
    }
    const auto found = attempts_.find(sighting.attempt);
    if (found == attempts_.end()) return;
    Attempt& attempt = found->second;
    const auto note = [&](const std::string& text) {
      if (!attempt.ended) told.push_back({Event::Kind::kNote, sighting.attempt, "", text, std::nullopt});
    };
    switch (sighting.kind) {
      case Kind::kSubmitted:
        attempt.id = sighting.text;
        keep_note(home_.holding(sighting.attempt), sighting.text);
        if (engine_->shows_ids()) note(fmt::format("it is {}", job_of(attempt)));
        return;
      case Kind::kWaits: return note(fmt::format("{} waits: {}", job_of(attempt), sighting.text));
      case Kind::kUnreachable:
        return note(fmt::format("{} does not answer; it is asked again: {}", engine_->title(), sighting.text));
      case Kind::kRuns:
        attempt.runs_since = Clock::now();
        keep_note(home_.begun(sighting.attempt), sighting.text);
        return note(fmt::format("{} runs on {}", job_of(attempt), sighting.text));
      case Kind::kRefused:
        attempt.over = true;
        return end_all(attempt,
                       record_of_error(fmt::format("{} refuses the job: {}", engine_->title(), sighting.text)));
      case Kind::kOver:
        attempt.over = true;
        if (attempt.held) told.push_back(with_words(*std::exchange(attempt.held, std::nullopt), sighting));
        return settle(attempt, sighting);
      case Kind::kGone: return;
    }
  }

  /// "Slurm's job 17"
  std::string job_of(const Attempt& attempt) const {
    return engine_->shows_ids() ? fmt::format("{}'s job {}", engine_->title(), attempt.id) : "the attempt";
  }

  /// What would be lost with this service alone, before anybody hears of the end: the nodes may go any time.
  void keep_records(const Event& event) const {
    for (const auto& [node, report] : event.reports) {
      const auto text = to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      keep_note(home_.records(event.attempt) / (node + ".json"), text);
    }
  }

  void keep_note(const fs::path& file, const std::string& text) const {
    try {
      write_text(file, text + "\n");
    } catch (const Error& error) {
      options_.logger->warn("{}", error.what());  // It is needed after a restart only.
    }
  }

  orders::ExitRecord record_of_error(const std::string& message) const {
    orders::ExitRecord record;
    record.exit_code = resources::kNotTheJobsExitCode;
    record.error = resources::ResourceError{resources::error_code::kInternal, message, {{"engine", kind_}}};
    record.started_us = record.ended_us = wall_clock_us();
    return record;
  }

  /// Of a node on which nothing had begun when the attempt was to end.
  static orders::ExitRecord record_of_stop(StopReason reason) {
    orders::ExitRecord record;
    record.exit_code = resources::kTerminatedExitCode;
    record.asked_to_end = true;
    if (reason == StopReason::kRequest || reason == StopReason::kWallClock) {
      record.error = resources::ResourceError{
          resources::error_code::kJobFailed, "the job was terminated", {{"reason", name_of(reason)}}};
    }
    record.started_us = record.ended_us = wall_clock_us();
    return record;
  }

  void end_node(const Attempt& attempt, const orders::NodePlace& node, const orders::ExitRecord& record) {
    orders::NodeReport report;
    report.attempt = attempt.order.attempt;
    report.phase = orders::Phase::kEnded;
    report.record = record;
    hub_->report(node.registered_name(), report);
  }

  void end_all(const Attempt& attempt, const orders::ExitRecord& record) {
    for (const orders::NodePlace& node : attempt.order.nodes) end_node(attempt, node, record);
  }

  /// The engine runs nothing of it any more: no node program will come, and what they have left written is all there
  /// is.
  void settle(const Attempt& attempt, const Sighting& sighting) {
    using End = Sighting::End;
    const std::string& name = attempt.order.attempt;
    std::error_code ignored;
    const bool began = fs::exists(home_.begun(name), ignored) || attempt.complete;
    const std::string what =
        fmt::format("{} is over ({}){}", job_of(attempt), sighting.text, shown_words(sighting.last_words));
    // Node programs end by themselves, and well, only when they have not found the service for long.
    const bool lost = sighting.end == End::kLost || (sighting.end == End::kUnknown && (began || attempt.taken_over));
    for (const orders::NodePlace& node : attempt.order.nodes) {
      if (const auto report = stored_report(name, node)) {
        hub_->report(node.registered_name(), *report);
      } else if (attempt.stop && !began) {
        end_node(attempt, node, record_of_stop(*attempt.stop));
      } else if (attempt.stop || lost) {
        hub_->lose_node(node.registered_name(), what);
      } else {
        // Somebody has cancelled it, or the node program cannot start: it would not go better again.
        end_node(attempt, node, record_of_error(what));
      }
    }
  }

  std::optional<orders::NodeReport> stored_report(const std::string& attempt, const orders::NodePlace& node) const {
    const fs::path file = home_.records(attempt) / (node.registered_name() + ".json");
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return std::nullopt;
    try {
      orders::NodeReport report = orders::read_node_report(file);
      report.sends_logs = false;  // The node program has gone.
      return report;
    } catch (const Error& error) {
      options_.logger->error("the record {} cannot be read: {}", file.string(), error.what());
      return std::nullopt;
    }
  }

  void look_at_clock() {
    const auto now = Clock::now();
    for (auto& [name, attempt] : attempts_) {
      if (attempt.ended || attempt.over) continue;
      if (attempt.cancel_at && now >= *attempt.cancel_at) {
        attempt.cancel_at.reset();
        queue_.cancel(name);
      }
      const bool late = attempt.runs_since && now - *attempt.runs_since >= options_.longest_start;
      if (!late || attempt.came.size() == attempt.order.nodes.size()) continue;
      attempt.runs_since.reset();
      for (const orders::NodePlace& node : attempt.order.nodes) {
        if (attempt.came.contains(node.registered_name())) continue;
        hub_->lose_node(node.registered_name(),
                        fmt::format("its agent has not come although {} runs; can the nodes reach {}?", job_of(attempt),
                                    net::to_string(service_.place)));
      }
    }
  }

  const std::string kind_;
  const EngineOptions options_;
  const std::shared_ptr<NodeEngine> engine_;
  const Home home_;
  const std::string name_;
  const fs::path shared_;
  const net::JobKey key_;
  const std::unique_ptr<hub::Hub> hub_;
  Service service_;
  EngineQueue queue_;
  UniqueFd epoll_;
  std::map<std::string, Attempt> attempts_;  // Whose end is not acknowledged.
  std::set<std::string> forgotten_;          // Acknowledged, and not over for the engine.
};

EngineDriver::EngineDriver(std::string kind, const EngineOptions& options, std::shared_ptr<NodeEngine> engine)
    : work_(std::make_unique<Work>(std::move(kind), options, std::move(engine))) {}
EngineDriver::~EngineDriver() = default;

orders::NodePlace EngineDriver::place(const std::string& node, std::int64_t /*number*/) const {
  return {.id = node, .address = "", .cores = 1, .gpus = 0, .registered_as = ""};
}
void EngineDriver::check(const spec::ClusterSpec& /*cluster*/) const {
  std::string all;
  for (const Missing& missing : work_->engine().check()) {
    all += fmt::format("{}{} ({})", all.empty() ? "" : "; ", missing.what, missing.remedy);
  }
  if (!all.empty()) throw Error(ErrorCode::kUnsupported, all);
}
std::optional<std::string> EngineDriver::image_digest(const spec::JobSpec& job,
                                                      const spec::ClusterSpec& cluster) const {
  if (!job.container_settings || cluster.gyre.containers != spec::Containers::kContainer) return std::nullopt;
  if (job.container_settings->image.empty()) return std::nullopt;  // A Dockerfile names others.
  const std::vector<std::string> environment =
      containers::runtime_environment(node::as_entries(work_->options().environment));
  return containers::digest_in_registry(node::image_of(*job.container_settings), work_->options().folder, environment);
}
WorkOrder EngineDriver::completed(WorkOrder order) const { return work_->completed(std::move(order)); }
node::NodeFolders EngineDriver::folders(const WorkOrder& order) const {
  return node::NodeFolders(node_root(work_->options(), order.attempt));
}
std::vector<std::string> EngineDriver::node_problems() const { return work_->engine().node_problems(); }
int EngineDriver::most_nodes() const { return work_->engine().capacity().most_nodes; }
std::vector<Artifact> EngineDriver::plan(const WorkOrder& order) const { return work_->plan(order); }
void EngineDriver::submit(const WorkOrder& order) { work_->submit(order); }
std::vector<Event> EngineDriver::watch(Deadline deadline) { return work_->watch(deadline); }
int EngineDriver::fd() const { return work_->fd(); }
std::shared_ptr<hub::NodeStream> EngineDriver::open_stream(const orders::StreamRequest& request, std::size_t node) {
  return work_->open_stream(request, node);
}
void EngineDriver::cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  work_->cancel(attempt, reason, grace);
}
void EngineDriver::reattach(const std::vector<WorkOrder>& orders) { work_->reattach(orders); }
AtNodes EngineDriver::at_nodes(const std::vector<WorkOrder>& asked) const { return work_->at_nodes(asked); }
std::string EngineDriver::end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) {
  return work_->end_strays(jobs, in_hand);
}
void EngineDriver::acknowledge(const std::string& attempt) { work_->acknowledge(attempt); }

}  // namespace gyre::jobs::drivers
