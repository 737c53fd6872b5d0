#include "gyre/jobs/drivers/ssh/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/secret_key.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/drivers/internal/home.h"
#include "gyre/jobs/drivers/internal/service_place.h"
#include "gyre/jobs/drivers/ssh/internal/host_check.h"
#include "gyre/jobs/drivers/ssh/internal/host_watch.h"
#include "gyre/jobs/drivers/ssh/internal/seat.h"

namespace gyre::jobs::drivers::ssh {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostRequestBytes = 1 << 20;
/// For so long an agent stays that the service has lost: kUntoldSeconds of its script, and what it needs to end.
constexpr std::chrono::minutes kLongestLost{20};

/// The table's entry of one request.
struct Request {
  std::string name;
  fs::path folder;
  Service service;
  std::vector<std::string> programs;  ///< By node.
  std::string key;                    ///< 64 digits.
  HostSize needs = {};                ///< Of each host.
  std::vector<Seat> seats = {};       ///< None as long as it waits for hosts.
  bool released = false;

  Request(std::string its_name, fs::path its_folder, Service its_service)
      : name(std::move(its_name)), folder(std::move(its_folder)), service(std::move(its_service)) {}
  ~Request() { const WipedAtEnd wiped(key); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool over() const {
    return seats.empty() ? released : std::ranges::all_of(seats, [](const Seat& seat) { return seat.over(); });
  }
};

fs::path table_file(const fs::path& folder) { return folder / "ssh_request.json"; }
fs::path key_file(const fs::path& folder) { return folder / "agent.key"; }
/// What hosts have said of their sizes.
fs::path sizes_file(const fs::path& folder) { return folder / "ssh_hosts.json"; }

HostSize needs_of(const spec::JobSpec& job) {
  HostSize needs{.memory_bytes = 0, .cores = job.cpus_per_node.value_or(0)};
  if (job.memory_per_node) needs.memory_bytes = containers::bytes_of_size(*job.memory_per_node);
  return needs;
}

/// What may wait for us on a host that was out of reach when it was to be ended.
struct LostAgent {
  Seat seat;
  SteadyClock::time_point since;
};

/// Of the options that list hosts.
std::string as_option(const std::vector<std::string>& entries) { return fmt::format("{}", fmt::join(entries, ", ")); }

}  // namespace

class SshEngine::Work {
 public:
  explicit Work(const SshOptions& options) : options_(options), home_(options.folder, "ssh"), client_(options_) {
    const MutexLock lock(mutex_);
    read_sizes();
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(home_.attempts(), ignored)) {
      if (fs::exists(table_file(entry.path()), ignored)) take_up(entry.path());
    }
  }

  std::string ask(const NodeRequest& request) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    // What was asked for before, under a name that is never used again.
    if (std::ranges::any_of(requests_, [&](const Request& each) { return each.name == request.name; })) {
      return request.name;
    }
    if (request.order.nodes.size() > options_.hosts.size()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the job needs {} nodes, and the cluster has {} hosts",
                                                           request.order.nodes.size(), options_.hosts.size()));
    }
    if (!options_.names_gyre) world_.archive();
    Request& made = requests_.emplace_back(request.name, request.folder, request.service);
    for (const orders::NodePlace& node : request.order.nodes) made.programs.push_back(node.registered_name());
    made.needs = needs_of(request.order.job);
    made.key = hex_of(request.key);
    write_file_atomically(key_file(made.folder), as_bytes(made.key));
    fs::permissions(key_file(made.folder), fs::perms::owner_read | fs::perms::owner_write);
    save(made);
    look_at(made);
    return made.name;
  }

  std::vector<Holding> list() GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::error_code ignored;
    std::vector<Holding> holdings;
    // What is over leaves the table with its folder.
    std::erase_if(requests_, [&](const Request& each) { return each.over() && !fs::exists(each.folder, ignored); });
    for (Request& request : requests_) {
      look_at(request);
      holdings.push_back(shown(request));
    }
    look_for_lost();
    std::set<std::string> tried = hosts_in_use();
    for (const LostAgent& each : lost_) tried.insert(each.seat.host());
    watch_.look(tried);
    return holdings;
  }

  void release(const std::string& id) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (Request& request : requests_) {
      if (request.name != id || request.over()) continue;
      request.released = true;
      for (Seat& seat : request.seats) seat.end();
      look_at(request);
    }
  }

  void check_job(const spec::JobSpec& job) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const HostSize needs = needs_of(job);
    const auto fits = [&](const std::string& host) GYRE_REQUIRES(mutex_) { return can_be(host, needs); };
    const auto fit = std::ranges::count_if(options_.hosts, fits);
    if (fit >= job.node_count) return;
    std::vector<std::string> asked;
    if (job.memory_per_node) asked.push_back(fmt::format("{} of memory (memoryPerNode)", *job.memory_per_node));
    if (job.cpus_per_node) asked.push_back(fmt::format("{} cores (cpusPerNode)", *job.cpus_per_node));
    std::vector<std::string> there;
    for (const auto& [host, size] : sizes_) {
      there.push_back(fmt::format("{} has {} MB and {} cores", host, size.memory_bytes >> 20, size.cores));
    }
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("it asks for {} on each of {} node{}, and {} of the cluster's {} hosts {} as much ({}); ask "
                    "for less",
                    fmt::join(asked, " and "), job.node_count, job.node_count == 1 ? "" : "s",
                    fit == 0 ? "none" : std::to_string(fit), options_.hosts.size(), fit == 1 ? "has" : "have",
                    fmt::join(there, ", ")));
  }

  /// The table is not kept from others meanwhile: hosts may take long to answer.
  std::vector<Missing> check() GYRE_EXCLUDES(mutex_) {
    const MutexLock one_at_a_time(checking_);
    Client client(options_);
    std::vector<std::string> shown;
    std::vector<std::string> confirmed;
    std::vector<Missing> missing;
    for (const std::string& host : options_.hosts) {
      try {
        if (options_.host_keys.contains(host)) {
          client.pin(host);
          confirmed.push_back(host);
        } else {
          shown.push_back(fmt::format("{} {}", host, client.fingerprint_of(host)));
        }
      } catch (const Error& error) {
        const bool is_other_key = error.code() == ErrorCode::kAuthentication;
        missing.push_back({error.what(), is_other_key
                                             ? "somebody has reinstalled the host, or another one answers in its "
                                               "place; confirm the key that the host itself says it has"
                                             : "the service's host must reach it, as `ssh` does there"});
      }
    }
    if (!shown.empty()) {
      missing.push_back(unconfirmed(shown));
      return missing;
    }
    CheckedHosts checked = check_hosts(options_, client, confirmed);
    std::ranges::move(checked.missing, std::back_inserter(missing));
    const MutexLock lock(mutex_);
    for (const auto& [host, size] : checked.sizes) sizes_[host] = size;
    save_sizes();
    return missing;
  }

  /// Waits for nobody.
  std::vector<std::string> node_problems() const { return watch_.sentences(); }

  const SshOptions& options() const { return options_; }

 private:
  void save(const Request& request) const {
    auto hosts = nlohmann::json::array();
    for (const Seat& seat : request.seats) hosts.push_back({{"host", seat.host()}, {"ran", seat.runs()}});
    const nlohmann::json json = {{"name", request.name},
                                 {"service", request.service.name},
                                 {"place", net::to_string(request.service.place)},
                                 {"programs", request.programs},
                                 {"memory_bytes", request.needs.memory_bytes},
                                 {"cores", request.needs.cores},
                                 {"hosts", hosts}};
    write_file_atomically(table_file(request.folder), as_bytes(json.dump()));
  }

  Missing unconfirmed(const std::vector<std::string>& shown) const {
    std::vector<std::string> all = shown;
    for (const auto& [host, key] : options_.host_keys) all.push_back(fmt::format("{} {}", host, key));
    return {
        fmt::format("nobody has confirmed the host keys {}", as_option(shown)),
        fmt::format("compare them with what `ssh-keygen -lf` says on the hosts of their keys in /etc/ssh, and create "
                    "the cluster with --driver-option 'host_keys={}'",
                    as_option(all))};
  }

  void save_sizes() const GYRE_REQUIRES(mutex_) {
    auto json = nlohmann::json::object();
    for (const auto& [host, size] : sizes_) json[host] = {{"memory_bytes", size.memory_bytes}, {"cores", size.cores}};
    write_file_atomically(sizes_file(options_.folder), as_bytes(json.dump()));
  }

  void read_sizes() GYRE_REQUIRES(mutex_) {
    const fs::path file = sizes_file(options_.folder);
    if (!fs::exists(file)) return;
    try {
      const auto json = nlohmann::json::parse(as_text(read_file(file, kMostRequestBytes)));
      for (const auto& [host, size] : json.items()) sizes_[host] = {size.at("memory_bytes"), size.at("cores")};
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", file.string(), error.what()));
    }
  }

  /// One of which nothing is known can.
  bool can_be(const std::string& host, const HostSize& needs) const GYRE_REQUIRES(mutex_) {
    const auto found = sizes_.find(host);
    return found == sizes_.end() ||
           (found->second.memory_bytes >= needs.memory_bytes && found->second.cores >= needs.cores);
  }

  void take_up(const fs::path& folder) GYRE_REQUIRES(mutex_) {
    try {
      const auto json = nlohmann::json::parse(as_text(read_file(table_file(folder), kMostRequestBytes)));
      const Service service{json.at("service"), net::parse_endpoint(json.at("place").get<std::string>())};
      Request& request = requests_.emplace_back(json.at("name"), folder, service);
      request.programs = json.at("programs").get<std::vector<std::string>>();
      request.needs = {json.value("memory_bytes", std::uint64_t{0}), json.value("cores", 0)};
      request.key = as_text(read_file(key_file(folder), kMostRequestBytes));
      for (const auto& host : json.at("hosts")) {
        seat(request, host.at("host"), host.at("ran").get<bool>() ? Seat::Past::kRan : Seat::Past::kMayRun);
      }
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", table_file(folder).string(), error.what()));
    }
  }

  Seat seat_at(const Request& request, std::size_t number, const std::string& host, Seat::Past past) const {
    const std::string attempt = request.name.substr(request_name("").size());
    return {host, Node{request.programs.at(number), node_root(options_, attempt).string(), request.service.place},
            request.folder / fmt::format("ssh-{}", number), past};
  }

  void seat(Request& request, const std::string& host, Seat::Past past) const {
    request.seats.push_back(seat_at(request, request.seats.size(), host, past));
  }

  std::set<std::string> hosts_in_use() const GYRE_REQUIRES(mutex_) {
    std::set<std::string> taken;
    for (const Request& request : requests_) {
      for (const Seat& seat : request.seats) {
        if (!seat.over()) taken.insert(seat.host());
      }
    }
    return taken;
  }

  /// Hosts that nobody has, and that are large enough; in the cluster's order, those that cannot be reached last.
  std::vector<std::string> free_hosts(const HostSize& needs) const GYRE_REQUIRES(mutex_) {
    const std::set<std::string> taken = hosts_in_use();
    std::vector<std::string> free;
    for (const bool away : {false, true}) {
      for (const std::string& host : options_.hosts) {
        if (watch_.is_away(host) == away && !taken.contains(host) && can_be(host, needs)) free.push_back(host);
      }
    }
    return free;
  }

  /// Nodes that have not begun, because their hosts cannot be reached, get free ones that can. Whether any has.
  bool find_other_hosts(Request& request) GYRE_REQUIRES(mutex_) {
    const auto waits = [&](const Seat& seat) { return !seat.begun() && !seat.over() && watch_.is_away(seat.host()); };
    if (request.released || !std::ranges::any_of(request.seats, waits)) return false;
    std::vector<std::string> free = free_hosts(request.needs);
    // What may be left of this attempt on a host is ended there, whichever of its nodes it is.
    std::erase_if(free, [&](const std::string& host) GYRE_REQUIRES(mutex_) {
      return watch_.is_away(host) || is_lost_on(host, request.seats.front().node().root);
    });
    if (free.empty()) return false;
    std::vector<Seat> seats;
    for (Seat& seat : request.seats) {
      if (!waits(seat) || free.empty()) {
        seats.push_back(std::move(seat));
        continue;
      }
      // An agent may have begun all the same, if the connection broke before it could say so.
      lose(seat, SteadyClock::now());
      seats.push_back(seat_at(request, seats.size(), free.front(), Seat::Past::kNone));
      free.erase(free.begin());
    }
    request.seats.swap(seats);
    save(request);
    return true;
  }

  bool is_lost_on(const std::string& host, const std::string& root) const GYRE_REQUIRES(mutex_) {
    return std::ranges::any_of(
        lost_, [&](const LostAgent& each) { return each.seat.host() == host && each.seat.node().root == root; });
  }

  void look_at(Request& request) GYRE_REQUIRES(mutex_) {
    if (request.over()) return;
    if (request.seats.empty()) {
      std::vector<std::string> hosts = free_hosts(request.needs);
      if (hosts.size() < request.programs.size()) return;
      hosts.resize(request.programs.size());
      for (const std::string& host : hosts) seat(request, host, Seat::Past::kNone);
      save(request);
    }
    do {
      bool changed = false;
      for (Seat& seat : request.seats) {
        const bool ran = seat.runs();
        seat.look(world_, request.key);
        changed = changed || seat.runs() != ran;
      }
      if (changed) save(request);  // One that has run is never started again.
    } while (find_other_hosts(request));
    for (const Seat& seat : request.seats) {
      if (seat.unreachable()) lose(seat, SteadyClock::now());
    }
    const auto ended_badly = [](const Seat& seat) { return seat.over() && (seat.failed() || seat.unreachable()); };
    if (!std::ranges::any_of(request.seats, ended_badly)) return;
    for (Seat& seat : request.seats) seat.end();
  }

  /// It is nobody's any more, and its host may be another attempt's. It is ended when the host is back.
  void lose(const Seat& seat, SteadyClock::time_point since) GYRE_REQUIRES(mutex_) {
    const auto is_it = [&](const LostAgent& each) {
      return each.seat.node().program == seat.node().program && each.seat.host() == seat.host();
    };
    if (std::ranges::any_of(lost_, is_it)) return;
    lost_.push_back({Seat(seat.host(), seat.node(), lost_file(seat), Seat::Past::kRan), since});
    lost_.back().seat.end();
  }

  /// Where the names of the files begin by which it is ended.
  fs::path lost_file(const Seat& seat) const {
    const auto number = std::ranges::find(options_.hosts, seat.host()) - options_.hosts.begin();
    return options_.folder / fmt::format("lost-{}-{}", seat.node().program, number);
  }

  void look_for_lost() GYRE_REQUIRES(mutex_) {
    std::list<LostAgent> found = std::exchange(lost_, {});
    for (auto agent = found.begin(); agent != found.end();) {
      const auto next = std::next(agent);
      agent->seat.look(world_, "");
      const bool is_late = SteadyClock::now() - agent->since > kLongestLost;
      if (!agent->seat.over()) lost_.splice(lost_.end(), found, agent);
      if (agent->seat.unreachable() && !is_late) {
        lose(agent->seat, agent->since);
      } else if (agent->seat.over()) {
        std::error_code ignored;
        for (const char* part : {".sh", ".out", ".err"}) {
          fs::remove(lost_file(agent->seat).string() + part, ignored);
        }
      }
      agent = next;
    }
  }

  Holding shown(const Request& request) const GYRE_REQUIRES(mutex_) {
    using State = Holding::State;
    Holding holding{.id = request.name, .name = request.name, .state = State::kWaits, .service = request.service};
    std::vector<std::string> hosts;
    for (const Seat& seat : request.seats) {
      hosts.push_back(seat.host());
      const bool ended_it = seat.unreachable() || seat.failed();
      if (holding.last_words.empty() || (ended_it && !seat.problem().empty())) holding.last_words = seat.problem();
    }
    if (request.over()) {
      const auto has = [&](auto what) { return std::ranges::any_of(request.seats, what); };
      const bool unreachable = has([](const Seat& seat) { return seat.unreachable(); });
      const bool failed = has([](const Seat& seat) { return seat.failed(); });
      holding.state = request.released || (failed && !unreachable) ? State::kCanceled : State::kLost;
      holding.text = request.released ? "CANCELLED" : unreachable ? "UNREACHABLE" : failed ? "FAILED" : "COMPLETED";
    } else if (request.seats.empty()) {
      holding.text =
          fmt::format("it needs {} hosts, and {} are free", request.programs.size(), free_hosts(request.needs).size());
    } else if (std::ranges::all_of(request.seats, [](const Seat& seat) { return seat.runs(); })) {
      holding.state = State::kRuns;
      holding.text = as_option(hosts);
    } else {
      holding.text = holding.last_words;
    }
    return holding;
  }

  const SshOptions options_;
  const Home home_;
  Mutex checking_;
  Mutex mutex_;
  std::map<std::string, HostSize> sizes_ GYRE_GUARDED_BY(mutex_);  // Of hosts that have said.
  Client client_ GYRE_GUARDED_BY(mutex_);
  HostWatch watch_{options_, client_};  // But for its sentences, as client_.
  SeatWorld world_ GYRE_GUARDED_BY(mutex_){options_, client_, watch_};
  std::list<Request> requests_ GYRE_GUARDED_BY(mutex_);
  std::list<LostAgent> lost_ GYRE_GUARDED_BY(mutex_);
};

SshEngine::SshEngine(const SshOptions& options) : work_(std::make_unique<Work>(options)) {}
SshEngine::~SshEngine() = default;

std::string SshEngine::ask(const NodeRequest& request) { return work_->ask(request); }
std::vector<Holding> SshEngine::list() { return work_->list(); }
void SshEngine::release(const std::string& id) { work_->release(id); }
Capacity SshEngine::capacity() const { return {.most_nodes = static_cast<int>(work_->options().hosts.size())}; }
std::vector<std::string> SshEngine::node_problems() const { return work_->node_problems(); }
std::vector<Missing> SshEngine::check() { return work_->check(); }
void SshEngine::check_job(const spec::JobSpec& job) { work_->check_job(job); }

std::vector<Artifact> SshEngine::describe(const NodeRequest& request) const {
  const SshOptions& options = work_->options();
  const std::string root = node_root(options, request.order.attempt).string();
  const std::string program = options.names_gyre ? quoted(options.gyre) : copied_program("SHA256");
  std::vector<Artifact> artifacts;
  for (const orders::NodePlace& node : request.order.nodes) {
    artifacts.push_back(
        {fmt::format("{}.sh", node.registered_name()),
         start_script(options, {node.registered_name(), root, request.service.place}, program, "(the attempt's key)")});
  }
  return artifacts;
}

}  // namespace gyre::jobs::drivers::ssh
