#include "gyre/jobs/agent/launched_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/agent/detached_program.h"
#include "gyre/jobs/agent/internal/json_fields.h"

namespace gyre::jobs::agent {

namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

constexpr std::size_t kLongestRecord = std::size_t{1} << 20;

Path specification_of(const Path& socket) { return socket.string() + ".json"; }

/// Empty, with errno, when nobody listens.
UniqueFd connect_at(const Path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof address.sun_path) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is longer than the 107 bytes that a socket's path may have; give the node a folder with "
                    "a shorter name",
                    text));
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw system_error("cannot make a socket", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  return {};
}

void write_private_file(const Path& path, const std::string& text) {
  ::unlink(path.c_str());
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw system_error(fmt::format("cannot write {}", path.string()), errno);
  write_all(file.get(), as_bytes(text), path.string());
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
  if (UniqueFd connection = connect_at(socket)) return find(socket);
  const Path file = specification_of(socket);
  write_private_file(file, specification.dump());
  const Words words = start_detached({program, "launch", file.string()}, environment, descriptors);
  // From now on the socket tells its state.
  UniqueFd connection = connect_at(socket);
  ::unlink(file.c_str());
  if (connection) return find(socket);
  const std::string reason = words.error.empty() ? "it ended at once" : words.error;
  throw Error(ErrorCode::kIo, fmt::format("gyre launch did not start the processes: {}", reason));
}

LaunchedSet LaunchedSet::find(const Path& socket) {
  UniqueFd connection = connect_at(socket);
  if (!connection) throw Error(ErrorCode::kPeerLost, fmt::format("no gyre launch listens at {}", socket.string()));
  LaunchedSet set(std::move(connection));
  set.ask({{"request", "follow"}, {"after", 0U}});
  return set;
}

void LaunchedSet::ask(const Json& request) {
  const std::string line = request.dump() + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // next() says that it has gone.
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::optional<Json> LaunchedSet::next_line() {
  const std::size_t end = input_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  Json line = parse_json(std::string_view(input_).substr(0, end), kLongestRecord, "a record of gyre launch");
  input_.erase(0, end + 1);
  return line;
}

std::optional<Json> LaunchedSet::next(Deadline deadline, int wake_fd) {
  for (;;) {
    if (auto line = next_line()) {
      if (line->contains("type") || line->contains("dropped")) return line;
      continue;  // An answer to a request.
    }
    std::array<pollfd, 2> waits = {{{socket_.get(), POLLIN, 0}, {wake_fd, POLLIN, 0}}};
    const int ready = ::poll(waits.data(), waits.size(), deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (waits[0].revents == 0 && (ready == 0 || waits[1].revents != 0)) return std::nullopt;
    if (waits[0].revents == 0) continue;
    std::array<char, std::size_t{64} << 10> bytes;
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) throw Error(ErrorCode::kPeerLost, "gyre launch, which held the job's processes, was killed");
    input_.append(bytes.data(), static_cast<std::size_t>(count));
    if (input_.size() > 2 * kLongestRecord && input_.find('\n') == std::string::npos) {
      throw Error(ErrorCode::kProtocol, "a record of gyre launch has no end");
    }
  }
}

void LaunchedSet::stop(int signal, std::chrono::seconds grace) {
  ask({{"request", "stop"},
       {"signal", static_cast<unsigned>(signal)},
       {"grace_seconds", static_cast<std::uint64_t>(grace.count())}});
}

void LaunchedSet::kill() { ask({{"request", "kill"}}); }

void LaunchedSet::release(std::chrono::milliseconds limit) {
  ask({{"request", "release"}});
  const Deadline deadline = Deadline::after(limit);
  try {
    while (!deadline.passed()) next(deadline, -1);
  } catch (const Error&) {
    return;  // It has gone, as it was asked to.
  }
}

std::string output_of(const Json& record) {
  const JsonFields fields(record, "a record of gyre launch");
  if (!fields.has("base64")) return record.at("text").is_string() ? record["text"].get<std::string>() : std::string();
  return bytes_of_base64(fields.text("base64"));
}

}  // namespace gyre::jobs::agent
