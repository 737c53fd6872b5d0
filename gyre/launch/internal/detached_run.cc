#include "gyre/launch/internal/detached_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/reach.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

constexpr int kProtocolVersion = 1;
constexpr std::size_t kMostReaders = 16;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
/// After its time a reader that still has records to get is waited for this long.
constexpr std::chrono::seconds kFarewell{5};

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json record_of(const char* type) { return {{"type", type}, {"time", seconds_since_1970()}}; }

/// A socket's file that nobody listens at was left behind by a process that was killed.
bool is_abandoned(const net::Endpoint& endpoint) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!probe || endpoint.host.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, endpoint.host.data(), endpoint.host.size());
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

void make_room_for(const net::Endpoint& endpoint) {
  struct stat status{};
  const std::string& path = endpoint.host;
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} exists and is not a socket", path));
  }
  if (!is_abandoned(endpoint)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("another process already listens at {}", path));
  }
  ::unlink(path.c_str());
}

UniqueFd listen_privately(const net::Endpoint& endpoint) {
  const mode_t before = ::umask(S_IRWXG | S_IRWXO | S_IXUSR);
  try {
    UniqueFd listener = net::listen_on(endpoint);
    ::umask(before);
    return listener;
  } catch (const Error&) {
    ::umask(before);
    throw;
  }
}

/// The socket's file appears at `path` once it is listened to: before that it would look like an abandoned one.
UniqueFd listen_at(const std::string& path) {
  if (!path.starts_with('/')) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the socket '{}' must be an absolute path", path));
  }
  make_room_for({net::Endpoint::Kind::kUnix, path, 0});
  const std::string unfinished = std::filesystem::path(path).replace_filename(fmt::format(".{:x}", ::getpid()));
  UniqueFd listener = listen_privately({net::Endpoint::Kind::kUnix, unfinished, 0});
  const int failure = ::link(unfinished.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(unfinished.c_str());
  if (failure == EEXIST) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("another process already listens at {}", path));
  }
  if (failure != 0) throw system_error(fmt::format("cannot listen at {}", path), failure);
  return listener;
}

/// As the rank's user, who may have put a link anywhere on the way; and without waiting for a pipe's reader.
UniqueFd open_for_output(const std::string& path, const std::optional<UserId>& user) {
  const ActingAs rank(user.value_or(own_user()));
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  UniqueFd file(::open(path.c_str(), kFlags | O_NONBLOCK, 0644));
  if (!file) throw system_error(fmt::format("cannot write the ranks' output to {}", path), errno);
  ::fcntl(file.get(), F_SETFL, O_APPEND);  // A rank must find an ordinary, blocking stdout.
  return file;
}

std::optional<JobMetrics> make_metrics(const LaunchSpec& spec) {
  if (spec.metrics.empty()) return std::nullopt;
  LaunchOptions options;
  options.metrics = spec.metrics;
  options.metrics_bytes = spec.metrics_bytes;
  options.metrics_for_service = true;
  const auto ours = static_cast<int>(spec.ranks.ranks.size());
  return make_job_metrics(options, spec.ranks.part ? spec.ranks.part->size : ours, spec.metrics_first);
}

const char* name_of(Stream stream) { return stream == Stream::kStdout ? "stdout" : "stderr"; }

}  // namespace

DetachedRun::Listener::Listener(const std::string& where) : socket(listen_at(where)), path(where) {}

DetachedRun::Listener::~Listener() { ::unlink(path.c_str()); }

DetachedRun::DetachedRun(const LaunchSpec& spec)
    : spec_(spec),
      log_(spec.keep_bytes),
      listener_(spec.socket),
      metrics_(make_metrics(spec)),
      intake_(make_intake()),
      ranks_(with_files(spec), *this) {}

std::optional<MetricsIntake> DetachedRun::make_intake() {
  if (!metrics_) return std::nullopt;
  return std::make_optional<MetricsIntake>(
      [this](std::span<const metrics::Sample> samples) { metrics_->add(samples); });
}

RankSetOptions DetachedRun::with_files(const LaunchSpec& spec) {
  RankSetOptions options = spec.ranks;
  for (std::size_t i = 0; i < spec.files.size(); ++i) {
    const auto open = [&](const std::string& path, int& descriptor) {
      if (path.empty()) return;
      files_.push_back(open_for_output(path, spec.ranks.ranks[i].user));
      descriptor = files_.back().get();
    };
    open(spec.files[i].stdout_path, options.ranks[i].stdout_fd);
    open(spec.files[i].stderr_path, options.ranks[i].stderr_fd);
  }
  for (RankSpec& rank : options.ranks) {
    if (intake_) rank.inherited.push_back({launch_contract::kMetricsDescriptor, intake_->rank_end()});
  }
  return options;
}

int DetachedRun::run() {
  ranks_.start();
  files_.clear();
  announce();
  while (!over()) {
    wait_for_events();
    handle_signals();
    if (!ranks_.finished()) {
      ranks_.advance();
      if (ranks_.finished()) record_end();
    }
    if (intake_) intake_->advance();
    accept_readers();
    serve_readers();
  }
  return ranks_.result().exit_code();
}

void DetachedRun::announce() const {
  const Json line = {{"socket", spec_.socket}, {"process", ::getpid()}, {"version", kProtocolVersion}};
  const std::string text = line.dump() + "\n";
  // A parent that has gone already will ask at the socket.
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, text.data(), text.size());
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null_fd) ::dup2(null_fd.get(), fd);
  }
}

void DetachedRun::started(int rank, pid_t process) {
  if (intake_) {
    const int first = spec_.ranks.part ? spec_.ranks.part->ranks.front() : 0;
    const RankSpec& spec = spec_.ranks.ranks.at(static_cast<std::size_t>(rank - first));
    const bool has_place = spec.role != "default" && spec.index.has_value();
    metrics_->started(rank, process, has_place ? fmt::format("{} {}", spec.role, *spec.index) : spec.role, "");
    intake_->started(rank, process);
  }
  Json record = record_of("started");
  record["rank"] = rank;
  record["process"] = process;
  log_.add(std::move(record));
}

void DetachedRun::output(int rank, Stream stream, std::string_view bytes) {
  if (bytes.empty()) return;  // The end of a stream says nothing that the end of its rank does not.
  Json record = record_of("output");
  record["rank"] = rank;
  record["stream"] = name_of(stream);
  put_bytes(record, bytes);
  log_.add(std::move(record));
}

void DetachedRun::ended(const ExitRecord& ended) {
  if (intake_) {
    intake_->ended(ended.rank);
    metrics_->ended(ended);
  }
  Json record = record_of("ended");
  record["rank"] = ended.rank;
  record["role"] = ended.role;
  record["index"] = ended.index;
  record["process"] = ended.process;
  record["exit_code"] = ended.status.shell_code();
  record["signal"] = ended.status.signal == 0 ? Json() : Json(signal_name(ended.status.signal));
  record["asked_to_end"] = ended.asked_to_end;
  log_.add(std::move(record));
}

void DetachedRun::note_for_other_hosts(const std::string& line) {
  Json record = record_of("note");
  record["line"] = line;
  log_.add(std::move(record));
}

void DetachedRun::record_end() {
  const RankSetResult result = ranks_.result();
  if (intake_) {
    intake_->advance();  // What the ranks have logged last.
    if (result.first_failed_rank) metrics_->failed(*result.first_failed_rank, "");
    metrics_->finish(result.exit_code());
    intake_.reset();
  }
  Json record = record_of("finished");
  record["exit_code"] = result.exit_code();
  record["first_failed_rank"] = result.first_failed_rank ? Json(*result.first_failed_rank) : Json();
  record["ended_because"] = result.ended_because;
  record["stopped_by"] = result.stopped_by ? Json(signal_name(*result.stopped_by)) : Json();
  record["killed_after_grace"] = result.killed_after_grace;
  log_.add(std::move(record));
  linger_until_ = SteadyClock::now() + spec_.linger;
}

bool DetachedRun::over() const {
  if (!linger_until_) return false;
  const auto now = SteadyClock::now();
  if (released_ || now >= *linger_until_ + kFarewell) return true;
  const bool all_served = std::ranges::none_of(readers_, [this](const auto& each) { return each.has_more(log_); });
  return now >= *linger_until_ && all_served;
}

void DetachedRun::wait_for_events() {
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(accepts_from_ - SteadyClock::now()).count();
  const short accepting = pause > 0 ? 0 : POLLIN;
  std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = ranks_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = listener_.socket.get(), .events = accepting, .revents = 0}};
  if (intake_ && intake_->fd() >= 0) waits.push_back({.fd = intake_->fd(), .events = POLLIN, .revents = 0});
  for (const RecordReader& reader : readers_) {
    const int events = POLLIN | (reader.has_more(log_) ? POLLOUT : 0);
    waits.push_back({.fd = reader.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  int timeout_ms = -1;
  if (linger_until_) {
    const auto now = SteadyClock::now();
    const auto until = now < *linger_until_ ? *linger_until_ : *linger_until_ + kFarewell;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    timeout_ms = static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
  }
  if (const auto due = intake_ ? intake_->due_at() : std::nullopt) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - SteadyClock::now()).count();
    timeout_ms = static_cast<int>(std::clamp<long long>(left, 0, timeout_ms < 0 ? 1'000'000 : timeout_ms));
  }
  if (pause > 0 && (timeout_ms < 0 || timeout_ms > pause)) timeout_ms = static_cast<int>(pause);
  ::poll(waits.data(), waits.size(), timeout_ms);
}

void DetachedRun::handle_signals() {
  while (const auto signal = signals_.next()) {
    // A terminal or a parent that has gone is what this process is made for.
    if (*signal == SIGHUP || *signal == SIGTSTP) continue;
    if (ranks_.finished()) {
      released_ = true;  // It only waits for readers.
    } else {
      if (metrics_) metrics_->stopping(*signal);
      ranks_.stop(*signal, spec_.grace);
    }
  }
}

void DetachedRun::accept_readers() {
  try {
    while (UniqueFd connection = net::accept_from(listener_.socket.get())) {
      const net::PeerCredentials peer = net::peer_credentials(connection.get());
      if ((peer.user != ::geteuid() && peer.user != 0) || readers_.size() == kMostReaders) continue;
      readers_.emplace_back(std::move(connection));
    }
  } catch (const Error&) {
    // No descriptor is left, or the other side has gone: the ranks matter more than a reader. One that still waits
    // would wake this loop again at once.
    accepts_from_ = SteadyClock::now() + kPauseWithoutDescriptors;
  }
}

void DetachedRun::serve_readers() {
  for (RecordReader& reader : readers_) {
    reader.receive([this](const Json& request) { return answer(request); });
    if (!reader.closed()) reader.send(log_);
  }
  std::erase_if(readers_, [](const RecordReader& reader) { return reader.closed(); });
}

std::optional<Json> DetachedRun::answer(const Json& request) {
  const std::string name = request["request"];
  if (name == "status") return status();
  if (name == "stop") return stop(request);
  if (name == "hear") {
    const auto lines = request.find("lines");
    if (lines == request.end() || !lines->is_string()) return Json{{"error", "hear needs lines"}};
    ranks_.hear(lines->get_ref<const std::string&>());
    return std::nullopt;
  }
  if (name == "kill") {
    if (!ranks_.finished()) ranks_.kill();
    return Json{{"killed", true}};
  }
  if (name == "release") {
    released_ = true;
    return Json{{"released", true}};
  }
  return Json{
      {"error", fmt::format("there is no request '{}'; there are follow, status, stop, kill, hear, release", name)}};
}

Json DetachedRun::stop(const Json& request) {
  const auto signal = request.value("signal", Json(static_cast<unsigned>(SIGTERM)));
  const auto grace = request.value("grace_seconds", Json(static_cast<std::uint64_t>(spec_.grace.count()) / 1000));
  constexpr std::int64_t kLongest = 7LL * 24 * 3600;
  if (!signal.is_number_unsigned() || signal < 1 || signal > 64) return {{"error", "signal must be a number, 1 to 64"}};
  if (!grace.is_number_unsigned() || grace > kLongest) return {{"error", "grace_seconds must be a whole number"}};
  if (ranks_.finished()) return {{"stopped", false}};
  if (metrics_) metrics_->stopping(signal.get<int>());
  return {{"stopped", ranks_.stop(signal.get<int>(), std::chrono::seconds(grace.get<std::int64_t>()))}};
}

Json DetachedRun::status() const {
  return {{"status",
           {{"finished", ranks_.finished()},
            {"ending", ranks_.ending()},
            {"process", ::getpid()},
            {"version", kProtocolVersion},
            {"first_sequence", log_.first()},
            {"last_sequence", log_.last()}}}};
}

}  // namespace gyre::launch
