#include "gyre/jobs/client/connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "gyre/base/account.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/net/http/certificate.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::client {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = 65'536;
constexpr std::chrono::milliseconds kLongestConnect{5'000};
constexpr std::string_view kHttps = "https://";
constexpr std::string_view kUnix = "unix:";

void require_private(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("others than its user can read {}, which holds a token; chmod 600 it", path.string()));
  }
}

std::string token_in(const std::string& file) {
  require_private(file);
  std::string token(as_text(read_file(file, kMostFileBytes)));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} does not hold one line with a token", file));
  }
  return token;
}

bool names_a_place(std::string_view text) { return text.starts_with(kUnix) || text.find("://") != text.npos; }

}  // namespace

ServerPlace parse_server(std::string_view text) {
  if (text.starts_with(kUnix)) return {net::parse_endpoint(text), ""};
  const std::size_t hash = text.find('#');
  std::string_view place = text.substr(0, hash);
  if (!place.starts_with(kHttps) || hash == text.npos || !net::http::is_fingerprint(text.substr(hash + 1))) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' names no job server; unix:/PATH and https://HOST:PORT#FINGERPRINT do, as `gyre server "
                    "--listen HOST:PORT` shows it: by its fingerprint a server proves that it may have a token",
                    text));
  }
  place.remove_prefix(kHttps.size());
  if (place.ends_with('/')) place.remove_suffix(1);
  return {net::parse_endpoint(fmt::format("tcp:{}", place)), std::string(text.substr(hash + 1))};
}

std::string server_text(const ServerPlace& place) {
  std::string text = net::to_string(place.endpoint);
  if (place.endpoint.kind == net::Endpoint::Kind::kUnix) return text;
  const std::string address = text.substr(text.find(':') + 1);
  if (place.fingerprint.empty()) return "http://" + address;  // Nothing to prove itself with: not for tokens.
  return fmt::format("{}{}#{}", kHttps, address, place.fingerprint);
}

std::optional<ServerFile> read_server_file(const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) return std::nullopt;
  require_private(path);
  try {
    const Bytes bytes = read_file(path, kMostFileBytes);
    const nlohmann::json json = nlohmann::json::parse(as_text(bytes));
    return ServerFile{.server = json.at("server").get<std::string>(),
                      .user = json.value("user", ""),
                      .token = json.value("token", ""),
                      .remote = json.value("remote", ""),
                      .server_account = json.value("serverAccount", ""),
                      .folder = json.value("folder", "")};
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not say where a job server listens; `gyre server` writes such a file again",
                            path.string()));
  }
}

void write_server_file(const fs::path& path, const ServerFile& file) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  nlohmann::ordered_json json = {{"server", file.server}, {"user", file.user}};
  if (!file.token.empty()) json["token"] = file.token;
  if (!file.remote.empty()) json["remote"] = file.remote;
  if (!file.server_account.empty()) json["serverAccount"] = file.server_account;
  if (!file.folder.empty()) json["folder"] = file.folder;
  const std::string text = json.dump(2) + "\n";
  std::string temporary = path.string() + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // For its user alone.
  if (!fd) throw system_error(fmt::format("cannot write {}", path.string()), errno);
  try {
    write_all(fd.get(), as_bytes(text), temporary);
    if (::fsync(fd.get()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
      throw system_error(fmt::format("cannot write {}", path.string()), errno);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

fs::path default_server_file(const std::vector<std::string>& environment) {
  if (const std::string folder = variable_of(environment, "XDG_CONFIG_HOME"); !folder.empty()) {
    return fs::path(folder) / "gyre" / "server.json";
  }
  const std::string home = variable_of(environment, "HOME");
  return fs::path(home.empty() ? "/" : home) / ".config" / "gyre" / "server.json";
}

fs::path door_of_root() { return "/run/gyre/gyre.sock"; }

fs::path door_of_user(const std::vector<std::string>& environment) {
  const fs::path runtime = variable_of(environment, "XDG_RUNTIME_DIR");
  return runtime.is_absolute() ? runtime / "gyre" / "gyre.sock" : fs::path();
}

namespace {

/// Of a server that nobody has named.
std::optional<ServerFile> found_door(const std::vector<std::string>& environment) {
  for (const fs::path& door : {door_of_user(environment), door_of_root()}) {
    std::error_code ignored;
    if (!door.empty() && fs::is_socket(door, ignored)) {
      return ServerFile{.server = server_text({{net::Endpoint::Kind::kUnix, door.string(), 0}, ""})};
    }
  }
  return std::nullopt;
}

}  // namespace

Connection find_connection(const ConnectionOptions& options, const std::vector<std::string>& environment) {
  std::string server = options.server.empty() ? variable_of(environment, "GYRE_SERVER") : options.server;
  const bool is_file = !server.empty() && !names_a_place(server);
  const fs::path path = is_file ? fs::path(server) : default_server_file(environment);
  // A default file that somebody else can read is of no concern where nothing of it is wanted.
  const bool own_token = !options.token_file.empty() || !variable_of(environment, "GYRE_TOKEN").empty();
  std::optional<ServerFile> file;
  if (is_file || server.empty() || !own_token) file = read_server_file(path);
  if (is_file && !file) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("there is no file {}; a server is named by unix:/PATH, https://HOST:PORT#FINGERPRINT, "
                            "or a file with one of them",
                            server));
  }
  if (server.empty() && !file) file = found_door(environment);
  if (server.empty() && !file) {
    throw Error(ErrorCode::kNotFound,
                "no job server is known here: start one with `gyre server`, or name one with --server (or "
                "GYRE_SERVER); `gyre job run` needs none");
  }
  if (is_file || server.empty()) server = file->server;
  Connection connection{.place = parse_server(server)};
  if (file && !file->server_account.empty()) connection.server_account = account_number(file->server_account);
  if (!options.token_file.empty()) {
    connection.token = token_in(options.token_file);
  } else if (const std::string token = variable_of(environment, "GYRE_TOKEN"); !token.empty()) {
    connection.token = token;
  } else if (file && parse_server(file->server) == connection.place) {
    connection.token = file->token;
  }
  if (connection.token.empty() && connection.place.endpoint.kind == net::Endpoint::Kind::kTcp) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("there is no token for {}: name a file that holds it with --token-file, or set GYRE_TOKEN",
                            server));
  }
  return connection;
}

std::string remote_of(const std::string& server, const ConnectionOptions& options,
                      const std::vector<std::string>& environment) {
  const std::string named = options.server.empty() ? variable_of(environment, "GYRE_SERVER") : options.server;
  const bool is_file = !named.empty() && !names_a_place(named);
  const auto file = read_server_file(is_file ? fs::path(named) : default_server_file(environment));
  return file && file->server == server ? file->remote : "";
}

std::string account_of_server(const Connection& connection) {
  if (connection.place.endpoint.kind != net::Endpoint::Kind::kUnix) return "";
  const UniqueFd socket = net::connect_to(connection.place.endpoint, Deadline::after(kLongestConnect));
  return name_of_account(net::peer_credentials(socket.get()).user);
}

}  // namespace gyre::jobs::client
