#include "gyre/jobs/drivers/slurm/driver.h"

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
#include "gyre/jobs/drivers/internal/orders.h"
#include "gyre/jobs/drivers/slurm/internal/queue.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"
#include "gyre/jobs/drivers/slurm/internal/service_place.h"
#include "gyre/jobs/drivers/slurm/internal/strays.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/resources/job_end.h"

namespace gyre::jobs::drivers::slurm {

namespace {

namespace fs = std::filesystem;
using Clock = SteadyClock;

constexpr int kMostNodes = 4096;
constexpr std::chrono::milliseconds kSlice{200};
constexpr std::chrono::seconds kStopPatience{30};  // Beyond the grace, with node programs that were told to stop.
constexpr std::chrono::seconds kLongestLeave{5};   // Of node programs, when the service ends.

/// What programs of a login need; nothing else of the service's environment gets into Slurm's records.
node::Variables for_slurm(const node::Variables& all) {
  constexpr std::array kNames = {"PATH", "HOME",        "USER",       "LOGNAME",         "SHELL",     "LANG",
                                 "TZ",   "VIRTUAL_ENV", "SLURM_CONF", "LD_LIBRARY_PATH", "PYTHONPATH"};
  node::Variables some;
  for (const auto& [name, value] : all) {
    if (std::ranges::find(kNames, name) != kNames.end() || name.starts_with("LC_")) some[name] = value;
  }
  return some;
}

/// As the end of a sentence.
std::string shown_words(const std::string& comment) {
  const std::string words = words_in(comment);
  return words.empty() ? "" : fmt::format("; the last words of its output: {}", words);
}

}  // namespace

class SlurmDriver::Work {
 public:
  explicit Work(const SlurmOptions& options)
      : options_(options),
        name_(name_of_service(options_)),
        home_(home_of(options_)),
        shared_(own_shared_folder(options_, name_)),
        key_(key_in(home_.key())),
        hub_(make_hub(options_, key_, home_)),
        queue_(Commands(for_slurm(options_.environment)), options_.poll, options_.logger),
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
    std::string arguments = "sbatch";
    for (const std::string& argument : sbatch_arguments(options_, home_, service_, whole)) arguments += " " + argument;
    return {{"sbatch", arguments + "\n"}, {"batch.sh", batch_script(options_, service_, whole, "(the attempt's key)")}};
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
      queue_.submit({attempt, job_name(attempt), {}, first_line_of(home_.slurm_job(attempt)), true});
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
    return slurm::end_strays(Commands(for_slurm(options_.environment)), name_, jobs, in_hand);
  }

  const SlurmOptions& options() const { return options_; }

 private:
  struct Attempt {
    WorkOrder order;
    bool taken_over = false;     ///< From a service before us.
    std::set<std::string> came;  ///< Node programs.
    bool complete = false;       ///< All of them came at some time.
    bool ended = false;
    std::optional<StopReason> stop;
    std::optional<Clock::time_point> cancel_at;
    std::optional<Clock::time_point> runs_since;  ///< Slurm's job.
    std::string slurm_job;
    bool over = false;          ///< Slurm's job.
    std::optional<Event> held;  ///< An end that must not be told before Slurm's job is over.
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
    std::string key = hex_of(hub::key_of_nodes(key_, name));
    const WipedAtEnd wiped(key);
    write_text(home_.batch_script(name), batch_script(options_, service_, order, key));
    hub_->submit(order);
    queue_.submit({name, job_name(name), sbatch_arguments(options_, home_, service_, order),
                   first_line_of(home_.slurm_job(name)), known});
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
      // A node is a name here; what was lost is Slurm's, and the attempt's end says so.
      if (event.kind == Kind::kNodeLost) return;
    }
    if (event.kind == Kind::kEnded) {
      const auto found = attempts_.find(event.attempt);
      if (found == attempts_.end()) return;
      found->second.ended = true;
      keep_records(event);
      // What could not say that it has ended may still run, until Slurm has ended it.
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
        attempt.slurm_job = sighting.text;
        keep_note(home_.slurm_job(sighting.attempt), sighting.text);
        return note(fmt::format("it is job {} of Slurm", sighting.text));
      case Kind::kWaits: return note(fmt::format("Slurm's job {} waits: {}", attempt.slurm_job, sighting.text));
      case Kind::kUnreachable: return note(fmt::format("Slurm does not answer; it is asked again: {}", sighting.text));
      case Kind::kRuns:
        attempt.runs_since = Clock::now();
        keep_note(home_.begun(sighting.attempt), sighting.text);
        return note(fmt::format("Slurm's job {} runs on {}", attempt.slurm_job, sighting.text));
      case Kind::kRefused:
        attempt.over = true;
        return end_all(attempt, record_of_error(fmt::format("Slurm refuses the job: {}", sighting.text)));
      case Kind::kOver:
        attempt.over = true;
        if (attempt.held) told.push_back(*std::exchange(attempt.held, std::nullopt));
        return settle(attempt, sighting.text, sighting.comment);
      case Kind::kGone: return;
    }
  }

  /// What would be lost with this service alone, before anybody hears of the end: Slurm's job may go any time.
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

  static orders::ExitRecord record_of_error(const std::string& message) {
    orders::ExitRecord record;
    record.exit_code = resources::kNotTheJobsExitCode;
    record.error = resources::ResourceError{resources::error_code::kInternal, message, {{"engine", "slurm"}}};
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

  /// Slurm's job is over: no node program will come any more, and what they have left written is all there is.
  void settle(const Attempt& attempt, const std::string& state, const std::string& comment) {
    const std::string& name = attempt.order.attempt;
    std::error_code ignored;
    const bool began = fs::exists(home_.begun(name), ignored) || attempt.complete;
    const std::string what =
        fmt::format("Slurm's job {} is over ({}){}", attempt.slurm_job, state, shown_words(comment));
    for (const orders::NodePlace& node : attempt.order.nodes) {
      if (const auto report = stored_report(name, node)) {
        hub_->report(node.registered_name(), *report);
      } else if (attempt.stop && !began) {
        end_node(attempt, node, record_of_stop(*attempt.stop));
      } else if (attempt.stop || is_loss(state) || state == "COMPLETED" ||
                 (state == "UNKNOWN" && (began || attempt.taken_over))) {
        // Node programs end by themselves, and well, only when they have not found the service for long.
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
                        fmt::format("its agent has not come although Slurm's job {} runs; can the nodes reach {}?",
                                    attempt.slurm_job, net::to_string(service_.place)));
      }
    }
  }

  const SlurmOptions options_;
  const std::string name_;
  const Home home_;
  const fs::path shared_;
  const net::JobKey key_;
  const std::unique_ptr<hub::Hub> hub_;
  Service service_;
  Queue queue_;
  UniqueFd epoll_;
  std::map<std::string, Attempt> attempts_;  // Whose end is not acknowledged.
  std::set<std::string> forgotten_;          // Acknowledged, and not over in Slurm.
};

SlurmDriver::SlurmDriver(const SlurmOptions& options) : work_(std::make_unique<Work>(options)) {}
SlurmDriver::~SlurmDriver() = default;

orders::NodePlace SlurmDriver::place(const std::string& node, std::int64_t /*number*/) const {
  return {.id = node, .address = "", .cores = 1, .gpus = 0, .registered_as = ""};
}
void SlurmDriver::check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const {
  const auto gres = cluster.gyre.driver_options.find("gres");
  if (!job.gpus_per_node || gres == cluster.gyre.driver_options.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("it asks for a number of GPUs (gpusPerNode), and the cluster asks Slurm for '{}' for all of "
                          "its jobs (driverOptions.gres)",
                          gres->second));
}
WorkOrder SlurmDriver::completed(WorkOrder order) const { return work_->completed(std::move(order)); }
node::NodeFolders SlurmDriver::folders(const WorkOrder& order) const {
  return node::NodeFolders(node_root(work_->options(), order.attempt));
}
int SlurmDriver::most_nodes() const { return kMostNodes; }
std::vector<Artifact> SlurmDriver::plan(const WorkOrder& order) const { return work_->plan(order); }
void SlurmDriver::submit(const WorkOrder& order) { work_->submit(order); }
std::vector<Event> SlurmDriver::watch(Deadline deadline) { return work_->watch(deadline); }
int SlurmDriver::fd() const { return work_->fd(); }
void SlurmDriver::cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  work_->cancel(attempt, reason, grace);
}
void SlurmDriver::reattach(const std::vector<WorkOrder>& orders) { work_->reattach(orders); }
AtNodes SlurmDriver::at_nodes(const std::vector<WorkOrder>& asked) const { return work_->at_nodes(asked); }
std::string SlurmDriver::end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) {
  return work_->end_strays(jobs, in_hand);
}
void SlurmDriver::acknowledge(const std::string& attempt) { work_->acknowledge(attempt); }

}  // namespace gyre::jobs::drivers::slurm
