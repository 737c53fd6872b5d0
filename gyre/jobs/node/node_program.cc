#include "gyre/jobs/node/node_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/code_cache.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/byte_streams.h"
#include "gyre/jobs/node/internal/log_deliveries.h"
#include "gyre/jobs/node/internal/node_probe.h"
#include "gyre/jobs/node/internal/saved_attempt.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node {

using orders::attempt_from;
using orders::connect_securely;
using orders::encode_number;
using orders::is_numeric_address;
using orders::MessagePipe;
using orders::NodeReport;
using orders::number_from;
using orders::order_from;
using orders::Phase;
using orders::Purpose;
using orders::read_node_report;
using orders::Registration;
using orders::run_command_from;
using orders::RunCommand;
using orders::stop_attempt_from;
using orders::StopAttempt;
using orders::StopReason;
using orders::Welcome;
using orders::welcome_from;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;
using internal::boot_time_s;
using internal::count_gpus;

constexpr double kLongestConnectS = 2;
constexpr double kFirstPauseS = 0.05;
constexpr double kLongestPauseS = 2;
constexpr double kShortestLeaseS = 1;  // Of a node program that has just started and has not found the service yet.
constexpr double kLongestSilenceS = 10;
constexpr int kRenewalsPerLease = 4;

UniqueFd take_lock(const NodeFolders& folders) {
  fs::create_directories(folders.root());
  // Whoever can read it can hold it, and keep the node from work.
  UniqueFd file(::open(folders.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::fchmod(file.get(), 0600) != 0)
    throw system_error(fmt::format("cannot open {}", folders.lock().string()), errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("another agent works in {}", folders.root().string()));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  // Over what is there: on a full disk a node program that was killed must come back.
  const ssize_t written = ::pwrite(file.get(), pid.data(), pid.size(), 0);
  if (written != static_cast<ssize_t>(pid.size()) || ::ftruncate(file.get(), written) != 0) {
    throw system_error(fmt::format("cannot write {}", folders.lock().string()), errno);
  }
  return file;
}

UniqueFd open_own(const NodeFolders& folders) {
  fs::create_directories(folders.records());
  fs::permissions(folders.own(), fs::perms::owner_all);
  UniqueFd folder(::open(folders.own().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw system_error(fmt::format("cannot open {}", folders.own().string()), errno);
  return folder;
}

/// Of a folder, wherever it is moved. Empty where /proc does not show it.
fs::path name_of(const UniqueFd& folder) {
  const fs::path name = fmt::format("/proc/self/fd/{}", folder.get());
  std::error_code failure;
  return fs::is_directory(name, failure) ? name : fs::path();
}

bool is_at(const UniqueFd& file, const fs::path& path) {
  struct stat held{};
  struct stat there{};
  return ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

std::chrono::milliseconds as_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::max(seconds, 0.0) * 1000));
}

}  // namespace

class NodeProgram::Work {
 public:
  explicit Work(const NodeProgramOptions& options)
      : options_(options),
        lock_(take_lock(NodeFolders(options.node.root))),
        own_(open_own(NodeFolders(options.node.root))),
        folders_(options.node.root, name_of(own_)),
        codes_(folders_, options.code_cache_bytes, options.logger),
        deliveries_(folders_, options.logger) {
    options_.node.own = folders_.own();
    options_.node.codes = &codes_;
    // Both are of the same folder then.
    if (!is_at_home() || !is_at(lock_, folders_.lock())) {
      throw Error(ErrorCode::kIo, fmt::format("{} was moved away", options_.node.root.string()));
    }
    job_ = NodeJob::resume(options_.node);
    if (job_ && !job_->order().code_sha256.empty()) {
      codes_.want_again(job_->order().attempt, job_->order().code_sha256);
    }
    last_contact_s_ = boot_time_s();
    lease_until_s_ = std::max(last_contact_s_ + kShortestLeaseS, noted_lease());
  }

  void run(int stop_fd) {
    while (!over_) {
      if (!pipe_) connect();
      try {
        step(stop_fd);
      } catch (const Error& error) {
        options_.logger->warn("the connection to the service ended: {}", error.what());
        pipe_.reset();
      }
      if (!pipe_) deliveries_.connected(0);
      if (!pipe_) codes_.disconnected();
      if (!pipe_) streams_.disconnected();
      enforce_lease();
      if (leaving_ && !has_work() && deliveries_.done()) over_ = true;
    }
  }

 private:
  /// Whether what lies at its path is the folder that it works in.
  bool is_at_home() const { return is_at(own_, NodeFolders(options_.node.root).own()); }

  bool has_work() const { return job_ && job_->report().phase != Phase::kEnded; }

  void connect() {
    if (boot_time_s() < next_try_s_) return;
    if (!is_at_home()) {
      if (!std::exchange(moved_, true)) {
        options_.logger->error("{} was moved away; what runs is ended when its lease is over",
                               options_.node.root.string());
      }
      next_try_s_ = boot_time_s() + kLongestPauseS;
      return;
    }
    // A job must not outlive its lease because a connection hangs.
    const double limit_s = has_work() ? std::min(kLongestConnectS, lease_until_s_ - boot_time_s()) : kLongestConnectS;
    try {
      const net::Endpoint service = service_endpoint();
      const net::JobKey key = options_.key();
      pipe_.emplace(connect_securely(service, key, {.purpose = Purpose::kService, .key = orders::key_number(key)},
                                     Deadline::after(std::max(as_ms(limit_s), std::chrono::milliseconds(100)))));
      pause_s_ = kFirstPauseS;
      Registration registration{options_.node_id,     ::getpid(),     {},
                                own_address(service), usable_cores(), count_gpus(options_.node.base)};
      for (auto& [attempt, report] : all_reports()) registration.reports.push_back(std::move(report));
      pipe_->send(orders::message_type::kRegister, as_bytes(encode(registration)));
      registered_s_ = boot_time_s();
      leaving_ = false;  // The service says so again.
    } catch (const Error& error) {
      options_.logger->debug("cannot reach the service: {}", error.what());
      pipe_.reset();
      next_try_s_ = boot_time_s() + pause_s_;
      pause_s_ = std::min(2 * pause_s_, kLongestPauseS);
    }
  }

  net::Endpoint service_endpoint() const {
    if (options_.service_file.empty()) return options_.service;
    constexpr std::size_t kMostBytes = 1024;
    const Bytes bytes = read_file(options_.service_file, kMostBytes);
    std::string text(as_text(bytes));
    while (text.ends_with('\n')) text.pop_back();
    return net::parse_endpoint(text);
  }

  std::string own_address(const net::Endpoint& service) const {
    if (is_numeric_address(options_.address)) return options_.address;
    return service.kind == net::Endpoint::Kind::kTcp ? net::local_endpoint(pipe_->fd()).host : "";
  }

  /// By attempt: those on disk, and the one that runs.
  std::map<std::string, NodeReport> all_reports() {
    std::map<std::string, NodeReport> reports;
    for (const auto& entry : fs::directory_iterator(folders_.records())) {
      if (entry.path().extension() != ".json") continue;
      if (auto report = stored_report(entry.path().stem())) reports[report->attempt] = with_logs(std::move(*report));
    }
    if (job_) reports[job_->order().attempt] = with_logs(job_->report());
    return reports;
  }

  /// A report as it is told: whether logs are still to be sent is ours to know.
  NodeReport with_logs(NodeReport report) {
    if (!report.sends_logs) return report;
    if (report.phase == Phase::kEnded) {
      deliveries_.seal(report.attempt, report.log_folder);
      report.sends_logs = deliveries_.has(report.attempt);
    } else if (is_current(report.attempt)) {
      const std::uint64_t nodes = job_->order().nodes.size();
      const std::uint64_t bytes = job_->order().log_bytes;
      deliveries_.follow(report.attempt, report.log_folder, bytes == 0 ? 0 : std::max<std::uint64_t>(bytes / nodes, 1));
    }
    return report;
  }

  std::optional<NodeReport> stored_report(const std::string& attempt) const {
    const fs::path path = folders_.record(attempt);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return std::nullopt;
    try {
      return read_node_report(path);
    } catch (const Error& error) {
      options_.logger->error("the record {} cannot be read: {}", path.string(), error.what());
      return std::nullopt;
    }
  }

  void step(int stop_fd) {
    std::array<pollfd, 6> waits = {{{stop_fd, POLLIN, 0},
                                    {job_ ? job_->changed_fd() : -1, POLLIN, 0},
                                    {pipe_ ? pipe_->fd() : -1, pipe_ ? pipe_->events() : short{0}, 0},
                                    {deliveries_.changed_fd(), POLLIN, 0},
                                    {codes_.changed_fd(), POLLIN, 0},
                                    {pipe_ ? streams_.fd() : -1, POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), timeout_ms()) < 0 && errno != EINTR) throw system_error("poll", errno);
    if (waits[0].revents != 0) over_ = true;
    if (waits[1].revents != 0) {
      job_->clear_changed();
      const NodeReport news = with_logs(job_->report());
      if (pipe_) send_report(news);
    }
    deliveries_.look();
    if (codes_.look() && job_) job_->code_came();
    if (!pipe_) return;
    if ((waits[2].revents & POLLOUT) != 0) pipe_->flush();
    serve_streams();
    while (auto message = pipe_->receive()) obey(*message);
    for (const std::string& attempt : deliveries_.take_delivered()) {
      if (const auto report = known_report(attempt)) send_report(*report);
    }
    deliveries_.send(*pipe_);
    codes_.send(sender());
    streams_.step(sender());
    const double now_s = boot_time_s();
    if (now_s > std::max(last_contact_s_, registered_s_) + std::max(lease_s_, kLongestSilenceS)) {
      throw Error(ErrorCode::kTimeout, "the service does not answer");
    }
    if (lease_s_ > 0 && now_s >= next_renewal_s_) renew();
  }

  CodeFetch::Send sender() {
    return [this](std::uint16_t type, std::span<const std::byte> payload) { pipe_->send(type, payload); };
  }

  void serve_streams() {
    const std::string attempt = has_work() ? job_->order().attempt : "";
    if (attempt != streams_.attempt()) streams_.serve(attempt, attempt.empty() ? std::nullopt : account(), sender());
  }

  /// Has it run in the job; returns the channel to whatever serves it.
  UniqueFd start_command(const orders::CommandRequest& request) {
    if (!has_work() || !is_current(streams_.attempt())) {
      throw Error(ErrorCode::kNotFound, "the job does not run on the node any more");
    }
    if (job_->report().phase < Phase::kRunning) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the job is still being prepared on node {}; try again once it runs there",
                              job_->order().here().id));
    }
    std::array<int, 2> ends;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw system_error("cannot make a channel to a command", errno);
    }
    UniqueFd ours(ends[0]);
    job_->start_command(request.rank, UniqueFd(ends[1]));
    return ours;
  }

  /// The job's; nothing: ours.
  std::optional<UserId> account() const {
    if (!options_.node.user) return std::nullopt;
    const std::string& name = job_->order().account;
    return name.empty() ? options_.node.user->id : find_job_user(name).id;
  }

  /// Until the next renewal, try to connect, or end of the lease.
  int timeout_ms() const {
    double until_s = pipe_ ? (lease_s_ > 0 ? next_renewal_s_ : registered_s_ + kLongestConnectS) : next_try_s_;
    if (has_work() && !lost_) until_s = std::min(until_s, lease_until_s_);
    const int timeout_ms =
        static_cast<int>(std::clamp<std::int64_t>(as_ms(until_s - boot_time_s()).count() + 1, 1, 60'000));
    const auto look = deliveries_.next_look();
    return look ? std::min(timeout_ms, look->poll_timeout_ms(timeout_ms)) : timeout_ms;
  }

  void send_report(const NodeReport& report) {
    pipe_->send(orders::message_type::kReport, as_bytes(to_json(report).dump()));
  }

  void renew() {
    const double now_s = boot_time_s();
    renewals_sent_s_[++renewal_] = now_s;
    if (renewals_sent_s_.size() > 2 * kRenewalsPerLease) renewals_sent_s_.erase(renewals_sent_s_.begin());
    next_renewal_s_ = now_s + lease_s_ / kRenewalsPerLease;
    pipe_->send(orders::message_type::kRenew, as_bytes(encode_number(renewal_)));
  }

  /// `sent_s`: when we sent what the service has answered.
  void hold_lease_since(double sent_s) {
    lease_until_s_ = std::max(lease_until_s_, sent_s + lease_s_);
    last_contact_s_ = boot_time_s();
    std::ofstream(folders_.lease()) << boot_id() << ' ' << fmt::format("{}", lease_until_s_) << '\n';
  }

  /// What the node program before us has held; 0 where there is nothing to be found.
  double noted_lease() const {
    std::ifstream file(folders_.lease());
    std::string boot;
    double until_s = 0;
    return file >> boot >> until_s && boot == boot_id() ? until_s : 0;
  }

  void enforce_lease() {
    const double now_s = boot_time_s();
    if (has_work()) {
      if (now_s >= lease_until_s_ && !lost_) {
        lost_ = true;
        options_.logger->error("the lease is over; ending attempt {}", job_->order().attempt);
        job_->stop(StopReason::kLeaseLost, std::chrono::seconds(0));
      }
      return;
    }
    const auto give_up_s = static_cast<double>(options_.give_up.count());
    if (give_up_s == 0 || now_s <= last_contact_s_ + give_up_s) return;
    const auto untold_s = static_cast<double>(options_.give_up_untold.count());
    if (now_s > last_contact_s_ + untold_s || fs::is_empty(folders_.records())) over_ = true;
  }

  void obey(net::Message& message) {
    switch (message.type) {
      case orders::message_type::kWelcome: {
        const Welcome welcome = welcome_from(message);
        lease_s_ = static_cast<double>(welcome.lease.count()) / 1000;
        hold_lease_since(registered_s_);
        deliveries_.connected(welcome.log_window);
        codes_.connected(welcome.code_window);
        return renew();
      }
      case orders::message_type::kRenewed: {
        const auto sent = renewals_sent_s_.find(number_from(message));
        if (sent != renewals_sent_s_.end()) hold_lease_since(sent->second);
        return;
      }
      case orders::message_type::kPrepare: return prepare(order_from(message));
      case orders::message_type::kRun: {
        const RunCommand command = run_command_from(message);
        if (is_current(command.attempt)) job_->run(command.facts);
        return;
      }
      case orders::message_type::kFinish:
        if (is_current(attempt_from(message))) job_->finish();
        return;
      case orders::message_type::kStop: {
        const StopAttempt command = stop_attempt_from(message);
        if (is_current(command.attempt)) job_->stop(command.reason, command.grace);
        return;
      }
      case orders::message_type::kForget: return forget(attempt_from(message));
      case orders::message_type::kLeave: leaving_ = !has_work(); return;
      default:
        if (deliveries_.obey(message) || streams_.obey(message, sender()) || codes_.obey(message)) return;
        throw Error(ErrorCode::kProtocol, fmt::format("the service sent a message of type {}", message.type));
    }
  }

  std::optional<NodeReport> known_report(const std::string& attempt) {
    auto report = is_current(attempt) ? job_->report() : stored_report(attempt);
    if (!report) return std::nullopt;
    return with_logs(*std::move(report));
  }

  bool is_current(const std::string& attempt) const { return job_ && job_->order().attempt == attempt; }

  void prepare(const WorkOrder& order) {
    if (const auto known = known_report(order.attempt)) return send_report(*known);
    if (order.here().registered_name() != options_.node_id) {
      throw Error(ErrorCode::kProtocol,
                  fmt::format("node {} got an order for {}", options_.node_id, order.here().registered_name()));
    }
    if (has_work()) {
      const std::string why = fmt::format("node {} is busy with attempt {}", options_.node_id, job_->order().attempt);
      return refuse(order, *internal::internal_failure(order, why).error);
    }
    if (job_) with_logs(job_->report());
    job_.reset();
    lost_ = leaving_ = false;
    want_code(order);
    try {
      job_ = std::make_unique<NodeJob>(options_.node, order);
      send_report(with_logs(job_->report()));
    } catch (const std::exception& error) {
      resources::ResourceError refused = *internal::internal_failure(order, error, false).error;
      refused.message = fmt::format("node {} cannot take the job: {}", options_.node_id, error.what());
      refuse(order, refused);
    }
  }

  void want_code(const WorkOrder& order) {
    if (!order.code_sha256.empty()) codes_.want(order.attempt, order.code_sha256);
  }

  void refuse(const WorkOrder& order, const resources::ResourceError& why) {
    NodeReport refusal;
    refusal.attempt = order.attempt;
    refusal.phase = Phase::kEnded;
    refusal.record.emplace();
    refusal.record->exit_code = resources::kNotTheJobsExitCode;
    refusal.record->error = why;
    refusal.record->started_us = refusal.record->ended_us = wall_clock_us();
    send_report(refusal);
  }

  void forget(const std::string& attempt) {
    if (is_current(attempt)) {
      if (has_work()) return;
      job_.reset();
    }
    std::error_code ignored;
    fs::remove(folders_.record(attempt), ignored);
    deliveries_.forget(attempt);
  }

  NodeProgramOptions options_;
  const UniqueFd lock_;
  const UniqueFd own_;
  const NodeFolders folders_;
  CodeCache codes_;  // Before the job, whose thread opens what is in it.
  std::unique_ptr<NodeJob> job_;
  std::optional<MessagePipe> pipe_;
  internal::LogDeliveries deliveries_;
  internal::ByteStreams streams_{[this](const orders::CommandRequest& request) { return start_command(request); }};
  bool over_ = false;
  bool leaving_ = false;  // The service does not want the node any more.
  bool moved_ = false;    // It has said so.
  bool lost_ = false;     // The lease, for the attempt that runs.

  // Seconds of CLOCK_BOOTTIME: a machine that slept has not kept its lease.
  double lease_s_ = 0;
  double lease_until_s_ = 0;
  double registered_s_ = 0;
  double next_renewal_s_ = 0;
  double last_contact_s_ = 0;
  double next_try_s_ = 0;
  double pause_s_ = kFirstPauseS;
  std::uint64_t renewal_ = 0;
  std::map<std::uint64_t, double> renewals_sent_s_;
};

NodeProgram::NodeProgram(const NodeProgramOptions& options) : work_(std::make_unique<Work>(options)) {}
NodeProgram::~NodeProgram() = default;
void NodeProgram::run(int stop_fd) { work_->run(stop_fd); }

}  // namespace gyre::jobs::node
