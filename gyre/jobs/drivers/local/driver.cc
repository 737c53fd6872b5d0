#include "gyre/jobs/drivers/local/driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/drivers/internal/orders.h"
#include "gyre/jobs/node/detached_program.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/node/strays.h"

namespace gyre::jobs::drivers::local {

namespace {

namespace fs = std::filesystem;
using orders::NodePlace;

constexpr int kFirstAddress = 2;  // 127.0.0.1 is everybody's.
/// At what is left of a lost node.
constexpr std::chrono::milliseconds kBetweenLooks{50};
/// Until the job's events say what does not end.
constexpr std::chrono::seconds kLongestQuietEnding{10};

internal::FoundGpus search_gpus(const node::Variables& environment, spdlog::logger& logger) {
  internal::FoundGpus found = internal::find_machine_gpus(environment);
  if (!found.problem.empty()) {
    logger.warn("this machine's GPUs cannot be counted, and jobs see all of them: {}", found.problem);
  }
  return found;
}

/// The same for equal tables of mounts, and for no others: nodes without mount namespaces share the links below it.
std::string name_of_mounts(const WorkOrder& order) {
  std::string text;
  for (const auto& [name, directory] : order.cluster.gyre.mounts) text += fmt::format("{}\n{}\n", name, directory);
  return fmt::format("{:016x}", xxh3_64(as_bytes(text)));
}

}  // namespace

std::vector<NodePlace> local_nodes(int count) {
  if (count < 1 || count > kMostNodes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("this machine can be 1 to {} nodes, not {}", kMostNodes, count));
  }
  std::vector<NodePlace> nodes;
  for (int i = 0; i < count; ++i) {
    nodes.push_back({fmt::format("node-{}", i), fmt::format("127.0.0.{}", kFirstAddress + i), usable_cores(), 0});
  }
  return nodes;
}

LocalDriver::LocalDriver(const LocalOptions& options)
    : options_(options), gpus_(search_gpus(options.environment, *options.logger)) {
  fs::create_directories(options_.folder / "nodes");
  key_ = key_in(options_.folder / "agents.key");
  hub::HubOptions hub;
  hub.endpoint = {net::Endpoint::Kind::kUnix, (options_.folder / "hub.sock").string(), 0};
  hub.key = key_;
  hub.lease = options_.lease;
  hub.margin = options_.margin;
  hub.longest_start = options_.longest_start;
  hub.logs = {.folder = options_.logs(), .keep_free_bytes = options_.keep_free_bytes};
  hub.logger = options_.logger;
  hub_ = std::make_unique<hub::Hub>(hub);
}

/// Every virtual node has an address of its own: 127.0.0.2 for number 1, and on through 127.0.0.0/8.
NodePlace LocalDriver::place(const std::string& node, std::int64_t number) const {
  const std::int64_t place = number + 1;
  return {.id = node,
          .address = fmt::format("127.{}.{}.{}", (place >> 16) & 0xff, (place >> 8) & 0xff, place & 0xff),
          .cores = usable_cores(),
          .gpus = 0,
          .registered_as = ""};
}

void LocalDriver::check(const spec::ClusterSpec& cluster) const {
  for (const auto& [name, directory] : cluster.gyre.mounts) {
    const auto why = node::why_not_mountable(directory);
    if (!why) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("mount '{}': {} on the server's machine, whose virtual nodes the cluster has; make it, or "
                            "name another one (--mount {}=DIR)",
                            name, *why, name));
  }
}

node::NodeFolders LocalDriver::folders(const WorkOrder& order) const {
  return node::NodeFolders(node_folder(order.here().id));
}

WorkOrder LocalDriver::completed(WorkOrder order) const {
  // All nodes are this machine: one path each, so that what a script on one node expands is there on the others.
  order.shared_folder = (attempt_folder(order.attempt) / "shared").string();
  order.job_mount_root = (attempt_folder(order.attempt) / "mounts").string();
  order.mount_root = (options_.folder / "mounts" / name_of_mounts(order)).string();
  // Node programs of root have mount namespaces.
  if (::geteuid() == 0 && order.nodes.size() > 1) order.jobs_root = (attempt_folder(order.attempt) / "jobs").string();
  order.sends_logs = true;
  order.key = key_of_attempt(key_, order.attempt);
  order.node = 0;
  return order;
}

std::vector<std::string> LocalDriver::program_command(const NodePlace& node) const {
  std::vector<std::string> command = {options_.gyre_program,
                                      "agent",
                                      "--service",
                                      net::to_string(hub_->endpoint()),
                                      "--key-file",
                                      (options_.folder / "agents.key").string(),
                                      "--node",
                                      node.id,
                                      "--root",
                                      node_folder(node.id).string(),
                                      "--give-up-seconds",
                                      std::to_string(options_.give_up.count())};
  command.insert(command.end(), {"--code-cache", std::to_string(options_.code_cache_bytes)});
  command.insert(command.end(), {"--environment-cache", std::to_string(options_.environment_bytes)});
  if (::geteuid() == 0) command.insert(command.end(), {"--job-user", options_.job_user});
  return command;
}

std::vector<Artifact> LocalDriver::plan(const WorkOrder& order) const {
  const WorkOrder whole = completed(order);
  for (const NodePlace& node : whole.nodes) {
    if (node.address.starts_with("127.")) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("node '{}' at '{}' is not one of this machine's virtual nodes", node.id, node.address));
  }
  // As if for the first node: an error here is one of the order.
  check_order(whole, folders(whole));
  gpus_.check(whole.job);
  std::vector<Artifact> artifacts;
  for (const NodePlace& node : whole.nodes) {
    artifacts.push_back({node.id, fmt::format("{}\n", fmt::join(program_command(node), " "))});
  }
  return artifacts;
}

void LocalDriver::submit(const WorkOrder& order) {
  static_cast<void>(plan(order));
  if (attempts_.contains(order.attempt)) return;
  fs::create_directories(attempt_folder(order.attempt));
  fs::create_directories(options_.folder / "mounts");
  WorkOrder with_gpus = completed(order);
  make_log_folder(options_.logs(), with_gpus, folders(with_gpus));
  std::string note = gpus_.give(with_gpus, gpu_file(order.attempt));
  if (!note.empty()) notes_.push_back({Event::Kind::kNote, order.attempt, "", std::move(note), std::nullopt});
  take_up(with_gpus);
  hub_->admit();
}

bool LocalDriver::is_new(const WorkOrder& order) const {
  std::error_code ignored;
  if (gpus_.empty() || fs::exists(gpu_file(order.attempt), ignored)) return false;
  return std::ranges::none_of(order.nodes, [&](const NodePlace& node) {
    const auto in_hand = node::order_in_hand(node_folder(node.id));
    return (in_hand && in_hand->attempt == order.attempt) || node::has_record(node_folder(node.id), order.attempt);
  });
}

void LocalDriver::reattach(const std::vector<WorkOrder>& orders) {
  for (const WorkOrder& each : orders) {
    if (attempts_.contains(each.attempt)) continue;
    WorkOrder order = completed(each);
    // The node programs make what is in them, for the job's user. Those of an attempt that has begun are there; where
    // the disk is full the others must not keep it from going on.
    std::error_code ignored;
    fs::create_directories(attempt_folder(order.attempt), ignored);
    fs::create_directories(options_.folder / "mounts", ignored);
    gpus_.take_up(order, gpu_file(order.attempt));
    take_up(order);
  }
  hub_->admit();
}

void LocalDriver::take_up(const WorkOrder& order) {
  for (const NodePlace& node : order.nodes) {
    places_[node.id] = node;
    attempts_[order.attempt].push_back(node.id);
  }
  hub_->submit(order);
  for (const NodePlace& node : order.nodes) {
    if (node::is_marked_lost(node_folder(node.id), order.attempt)) {
      // By a service before this one, which did not come to the end of it.
      lose(node.id);
      hub_->lose_node(node.id, "the service before this one had given it up");
      continue;
    }
    const auto [restarts, is_new] = restarts_.try_emplace(node.id, options_.restart_pause);
    if (!is_new && !absent_.contains(node.id)) continue;  // It is connected.
    absent_.insert(node.id);
    restarts->second = internal::Restarts(options_.restart_pause);
    ensure_program(node.id);
  }
}

AtNodes LocalDriver::at_nodes(const std::vector<WorkOrder>& asked) const {
  AtNodes found;
  std::set<std::string> seen;
  std::map<std::string, std::string> in_hand;           // Attempts by node.
  std::map<std::string, hub::AttemptRun> with_records;  // By attempt.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.folder / "nodes", ignored)) {
    for (const node::KeptRecord& record : node::kept_records(entry.path())) {
      auto& run = with_records.try_emplace(record.order.attempt, record.order).first->second;
      if (const auto index = run.index_of(entry.path().filename())) run.report(*index, record.report);
    }
    auto order = node::order_in_hand(entry.path());
    if (!order) continue;
    in_hand[entry.path().filename()] = order->attempt;
    if (seen.insert(order->attempt).second) found.orders.push_back(*std::move(order));
  }
  for (const auto& [attempt, run] : with_records) {
    if (run.ended()) found.ended.push_back({run.order(), run.result()});
  }
  for (const WorkOrder& order : asked) {
    const bool known = std::ranges::all_of(order.nodes, [&](const NodePlace& node) {
      const auto here = in_hand.find(node.id);
      return (here != in_hand.end() && here->second == order.attempt) ||
             node::has_record(node_folder(node.id), order.attempt);
    });
    if (known) found.known.insert(order.attempt);
  }
  return found;
}

std::string LocalDriver::end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) {
  return node::end_strays(
      {.nodes = options_.folder / "nodes",
       .is_ours = [&](const std::string& attempt) { return jobs.contains(orders::job_of(attempt)); },
       .is_in_hand = [&](const std::string& attempt) { return in_hand.contains(attempt); }});
}

/// By a thread: one that takes long holds up nobody.
void LocalDriver::ensure_program(const std::string& node) {
  if (starting_.contains(node)) return;
  starting_[node] = start_thread("the start of an agent", [this, node, command = program_command(places_.at(node))] {
    Start start{.node = node};
    try {
      start.words = node::start_detached(command, options_.environment);
    } catch (const Error& error) {
      start.words.error = fmt::format("it cannot be started: {}", error.what());
    }
    {
      const MutexLock lock(mutex_);
      starts_.push_back(std::move(start));
    }
    hub_->wake();
  });
}

void LocalDriver::hear_of_starts() {
  std::vector<Start> starts;
  {
    const MutexLock lock(mutex_);
    starts.swap(starts_);
  }
  for (const Start& start : starts) {
    starting_.extract(start.node).mapped().join();
    const auto restarts = restarts_.find(start.node);
    if (restarts == restarts_.end()) continue;
    const auto now = SteadyClock::now();
    if (start.words.error.find("another agent") != std::string::npos) {
      restarts->second.is_coming(now);
      continue;
    }
    restarts->second.started(now);
    if (start.words.out.empty()) program_ended(start.node, one_line(start.words.error));
  }
}

LocalDriver::~LocalDriver() {
  for (auto& [node, thread] : starting_) thread.join();
}

void LocalDriver::program_ended(const std::string& node, const std::string& words) {
  internal::Restarts& restarts = restarts_.at(node);
  restarts.ended(SteadyClock::now());
  if (!in_use(node)) return;
  const std::string said = words.empty() ? "" : ": " + words;
  if (restarts.exhausted()) {
    hub_->lose_node(node,
                    fmt::format("its agent was started {} times and ended each time{} (its log: {})", restarts.starts(),
                                said, (node_folder(node) / "agent/agent.log").string()),
                    hub::NodeLoss::kHopeless);
    return;
  }
  if (restarts.pause().count() == 0) return;
  const std::string text = fmt::format("node {}: its agent ended{}; it is started again in {:.1f} s, start {} of {}",
                                       node, said, std::chrono::duration<double>(restarts.pause()).count(),
                                       restarts.starts() + 1, internal::kMostStarts);
  for (const auto& [attempt, nodes] : attempts_) {
    if (std::ranges::find(nodes, node) == nodes.end()) continue;
    notes_.push_back({Event::Kind::kNote, attempt, node, text, std::nullopt});
  }
}

node::LostAttempt LocalDriver::lost_attempt(const std::string& attempt, const std::string& node) const {
  node::LostAttempt lost{.attempt = attempt, .node_root = node_folder(node)};
  if (const auto found = attempts_.find(attempt); found != attempts_.end()) {
    for (const std::string& other : found->second) {
      if (other != node && !lost_.contains(other)) lost.other_nodes.push_back(other);
    }
  }
  return lost;
}

/// The node counts as lost: what is left of it must not run into the job's next attempt.
void LocalDriver::lose(const std::string& node) {
  if (!lost_.insert(node).second) return;
  Ending& ending = endings_[node];
  ending.since = SteadyClock::now();
  for (const auto& [attempt, nodes] : attempts_) {
    if (std::ranges::find(nodes, node) == nodes.end()) continue;
    ending.attempts.push_back(attempt);
    node::mark_lost(lost_attempt(attempt, node));
  }
  if (ending.attempts.empty()) ending.attempts.emplace_back();  // Its node program goes all the same.
}

void LocalDriver::go_on_ending() {
  const auto now = SteadyClock::now();
  const auto is_over = [&](const std::string& node, Ending& ending) {
    if (now < ending.next_look || starting_.contains(node)) return false;
    ending.next_look = now + kBetweenLooks;
    std::vector<pid_t> left;
    for (const std::string& attempt : ending.attempts) {
      std::ranges::copy(node::end_lost_attempt(lost_attempt(attempt, node)), std::back_inserter(left));
    }
    if (left.empty()) return true;
    if (ending.noted || now - ending.since < kLongestQuietEnding) return false;
    ending.noted = true;
    for (const std::string& attempt : ending.attempts) {
      notes_.push_back({Event::Kind::kNote, attempt, node,
                        fmt::format("node {} is lost, and processes {} cannot be killed; the attempt ends, and the job "
                                    "can start again, when they are gone",
                                    node, fmt::join(left, ", ")),
                        std::nullopt});
    }
    return false;
  };
  for (auto each = endings_.begin(); each != endings_.end();) {
    each = is_over(each->first, each->second) ? endings_.erase(each) : std::next(each);
  }
}

/// Whether nothing of it runs on the nodes that it has lost.
bool LocalDriver::has_ended(const std::string& attempt) const {
  return std::ranges::none_of(endings_, [&](const auto& ending) {
    return std::ranges::find(ending.second.attempts, attempt) != ending.second.attempts.end();
  });
}

bool LocalDriver::in_use(const std::string& node) const {
  return std::ranges::any_of(
      attempts_, [&](const auto& attempt) { return std::ranges::find(attempt.second, node) != attempt.second.end(); });
}

bool LocalDriver::may_start_program(const std::string& node) const {
  return in_use(node) && !lost_.contains(node) && !starting_.contains(node) && !restarts_.at(node).exhausted();
}

/// Also one that was killed before it had come to the hub, and left no trace there.
void LocalDriver::ensure_absent_programs() {
  for (const std::string& node : absent_) {
    if (may_start_program(node) && restarts_.at(node).is_due(SteadyClock::now())) ensure_program(node);
  }
}

Deadline LocalDriver::next_start(Deadline deadline) const {
  auto next = deadline.when();
  for (const std::string& node : absent_) {
    if (!may_start_program(node)) continue;
    const auto start = restarts_.at(node).next();
    next = std::min(next.value_or(start), start);
  }
  for (const auto& [node, ending] : endings_) next = std::min(next.value_or(ending.next_look), ending.next_look);
  if (!next) return Deadline::never();
  return Deadline::after(std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock::now()));
}

std::vector<Event> LocalDriver::watch(Deadline deadline) {
  std::vector<Event> told;
  do {
    for (Event& event : hub_->take_events(next_start(deadline))) {
      const auto restarts = restarts_.find(event.node);
      if (event.kind == Event::Kind::kNodeCame) absent_.erase(event.node);
      if (event.kind == Event::Kind::kNodeCame && released_.contains(event.node)) hub_->dismiss(event.node);
      if (event.kind == Event::Kind::kNodeCame && restarts != restarts_.end()) {
        restarts->second.came(SteadyClock::now());
      }
      if (event.kind == Event::Kind::kNodeGone && restarts != restarts_.end()) {
        absent_.insert(event.node);
        program_ended(event.node, "");
      }
      if (event.kind == Event::Kind::kNodeGone && released_.contains(event.node)) forget_node(event.node);
      if (event.kind == Event::Kind::kNodeLost) lose(event.node);
      (event.kind == Event::Kind::kEnded ? held_ : told).push_back(std::move(event));
    }
    hear_of_starts();
    go_on_ending();
    ensure_absent_programs();
    forget_released();
    std::ranges::move(std::exchange(notes_, {}), std::back_inserter(told));
    auto ends = std::exchange(held_, {});
    for (Event& end : ends) (has_ended(end.attempt) ? told : held_).push_back(std::move(end));
  } while (told.empty() && !deadline.passed());
  return told;
}

bool LocalDriver::has_program(const std::string& node) const {
  int pid = 0;
  std::ifstream(node::NodeFolders(node_folder(node)).lock()) >> pid;
  return pid > 1 && node::is_program_of(pid, node_folder(node));
}

void LocalDriver::release(const std::string& node) {
  hub_->dismiss(node);
  if (has_program(node) || starting_.contains(node)) {
    released_.insert(node);
  } else {
    forget_node(node);
  }
}

void LocalDriver::retain(const std::set<std::string>& nodes) {
  std::set<std::string> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.folder / "nodes", ignored)) {
    const std::string node = entry.path().filename().string();
    if (!nodes.contains(node) && !in_use(node)) left.insert(node);
  }
  for (const std::string& node : left) release(node);
}

/// Also those whose node programs ended without having come to this hub.
void LocalDriver::forget_released() {
  for (const std::string& node : std::set<std::string>(released_)) {
    if (!has_program(node) && !starting_.contains(node)) forget_node(node);
  }
}

void LocalDriver::forget_node(const std::string& node) {
  released_.erase(node);
  restarts_.erase(node);
  absent_.erase(node);
  lost_.erase(node);
  places_.erase(node);
  try {
    node::remove_node(node_folder(node));
  } catch (const Error& error) {
    options_.logger->warn("{}", error.what());
  }
}

void LocalDriver::cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  hub_->stop(attempt, reason, grace);
}

void LocalDriver::acknowledge(const std::string& attempt) {
  hub_->acknowledge(attempt);
  gpus_.take_back(attempt);
  if (const auto ended = attempts_.find(attempt); ended != attempts_.end()) {
    for (const std::string& node : ended->second) {
      const auto restarts = restarts_.find(node);  // None where the attempt could not be started.
      if (restarts == restarts_.end() || absent_.contains(node)) continue;
      restarts->second = internal::Restarts(options_.restart_pause);
    }
    attempts_.erase(ended);
  }
  std::error_code ignored;
  fs::remove_all(attempt_folder(attempt), ignored);
}

}  // namespace gyre::jobs::drivers::local
