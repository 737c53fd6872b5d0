#include "gyre/jobs/drivers/slurm/driver.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/drivers/internal/orders.h"
#include "gyre/jobs/drivers/slurm/internal/queue.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"
#include "gyre/jobs/drivers/slurm/internal/strays.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::drivers::slurm {

namespace {

namespace fs = std::filesystem;
using Clock = SteadyClock;

constexpr int kMostNodes = 4096;
constexpr std::chrono::milliseconds kSlice{200};
constexpr std::chrono::seconds kStopPatience{30};  // Beyond the grace, with node programs that were told to stop.
constexpr std::chrono::seconds kLongestLeave{5};   // Of node programs, when the service ends.
constexpr std::size_t kMostWords = 600;

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

void write_text(const fs::path& file, const std::string& text) { write_file_atomically(file, as_bytes(text)); }

/// A folder of this service's own in the shared one; the same again after a restart.
fs::path home_of(const SlurmOptions& options) {
  std::error_code failure;
  if (!fs::is_directory(options.shared_folder, failure)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("driverOptions.shared_folder: {} is not a directory on the service's host",
                            options.shared_folder.string()));
  }
  fs::create_directories(options.folder);
  const fs::path note = options.folder / "shared_folder";
  std::string name;
  std::getline(std::ifstream(note), name);
  if (!orders::is_plain_name(name)) {
    name = "gyre-" + hex_of(net::make_random_key()).substr(0, 16);
    write_text(note, name + "\n");
  }
  const fs::path home = options.shared_folder / name;
  fs::create_directories(home / "attempts");
  // Jobs may run as another user and have to reach their own part.
  fs::permissions(home, fs::perms(0711));
  return home;
}

std::string own_address(const SlurmOptions& options) {
  if (!options.address.empty()) return options.address;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw system_error("cannot tell this host's name", errno);
  return name.data();
}

hub::HubOptions hub_options(const SlurmOptions& options, const net::JobKey& key) {
  hub::HubOptions hub;
  const std::string address = own_address(options);
  // A host's own name often leads to itself alone.
  hub.endpoint = {net::Endpoint::Kind::kTcp, orders::is_numeric_address(address) ? address : "0.0.0.0",
                  static_cast<std::uint16_t>(options.port)};
  hub.key = key;
  hub.lease = options.lease;
  hub.margin = options.margin;
  hub.longest_start = std::chrono::milliseconds(0);  // An attempt may wait in Slurm's queue for days.
  hub.logs = options.logs;
  hub.logger = options.logger;
  return hub;
}

/// The last words of Slurm and of node programs that could not start.
std::string end_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return "";
  stream.seekg(0, std::ios::end);
  const auto size = static_cast<std::size_t>(stream.tellg());
  const std::size_t from = size > kMostWords ? size - kMostWords : 0;
  stream.seekg(static_cast<std::streamoff>(from));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? "" : fmt::format("; the last words of its output: {}", text);
}

}  // namespace

class SlurmDriver::Work {
 public:
  explicit Work(const SlurmOptions& options)
      : options_(options),
        home_(home_of(options_)),
        key_(key_in(home_.key())),
        hub_(hub_options(options_, key_)),
        queue_(Commands(for_slurm(options_.environment)), options_.poll, options_.logger),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw system_error("cannot wait for events", errno);
    for (const int fd : {hub_.fd(), queue_.fd()}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        throw system_error("cannot wait for events", errno);
    }
    const net::Endpoint here{net::Endpoint::Kind::kTcp, own_address(options_), hub_.endpoint().port};
    write_text(home_.service(), net::to_string(here) + "\n");
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
    if (attempts_.empty() && fs::is_empty(home_.attempts(), failure) && !failure) {
      fs::remove_all(home_.folder(), failure);
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  WorkOrder completed(WorkOrder order) const {
    order.shared_folder = home_.shared(order.attempt).string();
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
    for (const std::string& argument : sbatch_arguments(options_, home_, whole)) arguments += " " + argument;
    return {{"sbatch", arguments + "\n"},
            {"batch.sh", batch_script(home_, whole)},
            {"node.sh", node_script(options_, home_, whole)}};
  }

  void submit(const WorkOrder& order) {
    static_cast<void>(plan(order));
    make_log_folder(options_.logs.folder, completed(order), node::NodeFolders(node_root(options_, order.attempt)));
    take(order, false);
    hub_.admit();
  }

  void reattach(const std::vector<WorkOrder>& orders) {
    for (const WorkOrder& order : orders) take(order, true);
    hub_.admit();
    // What was acknowledged just before the service died may not have left yet.
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(home_.attempts(), ignored)) {
      const std::string attempt = entry.path().filename();
      if (attempts_.contains(attempt) || forgotten_.contains(attempt)) continue;
      queue_.submit({attempt, job_name(attempt), {}, home_.started(attempt), true});
      forget(attempt);
    }
  }

  std::vector<Event> watch(Deadline deadline) {
    std::vector<Event> told;
    do {
      pollfd wait{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms(static_cast<int>(kSlice.count())));
      for (Event& event : hub_.take_events(Deadline::after(std::chrono::milliseconds(0)))) hear(std::move(event), told);
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
    hub_.stop(name, reason, grace);
    // Where no node program can say how it goes, nothing has begun.
    if (!attempt.complete && !attempt.taken_over) return queue_.cancel(name);
    attempt.cancel_at = Clock::now() + grace + kStopPatience;
  }

  void acknowledge(const std::string& name) {
    const auto found = attempts_.find(name);
    if (found == attempts_.end()) return;
    hub_.acknowledge(name);
    for (const orders::NodePlace& node : found->second.order.nodes) hub_.dismiss(node.registered_name());
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
    return slurm::end_strays(Commands(for_slurm(options_.environment)), options_.shared_folder, home_, jobs, in_hand);
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
    write_text(home_.batch_script(name), batch_script(home_, order));
    write_text(home_.node_script(name), node_script(options_, home_, order));
    hub_.submit(order);
    queue_.submit({name, job_name(name), sbatch_arguments(options_, home_, order), home_.started(name), known});
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
        return note(fmt::format("it is job {} of Slurm", sighting.text));
      case Kind::kWaits: return note(fmt::format("Slurm's job {} waits: {}", attempt.slurm_job, sighting.text));
      case Kind::kUnreachable: return note(fmt::format("Slurm does not answer; it is asked again: {}", sighting.text));
      case Kind::kRuns:
        attempt.runs_since = Clock::now();
        return note(fmt::format("Slurm's job {} runs on {}", attempt.slurm_job, sighting.text));
      case Kind::kRefused:
        attempt.over = true;
        return end_all(attempt, record_of_error(fmt::format("Slurm refuses the job: {}", sighting.text)));
      case Kind::kOver:
        attempt.over = true;
        if (attempt.held) told.push_back(*std::exchange(attempt.held, std::nullopt));
        return settle(attempt, sighting.text);
      case Kind::kGone: return;
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
    hub_.report(node.registered_name(), report);
  }

  void end_all(const Attempt& attempt, const orders::ExitRecord& record) {
    for (const orders::NodePlace& node : attempt.order.nodes) end_node(attempt, node, record);
  }

  /// Slurm's job is over: no node program will come any more, and what they have left written is all there is.
  void settle(const Attempt& attempt, const std::string& state) {
    const std::string& name = attempt.order.attempt;
    std::error_code ignored;
    const bool began = fs::exists(home_.started(name), ignored) || attempt.complete;
    const std::string what =
        fmt::format("Slurm's job {} is over ({}){}", attempt.slurm_job, state, end_of(home_.output(name)));
    for (const orders::NodePlace& node : attempt.order.nodes) {
      if (const auto report = stored_report(name, node)) {
        hub_.report(node.registered_name(), *report);
      } else if (attempt.stop && !began) {
        end_node(attempt, node, record_of_stop(*attempt.stop));
      } else if (attempt.stop || is_loss(state) || state == "COMPLETED" || (state == "UNKNOWN" && began)) {
        // Node programs end by themselves, and well, only when they have not found the service for long.
        hub_.lose_node(node.registered_name(), what);
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
        hub_.lose_node(node.registered_name(),
                       fmt::format("its agent has not come although Slurm's job {} runs; can the nodes reach {}?{}",
                                   attempt.slurm_job, own_address(options_), end_of(home_.output(name))));
      }
    }
  }

  const SlurmOptions options_;
  const Home home_;
  const net::JobKey key_;
  hub::Hub hub_;
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
