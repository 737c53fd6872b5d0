#include "gyre/jobs/node/launched_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/detached_program.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::node {

using orders::JsonFields;

namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

constexpr std::size_t kLongestRecord = std::size_t{1} << 20;

Path specification_of(const Path& socket) { return socket.string() + ".json"; }

/// Empty, with errno, when nobody listens.
UniqueFd connect_at(const Path& path) {
  const UniqueFd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return {};
  struct stat status{};
  struct stat folder{};
  if (::fstat(file.get(), &status) != 0 || ::lstat(path.parent_path().c_str(), &folder) != 0) return {};
  if (!S_ISSOCK(status.st_mode) || status.st_uid != folder.st_uid) {
    errno = ENOENT;
    return {};
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw system_error("cannot make a socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  fmt::format_to_n(address.sun_path, sizeof address.sun_path - 1, "/proc/self/fd/{}", file.get());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  ::fcntl(socket.get(), F_SETFL, 0);  // Blocking from now on.
  return socket;
}

pid_t peer_of(const UniqueFd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

/// `gyre launch` must be able to listen there.
void check_length(const Path& path) {
  if (path.native().size() < sizeof sockaddr_un::sun_path) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is longer than the 107 bytes that a socket's path may have; give the node a folder with "
                          "a shorter name",
                          path.native()));
}

void write_private_file(const Path& path, const std::string& text) {
  const std::string what = fmt::format("cannot write {}", path.string());
  ::unlink(path.c_str());
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw system_error(what, errno);
  write_all(file.get(), as_bytes(text), what);
}

int value_of_letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

/// RFC 4648 §4.
std::string bytes_of_base64(std::string_view text) {
  std::string bytes;
  unsigned group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int value = value_of_letter(c);
    if (value < 0) throw Error(ErrorCode::kProtocol, "a record of gyre launch is not valid base64");
    group = (group << 6U) | static_cast<unsigned>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>((group >> bits) & 0xFFU);
  }
  return bytes;
}

}  // namespace

LaunchState LaunchedSet::state(const Path& socket) {
  if (connect_at(socket)) return LaunchState::kRuns;
  if (errno == ECONNREFUSED) return LaunchState::kDied;
  std::error_code ignored;
  return std::filesystem::exists(specification_of(socket), ignored) ? LaunchState::kStarting : LaunchState::kAbsent;
}

LaunchedSet LaunchedSet::start(const std::string& program, const Json& specification, const Variables& environment,
                               const Path& socket, const std::vector<int>& descriptors) {
  check_length(socket);
  if (UniqueFd connection = connect_at(socket)) return find(socket);
  const Path file = specification_of(socket);
  write_private_file(file, specification.dump());
  const Words words = start_detached({program, "launch", file.string()}, environment, descriptors);
  // From now on the socket tells its state.
  UniqueFd connection = connect_at(socket);
  ::unlink(file.c_str());
  if (connection) return find(socket);
  const std::string reason = words.error.empty() ? "it was killed before it had begun" : words.error;
  throw Error(ErrorCode::kIo, fmt::format("gyre launch did not start the processes: {}", reason));
}

LaunchedSet LaunchedSet::find(const Path& socket) {
  UniqueFd connection = connect_at(socket);
  if (!connection) throw Error(ErrorCode::kPeerLost, fmt::format("no gyre launch listens at {}", socket.string()));
  LaunchedSet set(std::move(connection));
  set.ask({{"request", "follow"}, {"after", 0U}});
  return set;
}

LaunchedSet::LaunchedSet(UniqueFd socket)
    : peer_(peer_of(socket)),
      lines_(std::move(socket), kLongestRecord, "gyre launch, which held the job's processes,") {}

void LaunchedSet::ask(const Json& request) {
  try {
    lines_.send(request);
  } catch (const Error&) {
    return;  // next() says that it has gone.
  }
}

std::optional<Json> LaunchedSet::next(Deadline deadline, int wake_fd) {
  for (;;) {
    auto line = lines_.next(deadline, {wake_fd});
    if (!line || line->contains("dropped")) return line;
    if (!line->contains("type")) continue;  // An answer to a request.
    if (line->at("type").is_string()) return line;
    throw Error(ErrorCode::kProtocol, "a record of gyre launch has no type");
  }
}

void LaunchedSet::stop(int signal, std::chrono::seconds grace) {
  ask({{"request", "stop"},
       {"signal", static_cast<unsigned>(signal)},
       {"grace_seconds", static_cast<std::uint64_t>(grace.count())}});
}

void LaunchedSet::kill() { ask({{"request", "kill"}}); }

void LaunchedSet::release(std::chrono::milliseconds limit) {
  const UniqueFd process = peer_ > 0 ? open_pidfd(peer_) : UniqueFd();
  ask({{"request", "release"}});
  const Deadline deadline = Deadline::after(limit);
  try {
    while (!deadline.passed()) next(deadline, -1);
  } catch (const Error&) {
    if (!process) return;
    // It has let the connection go, as it was asked to, and is about to end: until then it would be taken for a process
    // that the job has left.
    pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, deadline.poll_timeout_ms());
  }
}

std::string output_of(const Json& record) {
  const JsonFields fields(record, "a record of gyre launch");
  if (!fields.has("base64")) return record.at("text").is_string() ? record["text"].get<std::string>() : std::string();
  return bytes_of_base64(fields.text("base64"));
}

}  // namespace gyre::jobs::node
