#include "gyre/jobs/node/remote_shell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/launch_specification.h"
#include "gyre/jobs/node/internal/shell_session.h"
#include "gyre/jobs/node/internal/waiting_launcher.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node {

using orders::connect_securely;
using orders::JsonFields;
using orders::key_from_hex;
using orders::MessagePipe;
using orders::parse_json;
using orders::Purpose;

namespace {

using Json = nlohmann::json;

namespace shell_message = internal::shell_message;

constexpr int kUnreachable = 255;  // What ssh itself returns.
/// Until a launcher whose proxy has failed is ended; one that knows of it ends by itself.
constexpr std::chrono::seconds kLaunchersPatience{3};
constexpr std::chrono::seconds kLongestConnect{10};
constexpr std::size_t kMostTableBytes = std::size_t{1} << 20;
constexpr std::size_t kMostInputBytes = std::size_t{1} << 20;  // On the way; then stdin has to wait.

/// Options of ssh that take a value.
constexpr std::string_view kWithValue = "BbcDEeFIiJLlmOopQRSWw";

int exit_code_of(const net::Message& message) {
  ByteReader reader(message.payload, "the remote shell's answer");
  return static_cast<int>(reader.u32());
}

/// What has been read from `fd`; nothing at its end.
std::optional<Bytes> read_some(int fd) {
  Bytes bytes(std::size_t{16} << 10);
  const ssize_t count = ::read(fd, bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Bytes();
  if (count <= 0) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

/// Passes everything on until the exit code comes.
int converse(MessagePipe& pipe, bool with_stdin) {
  bool reads = with_stdin;
  if (!with_stdin) pipe.send(shell_message::kInputEnd, {});
  for (;;) {
    const bool has_room = pipe.waiting_bytes() < kMostInputBytes;
    std::array<pollfd, 2> waits = {{{pipe.fd(), pipe.events(), 0}, {reads && has_room ? STDIN_FILENO : -1, POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) throw system_error("poll", errno);
    if (waits[1].revents != 0) {
      const auto bytes = read_some(STDIN_FILENO);
      if (!bytes) pipe.send(shell_message::kInputEnd, {});
      if (bytes && !bytes->empty()) pipe.send(shell_message::kInput, *bytes);
      reads = bytes.has_value();
    }
    if ((waits[0].revents & POLLOUT) != 0) pipe.flush();
    while (const auto message = pipe.receive()) {
      if (message->type == shell_message::kExit) return exit_code_of(*message);
      const int fd = message->type == shell_message::kOutput ? STDOUT_FILENO : STDERR_FILENO;
      write_all(fd, message->payload, "the output of a remote command");
    }
  }
}

int run_there(const net::Endpoint& endpoint, const net::JobKey& key, std::uint32_t node, const ShellRequest& request) {
  try {
    MessagePipe pipe(connect_securely(endpoint, key, {Purpose::kShell, node}, Deadline::after(kLongestConnect)));
    pipe.send(shell_message::kCommand, as_bytes(request.command));
    return converse(pipe, !request.without_stdin);
  } catch (const net::WrongAcceptor& error) {
    fmt::print(stderr,
               "ssh: node {}: node {} of this job answers at {} instead of node {}, counted from 0; an address is used "
               "twice, or redirected on the way\n",
               request.host, error.reached(), net::to_string(endpoint), node);
    return kUnreachable;
  } catch (const Error& error) {
    fmt::print(stderr, "ssh: node {}: {}\n", request.host, error.what());
    return kUnreachable;
  }
}

/// On this node itself, as its server would.
int run_here(const ShellRequest& request, const std::vector<std::string>& environment) {
  SpawnOptions options;
  options.argv = {internal::shell_program()};
  if (!request.command.empty()) options.argv.insert(options.argv.end(), {"-c", request.command});
  options.environment = environment;
  options.folder = variable_of(environment, "HOME");
  if (!request.without_stdin) options.stdin_fd = STDIN_FILENO;
  options.parent_death_signal = SIGHUP;
  const Process process = Process::spawn(options);
  return process.wait(Deadline::never())->shell_code();
}

[[noreturn]] void become_real_ssh(const std::vector<std::string>& arguments, std::vector<std::string> environment,
                                  const std::string& own_program) {
  // Not ourselves again: our own folder goes from the PATH, wherever the job has moved it.
  std::vector<std::string> folders = split(variable_of(environment, "PATH"), ':');
  std::erase(folders, own_program.substr(0, own_program.rfind('/')));
  const std::string program = find_command("ssh", fmt::format("{}", fmt::join(folders, ":")));
  std::vector<char*> words = {const_cast<char*>("ssh")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  std::vector<char*> variables;
  for (std::string& entry : environment) variables.push_back(entry.data());
  variables.push_back(nullptr);
  ::execve(program.c_str(), words.data(), variables.data());
  throw system_error("cannot start ssh", errno);
}

void end_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) ::_exit(1);
}

}  // namespace

Json to_json(const ShellTable& table) {
  return {{"key", table.key}, {"ports", table.ports}, {"numbers", table.numbers}, {"addresses", table.addresses}};
}

ShellTable shell_table_from_json(const Json& json) {
  const JsonFields fields(json, "the table of shells");
  ShellTable table;
  table.key = fields.text("key");
  for (const auto& [address, port] : fields.at("ports").items()) {
    if (!port.is_number_integer() || port < 0 || port > 65'535) fields.refuse("ports", "must be ports");
    table.ports[address] = port.get<int>();
  }
  for (const auto& [address, number] : fields.at("numbers").items()) {
    if (!number.is_number_unsigned()) fields.refuse("numbers", "must be numbers of nodes");
    table.numbers[address] = number.get<std::uint32_t>();
  }
  for (const auto& [id, address] : fields.at("addresses").items()) {
    if (!address.is_string()) fields.refuse("addresses", "must be addresses");
    table.addresses[id] = address.get<std::string>();
  }
  return table;
}

ShellRequest parse_ssh_arguments(const std::vector<std::string>& arguments) {
  ShellRequest request;
  std::size_t next = 0;
  while (next < arguments.size() && arguments[next].size() > 1 && arguments[next].starts_with('-')) {
    const std::string& word = arguments[next++];
    if (word == "--") break;
    // Several flags may share a dash; the first that takes a value takes the rest of the word, or the next one.
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'n') request.without_stdin = true;
      if (kWithValue.find(word[i]) == std::string_view::npos) continue;
      if (i + 1 == word.size()) ++next;
      break;
    }
  }
  if (next >= arguments.size()) throw Error(ErrorCode::kInvalidArgument, "usage: ssh [OPTIONS] HOST [COMMAND…]");
  const std::string& host = arguments[next++];
  request.host = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  for (; next < arguments.size(); ++next) {
    if (!request.command.empty()) request.command += ' ';
    request.command += arguments[next];
  }
  return request;
}

int run_remote_shell(const std::vector<std::string>& arguments, const std::string& table_file,
                     const std::vector<std::string>& environment) {
  const ShellRequest request = parse_ssh_arguments(arguments);
  const Bytes bytes = read_file(table_file, kMostTableBytes);
  const ShellTable table = shell_table_from_json(parse_json(as_text(bytes), kMostTableBytes, table_file));
  const auto by_id = table.addresses.find(request.host);
  const std::string address = by_id == table.addresses.end() ? request.host : by_id->second;
  const auto port = table.ports.find(address);
  const auto number = table.numbers.find(address);
  if (port == table.ports.end() || number == table.numbers.end())
    become_real_ssh(arguments, environment, variable_of(environment, kRemoteShellVariable));
  const auto named = std::ranges::find(table.addresses, address, [](const auto& node) { return node.second; });
  const auto launcher = internal::WaitingLauncher::of_parent(
      request.command, named == table.addresses.end() ? address : fmt::format("{} ({})", named->first, address));
  const net::Endpoint there{net::Endpoint::Kind::kTcp, address, static_cast<std::uint16_t>(port->second)};
  const int code = port->second == 0 ? run_here(request, environment)
                                     : run_there(there, key_from_hex(table.key), number->second, request);
  if (launcher && code != 0) {
    launcher->proxy_failed(code, std::filesystem::path(table_file).parent_path() / kFailureNote, kLaunchersPatience);
  }
  return code;
}

void serve_remote_shells(UniqueFd listening_socket, const net::JobKey& key, std::uint32_t node,
                         const std::vector<std::string>& environment) {
  constexpr int kReapEveryMs = 1000;
  constexpr int kPauseAfterFailureMs = 100;
  for (;;) {
    pollfd wait{.fd = listening_socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, kReapEveryMs);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    UniqueFd connection;
    try {
      connection = net::accept_from(listening_socket.get());
    } catch (const Error&) {
      // It has gone again, or no descriptor is left; then it still waits, and the socket stays ready.
      ::poll(nullptr, 0, kPauseAfterFailureMs);
      continue;
    }
    if (!connection) continue;
    const pid_t child = ::fork();
    if (child != 0) continue;
    end_with_parent();
    listening_socket.reset();
    ::_exit(internal::serve_shell_session(std::move(connection), key, node, environment));
  }
}

}  // namespace gyre::jobs::node
